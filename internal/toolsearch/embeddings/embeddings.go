// Package embeddings requests vectors of texts from a server with POST /v1/embeddings, which hosted
// and local models support. Responses are validated. A slow or failing server results in an error of
// one sentence, because the search continues without it.
package embeddings

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"comet/internal/errs"
)

// maxWidth is the longest vector.
const maxWidth = 16_384

// Options configures New; nil is the zero value.
type Options struct {
	// Token is sent as a bearer token, "" for none.
	Token string
	// Timeout limits one request, default 10 s; Tries is how often it is sent, default 3.
	Timeout time.Duration
	Tries   int
	// Pause is the wait before the second try, default 200 ms; it doubles with each.
	Pause time.Duration
	// MaxBody is the longest response in bytes, default 32 MiB.
	MaxBody int64
}

func (o *Options) withDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Timeout = cmp.Or(out.Timeout, 10*time.Second)
	out.Tries = cmp.Or(out.Tries, 3)
	out.Pause = cmp.Or(out.Pause, 200*time.Millisecond)
	out.MaxBody = cmp.Or(out.MaxBody, 32<<20)
	return out
}

// Client is safe for concurrent use.
type Client struct {
	url, model string
	opts       Options
	http       *http.Client
}

// New returns a client of the server at base, such as http://127.0.0.1:11434 or
// https://models.example/v1. It appends /v1 to a base without a path, and /embeddings. The error is
// errs.InvalidRequest for an invalid URL or an empty model.
func New(base, model string, opts *Options) (*Client, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must not contain credentials: use the token setting")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errs.New(errs.InvalidRequest, "the URL of the embeddings server must not have a query")
	case model == "":
		return nil, errs.New(errs.InvalidRequest, "the embeddings server needs the name of a model")
	}
	u.Path = cmp.Or(strings.TrimSuffix(u.Path, "/"), "/v1") + "/embeddings"
	c := &Client{url: u.String(), model: model, opts: opts.withDefaults()}
	c.http = &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 8, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute},
		CheckRedirect: sameHost,
	}
	return c, nil
}

// sameHost rejects redirects to other hosts, which would receive the texts and the token.
func sameHost(req *http.Request, via []*http.Request) error {
	const limit = 3
	if len(via) > limit {
		return errs.New(errs.Unavailable, "the embeddings server redirects more than %d times", limit)
	}
	if from := via[0].URL; req.URL.Host != from.Host || req.URL.Scheme != from.Scheme {
		return errs.New(errs.Unavailable, "the embeddings server redirects to another host")
	}
	return nil
}

// Model returns the name of the model.
func (c *Client) Model() string { return c.model }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
