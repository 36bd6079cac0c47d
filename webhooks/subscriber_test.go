package webhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/webhooks"
	"comet/webhooks/signature"
)

// subscriber is a receiver in a run together with its webhook. It verifies
// whatever it gets and remembers it.
type subscriber struct {
	*run
	name   string
	types  []models.EventType
	hook   models.Webhook
	keys   []*signature.Verifier // each has to find a signature of its own
	answer func(w http.ResponseWriter, r *http.Request, s sight)

	mu       sync.Mutex
	received map[label]int    // how many requests contained it
	took     map[label]bool   // it was answered with 2xx
	ids      map[label]string // its webhook-id
	wrong    []string         // what must not be
	// overtook names, for a fact that was first received of while an earlier one of its
	// agent was not taken, that earlier one.
	overtook map[label]label
	past     map[label]history // once it was read
}

// sight is a request as its receiver sees it.
type sight struct {
	label
	nth int // how many requests have contained it so far
}

// join starts a receiver and registers it for the types.
func (r *run) join(t *testing.T, name string, types []models.EventType, ordering models.Ordering,
	answer func(w http.ResponseWriter, r *http.Request, s sight),
) *subscriber {
	t.Helper()
	p := r.newSubscriber(name, types, answer)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.register(t, server.URL, ordering)
	return p
}

func (r *run) newSubscriber(name string, types []models.EventType, answer func(w http.ResponseWriter, r *http.Request, s sight)) *subscriber {
	p := &subscriber{
		run: r, name: name, types: types, answer: answer,
		received: map[label]int{}, took: map[label]bool{}, ids: map[label]string{}, overtook: map[label]label{},
	}
	r.receivers = append(r.receivers, p)
	return p
}

// register makes the subscriber's webhook, which signs with a secret and with a key.
func (p *subscriber) register(t *testing.T, url string, ordering models.Ordering) {
	t.Helper()
	created, err := p.Create(t.Context(), ops(), webhooks.WebhookDraft{
		URL: &url, Events: p.types, Description: p.name, Ordering: &ordering, Asymmetric: new(true),
	}, nil)
	require.NoError(t, err)
	p.hook = created.Webhook
	for _, key := range append([]string{created.Secret}, webhooks.PublicKeys(p.hook.Keys, p.db.Now())...) {
		v, err := signature.NewVerifier(key)
		require.NoError(t, err)
		p.keys = append(p.keys, v)
	}
	require.Len(t, p.keys, 2)
}

func (p *subscriber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := p.see(r)
	if err != nil {
		p.mu.Lock()
		p.wrong = append(p.wrong, err.Error())
		p.mu.Unlock()
		w.WriteHeader(http.StatusTeapot)
		return
	}
	p.answer(w, r, s)
}

// see verifies a request, compares it with what was emitted and remembers it.
func (p *subscriber) see(r *http.Request) (sight, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return sight{}, fmt.Errorf("the body breaks off: %w", err)
	}
	seconds, err := strconv.ParseInt(r.Header.Get(signature.HeaderTimestamp), 10, 64)
	if err != nil {
		return sight{}, err
	}
	if now := p.db.Now(); seconds < p.begun.Unix() || seconds > now.Unix() {
		return sight{}, fmt.Errorf("sent at %d, which is not between %s and %s", seconds, p.begun, now)
	}
	for _, v := range p.keys {
		// The clock may have been moved since it was sent; the attempts' times are compared later.
		if err := v.Verify(r.Header, body, time.Unix(seconds, 0)); err != nil {
			return sight{}, err
		}
	}
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		return sight{}, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	l, err := p.recognize(body)
	if err != nil {
		return sight{}, err
	}
	return p.remember(l, r.Header.Get(signature.HeaderID))
}

// recognize finds the fact that a body tells of; it has to be that one in every byte
// that means something.
func (p *subscriber) recognize(body []byte) (label, error) {
	var got struct {
		Type      models.EventType `json:"type"`
		Timestamp time.Time        `json:"timestamp"`
		Data      json.RawMessage  `json:"data"`
	}
	var l label
	if err := json.Unmarshal(body, &got); err != nil {
		return l, err
	}
	if err := json.Unmarshal(got.Data, &l); err != nil {
		return l, err
	}
	p.run.mu.Lock()
	want, ok := p.facts[l]
	p.run.mu.Unlock()
	if !ok || got.Type != want.kind || !got.Timestamp.Equal(want.at) || string(got.Data) != want.data {
		return l, fmt.Errorf("%s is not what was committed: %+v", body, want)
	}
	return l, nil
}

func (p *subscriber) remember(l label, id string) (sight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.ids[l]; ok && before != id {
		return sight{}, fmt.Errorf("%v came as %s and as %s", l, before, id)
	}
	p.ids[l] = id
	if p.received[l]++; p.received[l] == 1 {
		for n := range l.N {
			if earlier := (label{l.ID, n}); p.subscribed(earlier) && !p.took[earlier] {
				p.overtook[l] = earlier
			}
		}
	}
	return sight{l, p.received[l]}, nil
}

// say answers a request.
func (p *subscriber) say(w http.ResponseWriter, s sight, status int) {
	if status/100 == 2 {
		p.mu.Lock()
		p.took[s.label] = true
		p.mu.Unlock()
	}
	w.WriteHeader(status)
}

// subscribed reports whether the subscriber's webhook receives the event of a fact.
func (p *subscriber) subscribed(l label) bool {
	p.run.mu.Lock()
	f, ok := p.facts[l]
	p.run.mu.Unlock()
	if !ok || f.at.Before(p.hook.CreatedAt) {
		return false
	}
	for _, kind := range p.types {
		if kind == f.kind {
			return true
		}
	}
	return false
}

// owed returns the facts whose events the subscriber must receive.
func (p *subscriber) owed() (all []label) {
	p.run.mu.Lock()
	labels := make([]label, 0, len(p.facts))
	for l := range p.facts {
		labels = append(labels, l)
	}
	p.run.mu.Unlock()
	for _, l := range labels {
		if p.subscribed(l) {
			all = append(all, l)
		}
	}
	return all
}
