package transport_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// onQueue runs one case on a fresh house with a message bus.
func onQueue(t *testing.T, name string, opts *transport.Options, fn func(t *testing.T, h *house, b *bus.Bus)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			ground, motion := newBed(t, db), newMotion(t)
			fn(t, open(t, ground, opts, func(c *transport.Core) { c.Bus = motion }), motion)
		})
	})
}

func newMotion(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(nil)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return b
}

// guest is an agent on the bus.
type guest struct {
	t     *testing.T
	bus   *bus.Bus
	id    string
	token string
	inbox chan note
}

func visit(t *testing.T, b *bus.Bus, id, token string) *guest {
	t.Helper()
	g := &guest{t, b, id, token, make(chan note, 1000)}
	_, err := b.Subscribe(bus.AgentInbox(id), func(m bus.Message) {
		var n note
		_ = json.Unmarshal(m.Data, &n)
		g.inbox <- n
	})
	require.NoError(t, err)
	require.NoError(t, b.Flush(t.Context()))
	return g
}

// ask publishes a message and returns the answer. Whoever takes it may have to begin.
func (g *guest) ask(n note) (s said) {
	g.t.Helper()
	n.Token = g.token
	body, err := json.Marshal(n)
	require.NoError(g.t, err)
	require.Eventually(g.t, func() bool {
		m, err := g.bus.Request(context.Background(), bus.AgentOutbox(g.id), body)
		return err == nil && json.Unmarshal(m.Data, &s) == nil
	}, time.Minute, time.Millisecond)
	return s
}

func (g *guest) arrive(t *testing.T, h *house) {
	t.Helper()
	require.Equal(t, []string{"h1"}, g.ask(note{ID: "h1", Do: "present"}).Ack)
	h.worker(t, g.id, func(w models.Worker) bool { return online(w) && w.Transport == transport.Queue })
}

// hear returns the next message.
func (g *guest) hear() note {
	g.t.Helper()
	select {
	case n := <-g.inbox:
		return n
	case <-time.After(time.Minute):
		g.t.Fatal("nothing came")
		return note{}
	}
}

