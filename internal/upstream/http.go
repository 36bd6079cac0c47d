package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	maxErrorBody = 64 << 10 // bytes of an error response
	maxRedirects = 3
	closeTimeout = 2 * time.Second // for the last requests of a session, and an endless response
	drainTimeout = 2 * time.Second // for a connection to become reusable after a response
)

// httpClient sends the requests of one session to its address. The SDK reads responses of any size
// and ends the session at an invalid one, so httpClient limits and checks responses first. It sends
// the configured headers only to the configured host.
type httpClient struct {
	*inbound
	base      *authorizedTransport
	origin    *url.URL
	headers   http.Header
	life      context.Context // ends with the session, and with it every request
	end       context.CancelFunc
	lastError atomic.Pointer[string] // status of the last error response
}

func newHTTPClient(l *resolvedServer, rules *inbound, tokens TokenSource, running *calls, onReject func()) *httpClient {
	origin, _ := url.Parse(l.URL) // resolve has checked it
	w := &httpClient{inbound: rules, origin: origin, headers: http.Header{}}
	for name, value := range l.Headers {
		w.headers.Set(name, value)
	}
	if l.Bearer != "" {
		w.headers.Set("Authorization", "Bearer "+l.Bearer)
	}
	w.life, w.end = context.WithCancel(context.Background())
	// The addresses are not restricted: the author of the upstreams file could also start a program.
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	w.base = &authorizedTransport{server: l, tokens: tokens, calls: running, onReject: onReject, Transport: &http.Transport{
		DialContext: dialer.DialContext, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64, MaxResponseHeaderBytes: 1 << 20,
	}}
	return w
}

// sdkClient returns the HTTP client for the SDK's transport.
func (w *httpClient) sdkClient() *http.Client {
	return &http.Client{Transport: w, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("it redirects too often")
		}
		if req.Method != via[0].Method {
			return http.ErrUseLastResponse // the body would be lost
		}
		return nil
	}}
}

func (w *httpClient) close() {
	w.end()
	w.base.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (w *httpClient) RoundTrip(req *http.Request) (*http.Response, error) {
	rest, _ := req.Context().Value(handoverKey{}).(*handover)
	if rest != nil {
		if resp := rest.take(req); resp != nil {
			return w.filterResponse(req, resp, rest), nil
		}
	}
	if req.URL.Scheme != w.origin.Scheme || req.URL.Host != w.origin.Host {
		closeBody(req)
		return nil, fmt.Errorf("it redirects to another host (%s), which is not followed", req.URL.Host)
	}
	if w.closed() {
		closeBody(req)
		// Not an error: after an error the SDK would try to open its stream again for a while.
		return &http.Response{
			StatusCode: http.StatusMethodNotAllowed, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil)), Request: req,
		}, nil
	}
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(w.life, cancel)
	release := func() { stop(); cancel() }
	out := req.Clone(ctx)
	for name, values := range w.headers {
		out.Header[name] = values
	}
	resp, err := w.base.RoundTrip(out)
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &releasingBody{ReadCloser: resp.Body, release: release}
	return w.filterResponse(req, resp, rest), nil
}

func (w *httpClient) closed() bool { return w.life.Err() != nil }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// filterResponse replaces the body by one that is limited and contains valid messages only. rest is
// the handover of a direct call, nil for none.
func (w *httpClient) filterResponse(req *http.Request, resp *http.Response, rest *handover) *http.Response {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		w.lastError.Store(new(resp.Status))
		fallthrough
	default:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	case kind == "text/event-stream":
		events, ok := resp.Body.(*eventFilter)
		if !ok {
			events = newEventFilter(resp.Body, w.inbound)
		}
		events.calls, events.of = rest, callOf(req.Context())
		resp.Body = events
	case kind == "application/json" && req.Method == http.MethodPost:
		w.readSingle(req, resp, rest)
	}
	return resp
}

// readSingle reads a response that is one message and replaces an invalid one by an error response.
func (w *httpClient) readSingle(req *http.Request, resp *http.Response, rest *handover) {
	if req.Header.Get("Mcp-Method") == "subscriptions/listen" {
		limitListen(resp)
	}
	data, problem := w.readBody(resp)
	if problem == nil {
		msg, err := jsonrpc.DecodeMessage(data)
		_, isResponse := msg.(*jsonrpc.Response)
		switch {
		case err != nil && len(bytes.TrimSpace(data)) > 0:
			w.invalid.add(data)
			problem = &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the response is not a message of the protocol"}
		case err == nil && !isResponse:
			problem = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the response is another message of the protocol"}
		case err == nil && rest.rename(msg):
			data, _ = jsonrpc.EncodeMessage(msg) // it has just been decoded
		}
	}
	if problem != nil {
		data = nil
		if id, err := requestID(req); err == nil {
			data = errorResponse(id, problem)
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
}

// limitListen limits the response to subscriptions/listen to its first message and to closeTimeout: some
// servers respond with an endless application/json instead of a stream.
func limitListen(resp *http.Response) {
	late := time.AfterFunc(closeTimeout, func() { _ = resp.Body.Close() })
	defer late.Stop()
	first := json.RawMessage("null") // no message
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxErrorBody)).Decode(&first)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(first))
}

// readBody reads a response that is one message, within the limit, and closes it.
func (w *httpClient) readBody(resp *http.Response) ([]byte, *jsonrpc.Error) {
	buf := bytes.NewBuffer(make([]byte, 0, max(min(resp.ContentLength, int64(w.limit)), 0)+bytes.MinRead))
	_, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(w.limit)+1))
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return nil, &jsonrpc.Error{Code: codeRejected, Message: "the response is incomplete"}
	case buf.Len() > w.limit:
		return nil, tooLarge(w.limit)
	}
	return buf.Bytes(), nil
}

func requestID(req *http.Request) (jsonrpc.ID, error) {
	var asked struct {
		ID any `json:"id"`
	}
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			_ = json.NewDecoder(body).Decode(&asked)
		}
	}
	return jsonrpc.MakeID(asked.ID)
}

// releasingBody calls release when the body is closed.
type releasingBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r *releasingBody) Close() error {
	err := r.ReadCloser.Close()
	r.release()
	return err
}
