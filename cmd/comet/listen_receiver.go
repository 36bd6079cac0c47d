package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/webhooks/signature"
)

const (
	// maxEvent is the largest request a listener reads, in bytes.
	maxEvent = 1 << 20
	// maxForwarded is how much of a forwarded request's response is returned.
	maxForwarded = 64 << 10
	// forwardTimeout limits the forwarded request; comet itself does not wait longer.
	forwardTimeout = 15 * time.Second
	// maxSeen is how many events the listener remembers to recognise redeliveries.
	maxSeen = 100_000
)

// received is an event as it was received.
type received struct {
	ID        string          `json:"id"` // the webhook-id header
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Forwarded *forwarded      `json:"forwarded,omitempty"`
}

// forwarded is the result of forwarding an event.
type forwarded struct {
	Status     int    `json:"status,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Error      string `json:"error,omitempty"`

	header http.Header
	body   []byte
}

// receiver handles comet's requests.
type receiver struct {
	verifier *signature.Verifier
	forward  *forwarder // nil forwards nothing
	printer  *printer
	failed   chan error // the first fatal error

	started atomic.Bool // the first test is over
	seen    *lru.Cache[string, struct{}]
}

func newReceiver(verifier *signature.Verifier, forward *forwarder, p *printer) *receiver {
	seen, err := lru.New[string, struct{}](maxSeen)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &receiver{verifier: verifier, forward: forward, printer: p, failed: make(chan error, 1), seen: seen}
}

// fail ends the listener.
func (r *receiver) fail(err error) {
	select {
	case r.failed <- err:
	default: // there is an error already
	}
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
		r.printer.printRejected(req.RemoteAddr, err)
		http.Error(w, "the signature does not match", http.StatusUnauthorized)
		return
	}
	event := received{ID: req.Header.Get(signature.HeaderID)}
	if err := json.Unmarshal(body, &event); err != nil {
		r.printer.printRejected(req.RemoteAddr, err)
		http.Error(w, "the body is not an event", http.StatusBadRequest)
		return
	}
	event.ID = req.Header.Get(signature.HeaderID)
	if r.isHandled(event) {
		w.WriteHeader(http.StatusOK)
		return
	}
	r.handleEvent(w, req, event, body)
}

// isHandled reports whether the event needs no handling: it was handled before, or it is the
// listener's own test event.
func (r *receiver) isHandled(event received) bool {
	return r.seen.Contains(event.ID) || !r.started.Load() && event.Type == "webhook.test"
}

// handleEvent forwards an event if there is a forwarder, prints it and responds. An event that the other
// server rejected is not remembered, so that its redelivery is forwarded again.
func (r *receiver) handleEvent(w http.ResponseWriter, req *http.Request, event received, body []byte) {
	status := http.StatusOK
	if r.forward != nil {
		event.Forwarded = r.forward.forward(req.Context(), req.Header, body)
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
		w.WriteHeader(http.StatusOK) // the same event arrived twice at the same time
		return
	}
	if err := r.printer.printEvent(event); err != nil {
		r.fail(err)
	}
	w.WriteHeader(status)
	if event.Forwarded != nil && status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = w.Write(event.Forwarded.body)
	}
}

// remember records an event that was handled; it reports whether it is new.
func (r *receiver) remember(id string) bool {
	known, _ := r.seen.ContainsOrAdd(id, struct{}{})
	return !known
}

// forwarder forwards requests to another server.
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
	transport.DisableCompression = true // the response is returned unchanged
	return &forwarder{u.String(), &http.Client{
		Timeout: forwardTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// forward sends the same request to the other server.
func (f *forwarder) forward(ctx context.Context, header http.Header, body []byte) *forwarded {
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
		req.Header.Set("User-Agent", "") // removes Go's default
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

// hopByHop are the headers of a single connection (RFC 9110 §7.6.1).
func hopByHop() []string {
	return []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
}

// printer prints events, each in one write.
type printer struct {
	mu       sync.Mutex
	out      output
	messages io.Writer
}

func newPrinter(out output, notes io.Writer) *printer { return &printer{out: out, messages: notes} }

// printRejected prints a note about an invalid request.
func (p *printer) printRejected(from string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	printLine(p.messages, "rejected a request from %s: %s", from, detailOf(err))
}

// detailOf is the text of an error for a person.
func detailOf(err error) string {
	if known := (*errs.Error)(nil); errors.As(err, &known) {
		return known.Detail
	}
	return err.Error()
}

// printEvent prints one event; with -o json as one line.
func (p *printer) printEvent(e received) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return err
	}
	return p.printDocument(line.Bytes(), func() error {
		_, err := io.WriteString(p.out.w, e.forPeople())
		return err
	})
}

// printDocument prints a JSON document of one line in the format of -o; people prints it for
// people.
func (p *printer) printDocument(line []byte, people func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.out.format {
	case formatJSON:
		_, err := fmt.Fprintf(p.out.w, "%s\n", bytes.TrimSpace(line))
		return err
	case formatYAML:
		if _, err := io.WriteString(p.out.w, "---\n"); err != nil {
			return err
		}
		return p.out.yaml(line)
	}
	return people()
}

// forPeople is an event for people: its time, type, subject and forwarding result, then its data
// on a second line.
func (e received) forPeople() string {
	var subject struct {
		ID      string `json:"id"`
		AgentID string `json:"agent_id"`
	}
	_ = json.Unmarshal(e.Data, &subject) // without a subject it is empty
	line := e.Timestamp + "  " + e.Type + "  " + cmp.Or(subject.AgentID, subject.ID)
	if f := e.Forwarded; f != nil {
		result := f.Error
		if result == "" {
			result = strings.TrimSpace(fmt.Sprintf("%d %s", f.Status, http.StatusText(f.Status)))
		}
		line += fmt.Sprintf("  -> %s in %d ms", result, f.DurationMS)
	}
	if line = printable(line) + "\n"; len(e.Data) == 0 {
		return line
	}
	return line + "  " + printable(string(e.Data)) + "\n"
}
