package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/cmd/comet/forward"
	"comet/cmd/comet/viewtext"
	"comet/internal/errs"
	"comet/webhooks/signature"
)

const (
	// maxEvent is the largest request a listener reads, in bytes.
	maxEvent = 1 << 20
	// maxSeen is how many events the listener remembers to recognise redeliveries.
	maxSeen = 100_000
)

// received is an event as it was received.
type received struct {
	ID        string          `json:"id"` // the webhook-id header
	Type      string          `json:"type"`
	Timestamp string          `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Forwarded *forward.Result `json:"forwarded,omitempty"`
}

// receiver handles comet's requests.
type receiver struct {
	verifier *signature.Verifier
	forward  *url.URL // nil forwards nothing
	printer  *printer
	failed   chan error // the first fatal error

	started atomic.Bool // the first test is over
	seen    *lru.Cache[string, struct{}]
}

func newReceiver(verifier *signature.Verifier, forward *url.URL, p *printer) *receiver {
	seen, _ := lru.New[string, struct{}](maxSeen) // fails only for a size below 1
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
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
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
	isOwnTest := !r.started.Load() && event.Type == "webhook.test"
	if !isOwnTest && !r.seen.Contains(event.ID) {
		r.handleEvent(w, req, event, body)
	}
}

// handleEvent forwards an event, if that is wanted, and prints it. An event that the other server
// rejected is not remembered, so that its redelivery is forwarded again.
func (r *receiver) handleEvent(w http.ResponseWriter, req *http.Request, event received, body []byte) {
	accepted := true
	if r.forward != nil {
		event.Forwarded = forward.To(r.forward, w, req, body)
		accepted = event.Forwarded.Status >= 200 && event.Forwarded.Status < 300
	}
	if accepted && !r.remember(event.ID) {
		return // the same event arrived twice at the same time
	}
	if err := r.printer.printEvent(event); err != nil {
		r.fail(err)
	}
}

// remember records an event that was handled; it reports whether it is new.
func (r *receiver) remember(id string) bool {
	known, _ := r.seen.ContainsOrAdd(id, struct{}{})
	return !known
}

// parseForward reads the URL that events are forwarded to, nil for an empty one.
func parseForward(address string) (*url.URL, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // forwarding is optional
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usagef("--forward must be a URL such as http://127.0.0.1:3000/webhook")
	}
	return u, nil
}

// printer prints events, each in one write.
type printer struct {
	mu       sync.Mutex
	out      output
	messages io.Writer
}

// printRejected prints a note about an invalid request.
func (p *printer) printRejected(from string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	printLine(p.messages, "rejected a request from %s: %s", from, detailOf(err))
}

// detailOf is the text of an error for a person.
func detailOf(err error) string {
	if known, ok := errors.AsType[*errs.Error](err); ok {
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

// printDocument prints a one-line JSON document in the format of -o; people prints the table
// format.
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
		return viewtext.YAML(p.out.w, line)
	}
	return people()
}

// forPeople formats an event for people: its time, type, subject and forwarding result, then its
// data on a second line.
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
