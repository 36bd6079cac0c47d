package transport_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// runNATSCase runs one case on a fresh house with a message bus.
func runNATSCase(t *testing.T, name string, opts *transport.Options, fn func(t *testing.T, h *fixture, b *bus.Bus)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			ground, motion := newBackend(t, db), newBus(t)
			fn(t, openFixture(t, ground, opts, func(c *transport.Core) { c.Bus = motion }), motion)
		})
	})
}

func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(nil)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return b
}

// natsClient is an agent on the bus.
type natsClient struct {
	t     *testing.T
	bus   *bus.Bus
	id    string
	token string
	inbox chan note
}

func newNATSClient(t *testing.T, b *bus.Bus, id, token string) *natsClient {
	t.Helper()
	g := &natsClient{t, b, id, token, make(chan note, 1000)}
	_, err := b.Subscribe(bus.AgentInbox(id), func(m bus.Message) {
		var n note
		_ = json.Unmarshal(m.Data, &n)
		g.inbox <- n
	})
	require.NoError(t, err)
	require.NoError(t, b.Flush(t.Context()))
	return g
}

// request publishes a message and returns the answer. Whoever takes it may have to begin.
func (g *natsClient) request(n note) (s wsFrame) {
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

func (g *natsClient) join(t *testing.T, h *fixture) {
	t.Helper()
	require.Equal(t, []string{"h1"}, g.request(note{ID: "h1", Do: "present"}).Ack)
	h.waitForWorker(t, g.id, func(w models.Worker) bool { return online(w) && w.Transport == transport.NATS })
}

// next returns the next message.
func (g *natsClient) next() note {
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
	runNATSCase(t, "takes messages with their token, which nobody sees", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		require.Equal(t, []string{"m1"}, g.request(note{ID: "m1"}).Ack)
		require.Equal(t, "m2", g.request(note{ID: "m2", Do: "reply"}).Reply)
		require.Equal(t, "invalid-request", g.request(note{ID: "m3", Do: "refuse"}).Refused)
		heard := h.protocol.messages()
		require.JSONEq(t, `{"id":"m1"}`, heard[0].raw)
		require.Equal(t, "ada", *heard[0].from.AgentID)
		h.waitForMetric(t, 3, "comet_transport_messages_total", "in", "nats")
		require.Empty(t, h.CachedWorker("ada").ConnectionID, "it has not said that it takes work")
	})
	runNATSCase(t, "takes nothing with a wrong token, or with another agent's", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		h.agent(t, "ada")
		for _, token := range []string{"", "nonsense", h.agent(t, "eve"), h.token(t, "", models.ScopeAdmin).Secret} {
			g := newNATSClient(t, b, "ada", token)
			require.Equal(t, "unauthenticated", g.request(note{ID: "m1"}).Refused)
		}
		require.Empty(t, h.protocol.messages())
		h.waitForMetric(t, 4, "comet_transport_authentication_failures_total")
	})
	runNATSCase(t, "hands over to an agent that has said that it is there", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		h.enqueue(t, "ada", 1)
		g.join(t, h)
		first := g.next()
		task := h.submit(t, "ada")
		second := g.next()
		require.Equal(t, []string{"cancel", "assign"}, []string{first.Do, second.Do})
		require.Equal(t, task.ID, h.waitForInbox(t, "ada", 2)[0].TaskID)
		ack, err := json.Marshal(map[string]any{"ack": []string{first.ID, second.ID}, "auth_token": g.token})
		require.NoError(t, err)
		require.NoError(t, b.Publish(bus.AgentOutbox("ada"), ack))
		h.waitForInbox(t, "ada", 0)
	})
	runNATSCase(t, "acknowledges nothing with a wrong token", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		h.enqueue(t, "ada", 1)
		id := h.waitForInbox(t, "ada", 1)[0].ID
		m, err := b.Request(t.Context(), bus.AgentOutbox(g.id), []byte(`{"ack":["`+id+`"],"auth_token":"`+h.agent(t, "eve")+`"}`))
		require.NoError(t, err)
		require.Contains(t, string(m.Data), "unauthenticated")
		h.waitForInbox(t, "ada", 1)
	})
	runNATSCase(t, "publishes again what is not acknowledged", &transport.Options{Republish: 50 * time.Millisecond}, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		h.enqueue(t, "ada", 1)
		first := g.next()
		h.db.Clock.Advance(50 * time.Millisecond)
		require.Equal(t, first, g.next())
		h.waitForMetric(t, 1, "comet_transport_redeliveries_total", "nats")
	})
	runNATSCase(t, "has what is long cut by the dialect", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		h.protocol.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			require.Equal(t, 1<<20, limit, "what the bus takes")
			return [][]byte{[]byte(`{"id":"1"}`), []byte(`{"id":"2"}`)}, nil
		}
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		h.enqueue(t, "ada", 1)
		require.Equal(t, []string{"1", "2"}, []string{g.next().ID, g.next().ID})
	})
	runNATSCase(t, "lets an agent go that says nothing any more, and come again", &transport.Options{Heartbeat: 50 * time.Millisecond}, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		h.db.Clock.Advance(time.Minute)
		h.waitForWorker(t, "ada", offline)
		h.waitForMetric(t, 0, "comet_transport_connections", "nats")
		g.join(t, h)
		h.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", g.next().Do)
	})
	runNATSCase(t, "keeps one line for an agent that says often that it is there", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		line := h.CachedWorker("ada").ConnectionID
		g.request(note{ID: "h2", Do: "present"})
		g.request(note{ID: "m1"})
		require.Equal(t, line, h.CachedWorker("ada").ConnectionID)
		h.waitForMetric(t, 1, "comet_transport_connections", "nats")
	})
	runNATSCase(t, "takes an agent over whose process is no more", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		_, err := h.Join(t.Context(), "ada", joinRequest(transport.NATS, "a line of another process"))
		require.NoError(t, err)
		h.enqueue(t, "ada", 1)
		g.request(note{ID: "h1", Do: "present"})
		g.request(note{ID: "m1"})
		require.Equal(t, "a line of another process", h.CachedWorker("ada").ConnectionID, "it may be there")
		h.db.Clock.Advance(21 * time.Second)
		g.request(note{ID: "h2", Do: "present"})
		require.Equal(t, "cancel", g.next().Do)
	})
	runNATSCase(t, "goes when the server does", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		require.NoError(t, h.transports.Stop(t.Context()))
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID == "" })

		next := openFixture(t, backend{h.db, h.Orchestrator}, nil, func(c *transport.Core) { c.Bus = b })
		h.enqueue(t, "ada", 1)
		require.Equal(t, []string{"h2"}, g.request(note{ID: "h2", Do: "present"}).Ack)
		require.Equal(t, "cancel", g.next().Do, "the next process has it as soon as it is heard")
		next.waitForMetric(t, 1, "comet_transport_connections", "nats")
	})
	runNATSCase(t, "keeps a message that is too long for the bus, and what is behind it comes", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		long := ""
		h.protocol.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			if long == "" {
				long = m.ID
			}
			if m.ID == long {
				return [][]byte{[]byte(`{"id":"a part"}`), []byte(strings.Repeat("x", limit+1))}, nil
			}
			return [][]byte{[]byte(`{"id":"` + m.ID + `"}`)}, nil
		}
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		g.join(t, h)
		h.enqueue(t, "ada", 2)
		all := h.waitForInbox(t, "ada", 2)
		require.Equal(t, all[1].ID, g.next().ID, "and no part of the one before")
		h.waitForMetric(t, 1, "comet_transport_messages_total", "out", "nats")
	})
	runNATSCase(t, "refuses what it has no room for, and hears the others", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		ada, eve := newNATSClient(t, b, "ada", h.agent(t, "ada")), newNATSClient(t, b, "eve", h.agent(t, "eve"))
		others := []*natsClient{eve}
		for _, id := range []string{"bob", "cy", "dee", "fay", "gil"} { // not all share ada's lane
			others = append(others, newNATSClient(t, b, id, h.agent(t, id)))
		}
		body, err := json.Marshal(note{ID: "m", Do: "slow", Token: ada.token, Text: strings.Repeat("x", 900<<10)})
		require.NoError(t, err)
		for range 12 {
			require.NoError(t, b.Publish(bus.AgentOutbox("ada"), body))
		}
		require.Equal(t, "unavailable", ada.request(note{ID: "m1", Text: strings.Repeat("x", 900<<10)}).Refused)
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
		close(h.protocol.hold)
	})
}

