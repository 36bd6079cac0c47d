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

// runNATSCase runs one case on a new fixture with a message bus.
func runNATSCase(t *testing.T, name string, opts *transport.Options, fn func(t *testing.T, f *fixture, b *bus.Bus)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			core, b := startWork(t, db), newBus(t)
			fn(t, openFixture(t, core, opts, func(c *transport.Core) { c.Bus = b }), b)
		})
	})
}

func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(&bus.Options{Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return b
}

// natsClient is an agent on the message bus.
type natsClient struct {
	t     *testing.T
	bus   *bus.Bus
	id    string
	token string
	inbox chan note
}

func newNATSClient(t *testing.T, b *bus.Bus, id, token string) *natsClient {
	t.Helper()
	c := &natsClient{t, b, id, token, make(chan note, 1000)}
	_, err := b.Subscribe(bus.AgentInboxes.Of(id), func(m bus.Message) {
		var n note
		_ = json.Unmarshal(m.Data, &n)
		c.inbox <- n
	})
	require.NoError(t, err)
	require.NoError(t, b.Flush(t.Context()))
	return c
}

// request publishes a message and returns the reply. It retries until the subscription is active.
func (c *natsClient) request(n note) (s wsFrame) {
	c.t.Helper()
	n.Token = c.token
	body, err := json.Marshal(n)
	require.NoError(c.t, err)
	require.Eventually(c.t, func() bool {
		reply, err := requestOver(c.bus, c.id, body)
		return err == nil && json.Unmarshal(reply, &s) == nil
	}, time.Minute, 5*time.Millisecond)
	return s
}

func (c *natsClient) join(t *testing.T, f *fixture) {
	t.Helper()
	require.Equal(t, []string{"h1"}, c.request(note{ID: "h1", Do: "present"}).Ack)
	f.WaitForWorker(t, c.id, func(w models.Worker) bool { return online(w) && w.Transport == transport.NATS })
}

// next returns the next message.
func (c *natsClient) next() note {
	c.t.Helper()
	select {
	case n := <-c.inbox:
		return n
	case <-time.After(time.Minute):
		c.t.Fatal("nothing came")
		return note{}
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	runNATSCase(t, "removes the token before passing a message to the protocol", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		require.Equal(t, []string{"m1"}, c.request(note{ID: "m1"}).Ack)
		require.Equal(t, "m2", c.request(note{ID: "m2", Do: "reply"}).Reply)
		require.Equal(t, "invalid-request", c.request(note{ID: "m3", Do: "refuse"}).Refused)
		received := f.protocol.messages()
		require.JSONEq(t, `{"id":"m1"}`, received[0].raw)
		require.Equal(t, "ada", *received[0].from.AgentID)
		f.waitForMetric(t, 3, "comet_transport_messages_total", "in", "nats")
		require.Empty(t, f.CachedWorker("ada").ConnectionID, "it has not joined")
	})
	runNATSCase(t, "rejects an invalid token and the token of another agent", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		f.agent(t, "ada")
		for _, token := range []string{"", "nonsense", f.agent(t, "eve"), f.token(t, "", models.ScopeAdmin).Secret} {
			c := newNATSClient(t, b, "ada", token)
			require.Equal(t, "unauthenticated", c.request(note{ID: "m1"}).Refused)
		}
		require.Empty(t, f.protocol.messages())
		f.waitForMetric(t, 4, "comet_transport_authentication_failures_total")
	})
	runNATSCase(t, "delivers messages to an agent that has joined", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		f.enqueue(t, "ada", 1)
		c.join(t, f)
		first := c.next()
		task := f.submit(t, "ada")
		second := c.next()
		require.Equal(t, []string{"cancel", "assign"}, []string{first.Do, second.Do})
		require.Equal(t, task.ID, f.WaitForInbox(t, "ada", 2)[0].TaskID)
		ack, err := json.Marshal(map[string]any{"ack": []string{first.ID, second.ID}, "auth_token": c.token})
		require.NoError(t, err)
		require.NoError(t, b.Publish(bus.AgentOutboxes.Of("ada"), ack))
		f.WaitForInbox(t, "ada", 0)
	})
	runNATSCase(t, "ignores an acknowledgement with the token of another agent", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		f.enqueue(t, "ada", 1)
		id := f.WaitForInbox(t, "ada", 1)[0].ID
		reply, err := requestOver(b, c.id, []byte(`{"ack":["`+id+`"],"auth_token":"`+f.agent(t, "eve")+`"}`))
		require.NoError(t, err)
		require.Contains(t, string(reply), "unauthenticated")
		f.WaitForInbox(t, "ada", 1)
	})
	runNATSCase(t, "publishes unacknowledged messages again", &transport.Options{Republish: 50 * time.Millisecond}, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		f.enqueue(t, "ada", 1)
		first := c.next()
		f.DB.Clock.Advance(50 * time.Millisecond)
		require.Equal(t, first, c.next())
		f.waitForMetric(t, 1, "comet_transport_redeliveries_total", "nats")
	})
	runNATSCase(t, "lets the protocol split long messages", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		f.protocol.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			require.Equal(t, 1<<20, limit, "the limit of the bus")
			return [][]byte{[]byte(`{"id":"1"}`), []byte(`{"id":"2"}`)}, nil
		}
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		f.enqueue(t, "ada", 1)
		require.Equal(t, []string{"1", "2"}, []string{c.next().ID, c.next().ID})
	})
	runNATSCase(t, "disconnects a silent agent and lets it rejoin", &transport.Options{Heartbeat: 50 * time.Millisecond}, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		f.DB.Clock.Advance(time.Minute)
		f.WaitForWorker(t, "ada", offline)
		f.waitForMetric(t, 0, "comet_transport_connections", "nats")
		c.join(t, f)
		f.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", c.next().Do)
	})
	runNATSCase(t, "keeps one connection for repeated heartbeats", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		connectionID := f.CachedWorker("ada").ConnectionID
		c.request(note{ID: "h2", Do: "present"})
		c.request(note{ID: "m1"})
		require.Equal(t, connectionID, f.CachedWorker("ada").ConnectionID)
		f.waitForMetric(t, 1, "comet_transport_connections", "nats")
	})
	runNATSCase(t, "takes over an agent whose process is gone", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		_, err := f.Join(t.Context(), "ada", joinRequest(transport.NATS, "connection of another process"))
		require.NoError(t, err)
		f.enqueue(t, "ada", 1)
		c.request(note{ID: "h1", Do: "present"})
		c.request(note{ID: "m1"})
		require.Equal(t, "connection of another process", f.CachedWorker("ada").ConnectionID, "the other process may still serve it")
		f.DB.Clock.Advance(21 * time.Second)
		c.request(note{ID: "h2", Do: "present"})
		require.Equal(t, "cancel", c.next().Do)
	})
	runNATSCase(t, "releases the agent when the server stops", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		require.NoError(t, f.transports.Stop(t.Context()))
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID == "" })

		next := openFixture(t, f.Work, nil, func(c *transport.Core) { c.Bus = b })
		f.enqueue(t, "ada", 1)
		require.Equal(t, []string{"h2"}, c.request(note{ID: "h2", Do: "present"}).Ack)
		require.Equal(t, "cancel", c.next().Do, "the next process serves it as soon as it sends a message")
		next.waitForMetric(t, 1, "comet_transport_connections", "nats")
	})
	runNATSCase(t, "keeps a message over the limit of the bus and delivers the next one", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		long := ""
		f.protocol.render = func(m models.InboxMessage, limit int) ([][]byte, error) {
			if long == "" {
				long = m.ID
			}
			if m.ID == long {
				return [][]byte{[]byte(`{"id":"a part"}`), []byte(strings.Repeat("x", limit+1))}, nil
			}
			return [][]byte{[]byte(`{"id":"` + m.ID + `"}`)}, nil
		}
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		f.enqueue(t, "ada", 2)
		all := f.WaitForInbox(t, "ada", 2)
		require.Equal(t, all[1].ID, c.next().ID, "no part of the long message is published")
		f.waitForMetric(t, 1, "comet_transport_messages_total", "out", "nats")
	})
	runNATSCase(t, "accepts signed messages, but acknowledgements only with a token", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		c.join(t, f)
		f.enqueue(t, "ada", 1)
		id := f.WaitForInbox(t, "ada", 1)[0].ID
		reply, err := requestOver(b, "ada", []byte(`{"id":"m1","signer":"ada"}`))
		require.NoError(t, err)
		require.JSONEq(t, `{"ack":["m1"]}`, string(reply))
		reply, err = requestOver(b, "ada", []byte(`{"ack":["`+id+`"],"id":"m1","signer":"ada"}`))
		require.NoError(t, err)
		require.Contains(t, string(reply), "unauthenticated")
		f.WaitForInbox(t, "ada", 1)
	})
	runNATSCase(t, "refuses messages for a full lane while other lanes continue", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		ada, eve := newNATSClient(t, b, "ada", f.agent(t, "ada")), newNATSClient(t, b, "eve", f.agent(t, "eve"))
		others := []*natsClient{eve}
		for _, id := range []string{"bob", "cy", "dee", "fay", "gil"} { // they do not all share ada's lane
			others = append(others, newNATSClient(t, b, id, f.agent(t, id)))
		}
		require.Equal(t, []string{"m0"}, ada.request(note{ID: "m0"}).Ack, "the subscription is active")
		defer close(f.protocol.hold)
		body, err := json.Marshal(note{ID: "m", Do: "slow", Token: ada.token, Text: strings.Repeat("x", 900<<10)})
		require.NoError(t, err)
		for range 12 {
			require.NoError(t, b.Publish(bus.AgentOutboxes.Of("ada"), body))
		}
		require.Equal(t, "unavailable", ada.request(note{ID: "m1", Text: strings.Repeat("x", 900<<10)}).Refused)
		received := make(chan string, len(others))
		for _, one := range others {
			go func() {
				reply, err := requestOver(b, one.id, []byte(`{"id":"m2","token":"`+one.token+`"}`))
				if err == nil {
					received <- string(reply)
				}
			}()
		}
		require.Contains(t, <-received, "m2")
	})
}

