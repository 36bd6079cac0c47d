package testkit

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Timeout limits the wait for something that must happen. Only a test that fails reaches it,
// however busy the machine is.
const Timeout = 3 * time.Minute

// SkipIfShort skips a slow test with go test -short.
func SkipIfShort(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip(reason) //nolint:forbidigo // nothing is missing: go test without -short runs it
	}
}

// Client sends HTTP requests to one server. Goroutines of a test may use the methods that return
// errors.
type Client struct {
	URL string
	// Token is the bearer token of every request, "" for none.
	Token string
	HTTP  *http.Client
}

// NewClient returns a client with connections of its own, which end with the test. It does not
// follow redirects.
func NewClient(t testing.TB, url, token string) *Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{url, token, &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Response is a response that was read completely.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// String returns the body without leading and trailing white space.
func (r Response) String() string { return strings.TrimSpace(string(r.Body)) }

// Decode decodes a JSON body of a response with the given status.
func (r Response) Decode(t testing.TB, status int, v any) {
	t.Helper()
	require.Equal(t, status, r.Status, "%s", r.Body)
	require.NoError(t, json.Unmarshal(r.Body, v), "%s", r.Body)
}

// Open sends a request and returns its response, whose body the caller closes. header is a list of
// names and values; the last value of a name counts, and "" removes the header. By default a request
// has Authorization and, with a body, Content-Type application/json.
func (c *Client) Open(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		switch name, value := header[i], header[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	return c.HTTP.Do(req)
}

// Send is Open for a response that is read completely.
func (c *Client) Send(ctx context.Context, method, path, body string, header ...string) (out Response, err error) {
	resp, err := c.Open(ctx, method, path, body, header...)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	out.Status, out.Header = resp.StatusCode, resp.Header
	out.Body, err = io.ReadAll(resp.Body)
	return out, err
}

// Do is Send for a request that must get a response.
func (c *Client) Do(t testing.TB, method, path, body string, header ...string) Response {
	t.Helper()
	out, err := c.Send(t.Context(), method, path, body, header...)
	require.NoError(t, err)
	return out
}