// TestEnvelopesOnTheQueue is the message-queue form with the dialect it was made for.
func TestEnvelopesOnTheQueue(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		ground, motion := newBackend(t, db), newBus(t)
		h := openFixture(t, ground, nil, func(c *transport.Core) {
			c.Bus, c.Protocols = motion, []protocol.Protocol{envelope.New(c.Work, nil)}
		})
		token, inbox := h.agent(t, "ada"), make(chan map[string]any, 10)
		_, err := motion.Subscribe(bus.AgentInbox("ada"), func(m bus.Message) {
			var e map[string]any
			_ = json.Unmarshal(m.Data, &e)
			inbox <- e
		})
		require.NoError(t, err)
		say := func(kind string, payload map[string]any) (answer map[string]any) {
			t.Helper()
			body, err := json.Marshal(map[string]any{
				"protocol_version": "1.0", "message_id": uuid.NewString(), "trace_id": uuid.NewString(), "request_id": uuid.NewString(),
				"from_agent": "infra", "to_agent": "orchestrator", "timestamp": time.Now().UTC().Format(time.RFC3339), "type": kind, "payload": payload,
				"x_custom_fields": map[string]any{"auth_token": token, "other": 1},
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				m, err := motion.Request(context.Background(), bus.AgentOutbox("ada"), body)
				return err == nil && json.Unmarshal(m.Data, &answer) == nil
			}, time.Minute, time.Millisecond)
			return answer
		}
		presence := func(status string) {
			t.Helper()
			require.NotEmpty(t, say("work_status", map[string]any{"agent_id": "ada", "status": status})["ack"])
		}

		presence("busy")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && w.State == models.WorkerBusy })
		presence("online")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && online(w) })
		task := h.submit(t, "ada")
		order := <-inbox
		require.Equal(t, "work_request", order["type"])
		require.Equal(t, task.ID, order["payload"].(map[string]any)["task_id"])
		answer := say("work_result", map[string]any{
			"task_id": task.ID, "status": "success", "exit_code": 0, "output": "done",
			"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1},
		})
		require.NotEmpty(t, answer["ack"], "%v", answer)
		task, err = h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)

		presence("offline")
		h.waitForWorker(t, "ada", offline)
		presence("online")
		second := h.submit(t, "ada")
		require.Equal(t, second.ID, (<-inbox)["payload"].(map[string]any)["task_id"], "it is on the queue again")
	})
}