func TestTheQueue(t *testing.T) {
	t.Parallel()
	onQueue(t, "takes messages with their token, which nobody sees", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		require.Equal(t, []string{"m1"}, g.ask(note{ID: "m1"}).Ack)
		require.Equal(t, "m2", g.ask(note{ID: "m2", Do: "reply"}).Reply)
		require.Equal(t, "invalid-request", g.ask(note{ID: "m3", Do: "refuse"}).Refused)
		heard := h.speech.utterances()
		require.JSONEq(t, `{"id":"m1"}`, heard[0].raw)
		require.Equal(t, "ada", *heard[0].from.AgentID)
		h.metricIs(t, 3, "comet_link_messages_total", "in", "nats")
		require.Empty(t, h.CachedWorker("ada").ConnectionID, "it has not said that it takes work")
	})
	onQueue(t, "takes nothing with a wrong token, or with another agent's", nil, func(t *testing.T, h *house, b *bus.Bus) {
		h.agent(t, "ada")
		for _, token := range []string{"", "nonsense", h.agent(t, "eve"), h.token(t, "", models.ScopeAdmin).Secret} {
			g := visit(t, b, "ada", token)
			require.Equal(t, "unauthenticated", g.ask(note{ID: "m1"}).Refused)
		}
		require.Empty(t, h.speech.utterances())
		h.metricIs(t, 4, "comet_link_authentication_failures_total")
	})
	onQueue(t, "hands over to an agent that has said that it is there", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		h.tell(t, "ada", 1)
		g.arrive(t, h)
		first := g.hear()
		task := h.submit(t, "ada")
		second := g.hear()
		require.Equal(t, []string{"cancel", "assign"}, []string{first.Do, second.Do})
		require.Equal(t, task.ID, h.inboxOf(t, "ada", 2)[0].TaskID)
		ack, err := json.Marshal(map[string]any{"ack": []string{first.ID, second.ID}, "auth_token": g.token})
		require.NoError(t, err)
		require.NoError(t, b.Publish(bus.AgentOutbox("ada"), ack))
		h.inboxOf(t, "ada", 0)
	})
	onQueue(t, "acknowledges nothing with a wrong token", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		h.tell(t, "ada", 1)
		id := h.inboxOf(t, "ada", 1)[0].ID
		m, err := b.Request(t.Context(), bus.AgentOutbox(g.id), []byte(`{"ack":["`+id+`"],"auth_token":"`+h.agent(t, "eve")+`"}`))
		require.NoError(t, err)
		require.Contains(t, string(m.Data), "unauthenticated")
		h.inboxOf(t, "ada", 1)
	})
	onQueue(t, "publishes again what is not acknowledged", &transport.Options{Republish: 50 * time.Millisecond}, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		h.tell(t, "ada", 1)
		first := g.hear()
		h.db.Clock.Advance(50 * time.Millisecond)
		require.Equal(t, first, g.hear())
		h.metricIs(t, 1, "comet_link_redeliveries_total", "nats")
	})
	onQueue(t, "has what is long cut by the dialect", nil, func(t *testing.T, h *house, b *bus.Bus) {
		h.speech.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			require.Equal(t, 1<<20, limit, "what the bus takes")
			return [][]byte{[]byte(`{"id":"1"}`), []byte(`{"id":"2"}`)}, nil
		}
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		h.tell(t, "ada", 1)
		require.Equal(t, []string{"1", "2"}, []string{g.hear().ID, g.hear().ID})
	})
	onQueue(t, "lets an agent go that says nothing any more, and come again", &transport.Options{Heartbeat: 50 * time.Millisecond}, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		h.db.Clock.Advance(time.Minute)
		h.worker(t, "ada", offline)
		h.metricIs(t, 0, "comet_link_lines", "nats")
		g.arrive(t, h)
		h.tell(t, "ada", 1)
		require.Equal(t, "cancel", g.hear().Do)
	})
	onQueue(t, "keeps one line for an agent that says often that it is there", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		line := h.CachedWorker("ada").ConnectionID
		g.ask(note{ID: "h2", Do: "present"})
		g.ask(note{ID: "m1"})
		require.Equal(t, line, h.CachedWorker("ada").ConnectionID)
		h.metricIs(t, 1, "comet_link_lines", "nats")
	})
	onQueue(t, "takes an agent over whose process is no more", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		_, err := h.Join(t.Context(), "ada", joining(transport.Queue, "a line of another process"))
		require.NoError(t, err)
		h.tell(t, "ada", 1)
		g.ask(note{ID: "h1", Do: "present"})
		g.ask(note{ID: "m1"})
		require.Equal(t, "a line of another process", h.CachedWorker("ada").ConnectionID, "it may be there")
		h.db.Clock.Advance(21 * time.Second)
		g.ask(note{ID: "h2", Do: "present"})
		require.Equal(t, "cancel", g.hear().Do)
	})
	onQueue(t, "goes when the server does", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		require.NoError(t, h.links.Stop(t.Context()))
		h.worker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID == "" })

		next := open(t, bed{h.db, h.Orchestrator}, nil, func(c *transport.Core) { c.Bus = b })
		h.tell(t, "ada", 1)
		require.Equal(t, []string{"h2"}, g.ask(note{ID: "h2", Do: "present"}).Ack)
		require.Equal(t, "cancel", g.hear().Do, "the next process has it as soon as it is heard")
		next.metricIs(t, 1, "comet_link_lines", "nats")
	})
	onQueue(t, "keeps a message that is too long for the bus, and what is behind it comes", nil, func(t *testing.T, h *house, b *bus.Bus) {
		long := ""
		h.speech.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			if long == "" {
				long = m.ID
			}
			if m.ID == long {
				return [][]byte{[]byte(`{"id":"a part"}`), []byte(strings.Repeat("x", limit+1))}, nil
			}
			return [][]byte{[]byte(`{"id":"` + m.ID + `"}`)}, nil
		}
		g := visit(t, b, "ada", h.agent(t, "ada"))
		g.arrive(t, h)
		h.tell(t, "ada", 2)
		all := h.inboxOf(t, "ada", 2)
		require.Equal(t, all[1].ID, g.hear().ID, "and no part of the one before")
		h.metricIs(t, 1, "comet_link_messages_total", "out", "nats")
	})
	onQueue(t, "refuses what it has no room for, and hears the others", nil, func(t *testing.T, h *house, b *bus.Bus) {
		ada, eve := visit(t, b, "ada", h.agent(t, "ada")), visit(t, b, "eve", h.agent(t, "eve"))
		others := []*guest{eve}
		for _, id := range []string{"bob", "cy", "dee", "fay", "gil"} { // not all share ada's lane
			others = append(others, visit(t, b, id, h.agent(t, id)))
		}
		body, err := json.Marshal(note{ID: "m", Do: "slow", Token: ada.token, Text: strings.Repeat("x", 900<<10)})
		require.NoError(t, err)
		for range 12 {
			require.NoError(t, b.Publish(bus.AgentOutbox("ada"), body))
		}
		require.Equal(t, "unavailable", ada.ask(note{ID: "m1", Text: strings.Repeat("x", 900<<10)}).Refused)
		heard := make(chan string, len(others))
		for _, one := range others {
			go func() {
				m, err := b.Request(context.Background(), bus.AgentOutbox(one.id), []byte(`{"id":"m2","token":"`+one.token+`"}`))
				if err == nil {
					heard <- string(m.Data)
				}
			}()
		}
		require.Contains(t, <-heard, "m2")
		close(h.speech.hold)
	})
}
