// Package forward forwards a received webhook request to another server.
package forward

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

const (
	// maxResponse is how much of the response is returned, in bytes.
	maxResponse = 64 << 10
	// Timeout limits the forwarded request; comet itself does not wait longer.
	Timeout = 15 * time.Second
)

// Result is the result of forwarding an event.
type Result struct {
	Status     int    `json:"status,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Error      string `json:"error,omitempty"`
}

// To sends the same request to another server and returns its response.
func To(to *url.URL, w http.ResponseWriter, req *http.Request, body []byte) *Result {
	begun, out := time.Now(), &Result{}
	ctx, cancel := context.WithTimeout(req.Context(), Timeout)
	defer cancel()
	req = req.WithContext(ctx)
	req.Body = io.NopCloser(bytes.NewReader(body))
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL, r.Out.Host = to, ""
			if to.User != nil {
				password, _ := to.User.Password()
				r.Out.SetBasicAuth(to.User.Username(), password)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
			out.Status, resp.Body = resp.StatusCode, io.NopCloser(bytes.NewReader(text))
			resp.Header.Del("Content-Length") // of the whole body
			return err
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			out.Status, out.Error = 0, err.Error()
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, req)
	out.DurationMS = time.Since(begun).Milliseconds()
	return out
}
