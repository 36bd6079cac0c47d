package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"comet/webhooks/signature"
)

const (
	// maxEvent is the largest request a listener reads, in bytes.
	maxEvent = 1 << 20
	// maxForwarded is how much of a forwarded request's answer is passed back.
	maxForwarded = 64 << 10
	// forwardTimeout is how long the other server may take; comet itself does not
	// wait for longer.
	forwardTimeout = 15 * time.Second
	// maxSeen is how many events a listener remembers to tell repetitions by.
	maxSeen = 100_000
)

// received is one event as it came.
type received struct {
	ID        string          `json:"id"` // the webhook-id header
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Forwarded *forwarded      `json:"forwarded,omitempty"`
}

// forwarded is what became of passing an event on.
type forwarded struct {
	Status     int    `json:"status,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Error      string `json:"error,omitempty"`

	header http.Header
	body   []byte
}

// receiver answers the requests that comet makes.
type receiver struct {
	verifier *signature.Verifier
	forward  *forwarder // nil passes nothing on
	printer  *printer
	failed   chan error // the first reason not to go on

	mu    sync.Mutex
	begun bool // the test of the beginning is over
	seen  map[string]bool
	order []string // of seen, the oldest first
}

func newReceiver(verifier *signature.Verifier, forward *forwarder, p *printer) *receiver {
	return &receiver{verifier: verifier, forward: forward, printer: p, failed: make(chan error, 1), seen: map[string]bool{}}
}

// fail ends the listener.
func (r *receiver) fail(err error) {
	select {
	case r.failed <- err:
	default: // there is a reason already
	}
}

// begin ends the time in which a test is the listener's own.
func (r *receiver) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "webhooks are POST requests", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxEvent))
	if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	if err := r.verifier.Verify(req.Header, body, time.Now()); err != nil {
		r.printer.refused(req.RemoteAddr, err)
		http.Error(w, "the signature does not match", http.StatusUnauthorized)
		return
	}
	event := received{ID: req.Header.Get(signature.HeaderID)}
	if err := json.Unmarshal(body, &event); err != nil {
		r.printer.refused(req.RemoteAddr, err)
		http.Error(w, "the body is no event", http.StatusBadRequest)
		return
	}
	event.ID = req.Header.Get(signature.HeaderID)
	if r.known(event) {
		w.WriteHeader(http.StatusOK)
		return
	}
	r.take(w, req, event, body)
}

// known reports whether there is nothing left to do for the event: it was taken
// before, or it is the test that asks whether the listener can be reached.
func (r *receiver) known(event received) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[event.ID] || !r.begun && event.Type == "webhook.test"
}

// take passes an event on where somebody wants it, prints it, and answers. What
// was not taken there is not remembered, so that it is passed on when it comes again.
func (r *receiver) take(w http.ResponseWriter, req *http.Request, event received, body []byte) {
	status := http.StatusOK
	if r.forward != nil {
		event.Forwarded = r.forward.pass(req.Context(), req.Header, body)
		for _, name := range []string{"Content-Type", "Retry-After"} {
			if values := event.Forwarded.header.Values(name); len(values) > 0 {
				w.Header()[name] = values
			}
		}
		if status = event.Forwarded.Status; status == 0 {
			status = http.StatusBadGateway
		}
	}
	if status >= 200 && status < 300 && !r.remember(event.ID) {
		w.WriteHeader(http.StatusOK) // it came twice at once
		return
	}
	if err := r.printer.event(event); err != nil {
		r.fail(err)
	}
	w.WriteHeader(status)
	if event.Forwarded != nil && status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = w.Write(event.Forwarded.body)
	}
}

// remember notes an event that was taken; it reports whether it is new.
func (r *receiver) remember(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		return false
	}
	r.seen[id] = true
	r.order = append(r.order, id)
	if len(r.order) > maxSeen {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	return true
}

// forwarder passes requests on to another server.
type forwarder struct {
	url    string
	client *http.Client
}

// newForwarder returns nil for an empty URL.
func newForwarder(address string) (*forwarder, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // forwarding is optional
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("--forward must be a URL such as http://127.0.0.1:3000/webhook")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // the answer goes back as it comes
	return &forwarder{u.String(), &http.Client{
		Timeout: forwardTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// pass makes the same request of the other server.
func (f *forwarder) pass(ctx context.Context, header http.Header, body []byte) *forwarded {
	begun, out := time.Now(), &forwarded{}
	err := f.send(ctx, header, body, out)
	if inURL := (*url.Error)(nil); errors.As(err, &inURL) {
		err = inURL.Err // without the address, which may hold a password
	}
	if err != nil {
		*out = forwarded{Error: err.Error()}
	}
	out.DurationMS = time.Since(begun).Milliseconds()
	return out
}

func (f *forwarder) send(ctx context.Context, header http.Header, body []byte, out *forwarded) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range header {
		if !slices.Contains(hopByHop(), name) {
			req.Header[name] = values
		}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "") // leaves Go's own out
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxForwarded))
	out.Status, out.header = resp.StatusCode, resp.Header
	return err
}

// hopByHop are the headers that belong to one connection (RFC 9110 §7.6.1).
func hopByHop() []string {
	return []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}
