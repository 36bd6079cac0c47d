package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/loopback"
	v5 "comet/internal/wire/v5"
)

// TestPublicationsSurviveKill9 kills the server repeatedly while clients publish, repeat requests without a response, and
// two agents receive. Every publication that was accepted must reach both agents. One with a deduplication id must have one
// effect on each, although the clients send each of them twice and comet delivers again what was not acknowledged.
func TestPublicationsSurviveKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data, address := t.TempDir(), loopback.Address(t)
		p := serveAt(t, data, address, database)
		c := newClient(t, p.url(t), adminToken(t, data))
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		var receivers []*publicationReceiver
		for _, id := range []string{"ada", "bob"} {
			r := &publicationReceiver{client: newClient(t, c.URL, c.registerInfra(t, id, "receive")), effects: map[string]int{}}
			c.must(t, http.StatusOK, http.MethodPut, "/api/v1/agents/"+id+"/subscriptions", map[string]any{"patterns": []any{map[string]any{"pattern": "order.*"}}})
			receivers = append(receivers, r)
			running.Go(func() { r.run(ctx) })
		}
		publishers := &publishers{client: c, accepted: map[string]string{}}
		for n := range 4 {
			running.Go(func() { publishers.run(ctx, n) })
		}
		for range kills(t) {
			target := publishers.count.Load() + 1 + rand.Int64N(60)
			eventually(t, func() bool { return publishers.count.Load() >= target || t.Failed() }, "events are published")
			p.kill()
			p = serveAt(t, data, address, database)
			p.url(t)
		}
		publishers.stopped.Store(true)
		eventually(t, func() bool { return publishers.ended.Load() == 4 }, "the last events are published")
		for _, r := range receivers {
			eventually(t, func() bool { return r.has(publishers.all()) }, "every event has arrived")
			eventually(t, r.hasRepetitions, "an event without an acknowledgement has arrived again")
		}
		cancel()
		running.Wait()
		require.Empty(t, publishers.differentTwice, "a repetition has the id of the first publication")
		for _, r := range receivers {
			for name, effects := range r.effects {
				require.Equal(t, 1, effects, "%s has one effect", name)
			}
			require.NotEmpty(t, r.effects)
			require.Positive(t, r.repeated)
			t.Logf("%d events were accepted; %d of them had one effect; %d deliveries were repetitions", len(publishers.accepted), len(r.effects), r.repeated)
		}
		p.stop(t)
	})
}

// publishers publish events until they are stopped, every second one exactly once.
type publishers struct {
	client         *client
	stopped        atomic.Bool
	count, ended   atomic.Int64
	mu             sync.Mutex
	accepted       map[string]string // the ids by name
	differentTwice []string
}

func (p *publishers) run(ctx context.Context, k int) {
	defer p.ended.Add(1)
	for n := 0; !p.stopped.Load() && ctx.Err() == nil; n++ {
		name := fmt.Sprintf("e-%d-%d", k, n)
		body := map[string]any{"type": "order.paid", "payload": name, "retry": map[string]any{"max_attempts": 20, "initial_interval_ms": 1000}}
		if n%2 == 0 {
			body["guarantee"], body["deduplication_id"] = "exactly-once", name
			p.publish(ctx, name, body)
		}
		p.publish(ctx, name, body)
		p.count.Add(1)
	}
}

// publish repeats a request until it gets a response.
func (p *publishers) publish(ctx context.Context, name string, body map[string]any) {
	for ctx.Err() == nil {
		status, text, err := p.client.do(ctx, http.MethodPost, "/api/v1/publications", body)
		if err != nil || status != http.StatusAccepted {
			pause(ctx) // the server is down
			continue
		}
		var out struct{ ID string }
		_ = json.Unmarshal(text, &out)
		p.mu.Lock()
		defer p.mu.Unlock()
		if first := p.accepted[name]; first != "" && first != out.ID {
			p.differentTwice = append(p.differentTwice, name)
		}
		p.accepted[name] = out.ID
		return
	}
}

func (p *publishers) all() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// publicationReceiver is an agent that polls in PROTOCOL_V5. As documented, it stores the ids of publications with their
// effects.
type publicationReceiver struct {
	client   *client
	mu       sync.Mutex
	ids      map[string]bool
	effects  map[string]int // of publications with a deduplication id, by name
	repeated int
}

func (r *publicationReceiver) run(ctx context.Context) {
	for ctx.Err() == nil {
		status, text, err := r.client.do(ctx, http.MethodGet, "/api/agent/inbox?protocol=v5&wait=1", nil)
		if err != nil || status != http.StatusOK {
			pause(ctx) // the server is down
			continue
		}
		var inbox struct {
			Messages []struct {
				ID   string `json:"message_id"`
				Text string
			}
		}
		_ = json.Unmarshal(text, &inbox)
		var ids []string
		for _, message := range inbox.Messages {
			if r.receive(message.Text) > 1 && rand.IntN(4) > 0 { // it forgets to acknowledge some, and the first one
				ids = append(ids, message.ID)
			}
		}
		if len(ids) > 0 {
			_, _, _ = r.client.do(ctx, http.MethodPost, "/api/agent/inbox/ack", map[string]any{"message_ids": ids})
		}
	}
}

// receive returns the number of publications that the agent has received.
func (r *publicationReceiver) receive(text string) int {
	m, err := v5.Parse(text)
	id, known := m.Data.Get("id")
	payload, _ := m.Data.Get("payload")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || !known {
		return len(r.ids)
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	if r.ids[id] {
		r.repeated++
		return len(r.ids)
	}
	r.ids[id] = true
	var k, n int
	if _, err := fmt.Sscanf(payload, "e-%d-%d", &k, &n); err == nil && n%2 == 0 {
		r.effects[payload]++
	}
	return len(r.ids)
}

func (r *publicationReceiver) hasRepetitions() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.repeated > 0
}

// has reports whether the agent has received all accepted publications.
func (r *publicationReceiver) has(accepted map[string]string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range accepted {
		if !r.ids[id] {
			return false
		}
	}
	return true
}
