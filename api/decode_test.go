package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/httpkit"
)

const goodThing = `{"id":"a","name":"A","level":3,"frequency_hz":444}`

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	for name, c := range map[string]struct {
		method, contentType string
		refused             bool
	}{
		"POST application/json":                        {"POST", "application/json", false},
		"POST application/json in UTF-8":               {"POST", "application/json; charset=utf-8", false},
		"POST application/json in quoted UTF-8":        {"POST", `Application/JSON;charset="UTF-8"`, false},
		"POST application/json with another parameter": {"POST", "application/json; version=1", false},
		"POST application/json in Latin-1":             {"POST", "application/json; charset=iso-8859-1", true},
		"POST application/merge-patch+json":            {"POST", "application/merge-patch+json", true},
		"POST text/json":                               {"POST", "text/json", true},
		"POST text/plain":                              {"POST", "text/plain", true},
		"POST a form":                                  {"POST", "application/x-www-form-urlencoded", true},
		"POST without a type":                          {"POST", "", true},
		"POST with a type that is none":                {"POST", "json", true},
		"POST with a broken type":                      {"POST", "application/json; charset", true},
		"PATCH application/json":                       {"PATCH", "application/json", false},
		"PATCH application/merge-patch+json":           {"PATCH", "application/merge-patch+json", false},
		"PATCH application/json-patch+json":            {"PATCH", "application/json-patch+json", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, body := "/things", goodThing
			if c.method == "PATCH" {
				path, body = "/things/a", `{"name":"x"}`
			}
			a := d.do(c.method, path, body, "Content-Type", "", "Content-Type", c.contentType)
			if !c.refused {
				require.Less(t, a.StatusCode, 300, a.body)
				return
			}
			doc := a.problem(t, 415, errs.UnsupportedMediaType)
			requireField(t, doc, errs.Field{Header: "Content-Type", Rule: "media_type", Detail: "application/json"})
			require.Contains(t, a.body, `"accepted":["application/json"`)
			require.Contains(t, a.Header.Get("Accept"), "application/json")
		})
	}

	t.Run("a compressed body is rejected", func(t *testing.T) {
		t.Parallel()
		for _, coding := range []string{"gzip", "br", "gzip, identity"} {
			a := d.do("POST", "/things", goodThing, "Content-Encoding", coding)
			requireField(t, a.problem(t, 415, errs.UnsupportedMediaType), errs.Field{Header: "Content-Encoding", Rule: "identity"})
		}
		require.Equal(t, 201, d.do("POST", "/things", goodThing, "Content-Encoding", "Identity").StatusCode)
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})

	for name, c := range map[string]struct {
		body string
		code errs.Code
		want errs.Field
	}{
		"white space":      {"  ", errs.MalformedJSON, errs.Field{Rule: "required"}},
		"a syntax error":   {`{"id":}`, errs.MalformedJSON, errs.Field{Pointer: "/id", Rule: "syntax"}},
		"an unknown field": {`{"nmae":"x"}`, errs.InvalidRequest, errs.Field{Pointer: "/nmae", Rule: "unknown_field", Detail: "did you mean name?"}},
		"a missing field":  {`{"name":"A","level":3,"frequency_hz":444}`, errs.InvalidRequest, errs.Field{Pointer: "/id", Rule: "required"}},
		"a broken rule":    {`{"id":"A","name":"A","level":3,"frequency_hz":444}`, errs.InvalidRequest, errs.Field{Pointer: "/id", Rule: "agent_id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireField(t, d.do("POST", "/things", c.body).problem(t, 400, c.code), c.want)
		})
	}

	t.Run("no body", func(t *testing.T) {
		t.Parallel()
		for _, contentType := range []string{"", "application/json"} {
			doc := d.do("POST", "/things", "", "Content-Type", contentType).problem(t, 400, errs.MalformedJSON)
			requireField(t, doc, errs.Field{Rule: "required"})
		}
	})
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	padded := func(size int) string { return goodThing + strings.Repeat(" ", size-len(goodThing)) }
	send := func(t *testing.T, size int, chunked bool) testResponse {
		t.Helper()
		var body io.Reader = strings.NewReader(padded(size))
		if chunked {
			body = struct{ io.Reader }{body} // a body of unknown length
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/things", body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		return d.send(req)
	}
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("at the limit, chunked %v", chunked), func(t *testing.T) {
			t.Parallel()
			a := send(t, maxBody, chunked)
			require.Equal(t, 201, a.StatusCode, a.body)
			require.JSONEq(t, fmt.Sprintf(`{"bytes":%d}`, maxBody), a.body)
		})
		t.Run(fmt.Sprintf("one byte over, chunked %v", chunked), func(t *testing.T) {
			t.Parallel()
			a := send(t, maxBody+1, chunked)
			require.Contains(t, a.problem(t, 413, errs.BodyTooLarge).Detail, "1048576 bytes")
			require.Contains(t, a.body, `"limit":1048576`)
		})
	}
}

func TestExpectContinueIsRejectedAtOnce(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{})
	a := rawRequest(t, d, "POST /things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n", func(net.Conn) {})
	a.problem(t, 413, errs.BodyTooLarge)
}

// rawRequest sends bytes as they are and reads one answer; afterwards is called
// once they are sent.
func rawRequest(t *testing.T, d *testServer, text string, afterwards func(net.Conn)) testResponse {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(d.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute))) // an answer that never comes fails the test
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	afterwards(conn)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return testResponse{res, string(body)}
}

func TestIncompleteBodies(t *testing.T) {
	t.Parallel()
	const head = "POST /things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"

	t.Run("a truncated body", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{})
		a := rawRequest(t, d, head, func(c net.Conn) { require.NoError(t, c.(*net.TCPConn).CloseWrite()) })
		require.Contains(t, a.problem(t, 400, errs.InvalidRequest).Detail, "ended before its announced length")
	})
	t.Run("an incomplete body", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{timeout: 50 * time.Millisecond})
		rawRequest(t, d, head, func(net.Conn) {}).problem(t, 408, errs.Timeout)
	})
	t.Run("an incomplete body of a request that is rejected before it is read", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{timeout: 50 * time.Millisecond})
		nowhere := strings.Replace(head, "/things", "/nowhere", 1)
		rawRequest(t, d, nowhere, func(net.Conn) {}).problem(t, 404, errs.NotFound)
	})
	t.Run("a complete body removes the read deadline", func(t *testing.T) {
		t.Parallel()
		log, _ := newLog(t)
		p := newResponder(log)
		deadlines := &deadlineRecorder{ResponseWriter: httptest.NewRecorder()}
		read := p.handle(func(w http.ResponseWriter, r *http.Request) error {
			_, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: maxBody, MediaTypes: []string{contentTypeJSON}})
			return err
		})
		r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
		r.Header.Set("Content-Type", contentTypeJSON)
		timeout(time.Hour, nil)(read).ServeHTTP(deadlines, r)
		require.Len(t, deadlines.set, 2)
		require.WithinDuration(t, time.Now().Add(time.Hour), deadlines.set[0], time.Minute)
		require.Zero(t, deadlines.set[1], "a body that has come is not waited for")
	})
}

// deadlineRecorder notes the read deadlines that are set.
type deadlineRecorder struct {
	http.ResponseWriter
	set []time.Time
}

// SetReadDeadline is what http.ResponseController calls.
func (d *deadlineRecorder) SetReadDeadline(deadline time.Time) error {
	d.set = append(d.set, deadline)
	return nil
}