// TestEnvelopesOverNATS runs the envelope protocol over the message bus.
func TestEnvelopesOverNATS(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		core, b := startWork(t, db), newBus(t)
		f := openFixture(t, core, nil, func(c *transport.Core) {
			c.Bus, c.Protocols = b, []protocol.Protocol{envelope.New(c.Work, nil)}
		})
		token, inbox := f.agent(t, "ada"), make(chan map[string]any, 10)
		_, err := b.Subscribe(bus.AgentInboxes.Of("ada"), func(m bus.Message) {
			var e map[string]any
			_ = json.Unmarshal(m.Data, &e)
			inbox <- e
		})
		require.NoError(t, err)
		send := func(kind string, payload map[string]any) (out map[string]any) {
			t.Helper()
			body, err := json.Marshal(map[string]any{
				"protocol_version": "1.0", "message_id": uuid.NewString(), "trace_id": uuid.NewString(), "request_id": uuid.NewString(),
				"from_agent": "infra", "to_agent": "orchestrator", "timestamp": time.Now().UTC().Format(time.RFC3339), "type": kind, "payload": payload,
				"x_custom_fields": map[string]any{"auth_token": token, "other": 1},
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				reply, err := requestOver(b, "ada", body)
				return err == nil && json.Unmarshal(reply, &out) == nil
			}, time.Minute, 5*time.Millisecond)
			return out
		}
		presence := func(status string) {
			t.Helper()
			require.NotEmpty(t, send("work_status", map[string]any{"agent_id": "ada", "status": status})["ack"])
		}

		presence("busy")
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && w.State == models.WorkerBusy })
		presence("online")
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && online(w) })
		task := f.submit(t, "ada")
		request := <-inbox
		require.Equal(t, "work_request", request["type"])
		require.Equal(t, task.ID, request["payload"].(map[string]any)["task_id"])
		reply := send("work_result", map[string]any{
			"task_id": task.ID, "status": "success", "exit_code": 0, "output": "done",
			"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1},
		})
		require.NotEmpty(t, reply["ack"], "%v", reply)
		task, err = f.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)

		presence("offline")
		f.WaitForWorker(t, "ada", offline)
		presence("online")
		second := f.submit(t, "ada")
		require.Equal(t, second.ID, (<-inbox)["payload"].(map[string]any)["task_id"], "it is connected again")
	})
}

// TestNATSJoinsAgain: an agent of an unframed protocol declares its limits when it joins, and may
// change them by joining again.
func TestNATSJoinsAgain(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := openLinesFixture(t, db, false)
		worker := natsLines(t, f)
		first := f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.Concurrency == 2 })
		require.Equal(t, "joined", worker.send("join 2"))
		require.Equal(t, first.ConnectionID, f.CachedWorker("ada").ConnectionID, "the same values change nothing")
		require.Equal(t, "joined", worker.send("join 5"))
		second := f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.Concurrency == 5 })
		require.NotEqual(t, first.ConnectionID, second.ConnectionID)
		f.waitForMetric(t, 1, "comet_transport_connections", "nats")
	})
}
