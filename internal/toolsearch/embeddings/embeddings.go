// Package embeddings asks a server for the vectors of texts with the request that most of
// them understand, POST /v1/embeddings: hosted models and those on one's own machine alike.
// What comes back is looked at before it is believed, and a server that is slow, broken or
// refuses is an error in one sentence, because search goes on without it.
package embeddings

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"comet/internal/errs"
)

const (
	// maxTexts is how many texts one request may have, and maxTries how often it is sent.
	maxTexts = 2048
	maxTries = 10
	// maxWidth is how many numbers a vector may have.
	maxWidth = 16_384
)

// Options configures New; nil is the zero value.
type Options struct {
	// Token is sent as a bearer token; default none is.
	Token string
	// Batch is how many texts one request has, default 64.
	Batch int
	// Timeout is how long one request may take, default 10 s, and Tries how often it is
	// sent where the server is busy or away, default 3.
	Timeout time.Duration
	Tries   int
	// Pause is the wait before the second try, default 200 ms; it doubles with each.
	Pause time.Duration
	// MaxBody is the longest answer that is read, in bytes, default 32 MiB.
	MaxBody int64
	// DialContext makes the connections; default is net.Dialer's. An address guard fits.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Batch <= 0 || out.Batch > maxTexts {
		out.Batch = 64
	}
	if out.Timeout <= 0 {
		out.Timeout = 10 * time.Second
	}
	if out.Tries <= 0 || out.Tries > maxTries {
		out.Tries = 3
	}
	if out.Pause <= 0 {
		out.Pause = 200 * time.Millisecond
	}
	if out.MaxBody <= 0 {
		out.MaxBody = 32 << 20
	}
	if out.DialContext == nil {
		out.DialContext = (&net.Dialer{Timeout: out.Timeout}).DialContext
	}
	return out
}

// Client is safe for concurrent use.
type Client struct {
	url, model string
	opts       Options
	http       *http.Client
}

// New returns a client of the server at base, such as http://127.0.0.1:11434 or
// https://models.example/v1: "/embeddings" is put behind it, and /v1 where it is missing.
// The error is errs.InvalidRequest for what is no such URL, or no model.
func New(base, model string, opts *Options) (*Client, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must have no password in it: the token is given by itself")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must have no query")
	case model == "":
		return nil, errs.New(errs.InvalidRequest, "the embeddings server must be told which model to use")
	}
	path := strings.TrimSuffix(u.Path, "/")
	if path == "" {
		path = "/v1"
	}
	u.Path = path + "/embeddings"
	c := &Client{url: u.String(), model: model, opts: opts.orDefaults()}
	c.http = &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: c.opts.DialContext, MaxIdleConns: 8, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute},
		CheckRedirect: sameHost,
	}
	return c, nil
}

// sameHost lets no other host read the texts and the token.
func sameHost(req *http.Request, via []*http.Request) error {
	const most = 3
	if len(via) > most {
		return errs.New(errs.Unavailable, "the embeddings server redirects more than %d times", most)
	}
	if from := via[0].URL; req.URL.Host != from.Host || req.URL.Scheme != from.Scheme {
		return errs.New(errs.Unavailable, "the embeddings server redirects to another host")
	}
	return nil
}

// Model returns the name of the model.
func (c *Client) Model() string { return c.model }

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }
