package transport_test

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// pubsubFixture is a server with publish/subscribe. Its protocol renders a publication as a note with its type and the
// number of the delivery.
type pubsubFixture struct {
	*fixture
	*pubsub.PubSub
}

// runPubSubCase runs one case on a new fixture for each kind of database.
func runPubSubCase(t *testing.T, name string, fn func(t *testing.T, f pubsubFixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			var work *testkit.Work
			b := newBus(t)
			feed := events.NewFeed(db.Store, nil)
			relay := events.NewRelay(db.Store, feed, &events.Options{Poll: 20 * time.Millisecond})
			require.NoError(t, relay.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
			p := pubsub.New(db.Store, &pubsub.Options{Feed: feed, Events: map[models.EventType]models.Scope{events.TaskCreated: models.ScopeTasksRead}, Bus: b, Wake: func(ids []string) {
				for _, id := range ids {
					work.OnWake(orchestrator.WakeInbox, id)
				}
			}, Protocols: []string{"notes"}})
			work = testkit.StartWork(t, db, orchestrator.Options{}, func(r *jobs.Runner) { p.RegisterJobs(r) })
			f := openFixture(t, work, nil, func(c *transport.Core) { c.Bus, c.PubSub = b, p })
			f.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
				if m.Publication == nil {
					return nil, nil
				}
				raw, err := json.Marshal(note{ID: m.ID, Do: m.Publication.Type, Text: strconv.Itoa(m.Attempt)})
				return [][]byte{raw}, err
			}
			require.NoError(t, b.Flush(t.Context()))
			fn(t, pubsubFixture{f, p})
		})
	})
}

// publish publishes an event to an agent and returns its id.
func (f pubsubFixture) publish(t *testing.T, d pubsub.Draft) string {
	t.Helper()
	d.Type, d.Payload = "order.paid", []byte(`{"order":81}`)
	out, err := f.Publish(t.Context(), testkit.Admin(), d)
	require.NoError(t, err)
	require.Equal(t, 1, out.Subscribers)
	return out.ID
}

// requireDead requires that an agent has one dead letter.
func (f pubsubFixture) requireDead(t *testing.T, agentID, id, reason string, attempts int) {
	t.Helper()
	dead, err := f.DeadLetters(t.Context(), testkit.Admin(), pubsub.DeadQuery{AgentID: agentID, Limit: 10})
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, []any{id, reason, attempts}, []any{dead[0].PublicationID, dead[0].Reason, dead[0].Attempts})
}

func (f pubsubFixture) acknowledge(t *testing.T, token, id string) {
	t.Helper()
	require.JSONEq(t, `{"acknowledged":1}`, f.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+id+`"]}`).body)
}

func TestPublications(t *testing.T) {
	t.Parallel()
	runPubSubCase(t, "are delivered on the schedule of the sender until the last attempt has failed", func(t *testing.T, f pubsubFixture) {
		token := f.agent(t, "ada")
		id := f.publish(t, pubsub.Draft{To: "ada", MaxAttempts: 3, InitialInterval: time.Second, Coefficient: 3})
		for n, wait := range []time.Duration{time.Second, 3 * time.Second, 9 * time.Second} {
			require.Equal(t, []note{{ID: id, Do: "order.paid", Text: strconv.Itoa(n + 1)}}, f.poll(t, token, ""), "with the same id")
			require.Empty(t, f.poll(t, token, ""))
			f.DB.Clock.Advance(wait - time.Microsecond)
			require.Empty(t, f.poll(t, token, ""))
			f.WaitForInbox(t, "ada", 1)
			f.DB.Clock.Advance(time.Microsecond)
		}
		require.Empty(t, f.poll(t, token, ""))
		f.requireDead(t, "ada", id, pubsub.Unacknowledged, 3)
		f.WaitForInbox(t, "ada", 0)

		n, err := f.Redeliver(t.Context(), testkit.Admin(), pubsub.DeadQuery{Type: "order.paid"})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []note{{ID: id, Do: "order.paid", Text: "1"}}, f.poll(t, token, ""))
		f.acknowledge(t, token, id)
		status, err := f.Status(t.Context(), testkit.Admin(), id)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 0, 0}, []int{status.Subscribers, status.Delivered, status.Waiting, status.Dead})
		f.DB.Clock.Advance(time.Hour)
		require.Empty(t, f.poll(t, token, ""), "an acknowledged publication is never delivered again")
	})
	runPubSubCase(t, "continue their schedule on a new connection", func(t *testing.T, f pubsubFixture) {
		token := f.agent(t, "ada")
		c := f.connect(t, token, "")
		id := f.publish(t, pubsub.Draft{To: "ada", InitialInterval: time.Minute})
		require.Equal(t, "1", c.next().Text)
		require.Eventually(t, func() bool { return !f.WaitForInbox(t, "ada", 1)[0].NotBefore.IsZero() }, testkit.Timeout, 5*time.Millisecond)
		again := f.connect(t, token, "")
		require.Empty(t, again.barrier("b1"))
		f.DB.Clock.Advance(time.Minute)
		f.OnWake(orchestrator.WakeInbox, "ada")
		got := again.next()
		require.Equal(t, note{ID: id, Do: "order.paid", Text: "2"}, got.note)
		again.ack(id)
		f.WaitForInbox(t, "ada", 0)
	})
	runPubSubCase(t, "reach open connections at most once without a row", func(t *testing.T, f pubsubFixture) {
		ada, bob, eve := f.agent(t, "ada"), f.agent(t, "bob"), f.agent(t, "eve")
		require.NoError(t, f.Subscribe(t.Context(), testkit.Admin(), "ada", []pubsub.Pattern{{Pattern: "order.*"}}))
		require.NoError(t, f.Subscribe(t.Context(), testkit.Admin(), "eve", nil))
		over, none := f.connect(t, ada, ""), f.connect(t, eve, "")
		polled := f.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", bob, "")
		f.WaitForWorker(t, "bob", online)
		out, err := f.Publish(t.Context(), testkit.Admin(), pubsub.Draft{Type: "order.paid", Payload: []byte(`null`), Guarantee: pubsub.AtMostOnce})
		require.NoError(t, err)
		require.Equal(t, 2, out.Subscribers)
		want := note{ID: out.ID, Do: "order.paid", Text: "1"}
		require.Equal(t, want, over.next().note)
		require.Equal(t, []note{want}, inboxNotes(t, <-polled))
		require.Empty(t, none.barrier("b1"))
		f.WaitForInbox(t, "ada", 0)
		require.Empty(t, f.poll(t, bob, ""))
		_, err = f.Status(t.Context(), testkit.Admin(), out.ID)
		require.ErrorContains(t, err, "there is no publication")
	})
	runPubSubCase(t, "reach a connection whose agent is joining", func(t *testing.T, f pubsubFixture) {
		ada, bob := f.agent(t, "ada"), f.agent(t, "bob")
		require.Empty(t, f.poll(t, ada, ""))
		require.NoError(t, f.Disconnect(t.Context(), "ada", ""))
		f.waitForMetric(t, 0, "comet_transport_connections", transport.Poll)
		other := f.connect(t, bob, "")
		locked, release := make(chan bool), make(chan bool)
		end := sync.OnceFunc(func() { close(release) })
		defer end()
		var writing sync.WaitGroup
		writing.Go(func() {
			assert.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
				err := tx.Run("UPDATE workers SET agent_id = agent_id WHERE agent_id = ?", "ada")
				close(locked)
				<-release
				return err
			}))
		})
		<-locked
		polled := f.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", ada, "")
		f.waitForMetric(t, 1, "comet_transport_connections", transport.Poll)
		var want []note
		for range 2 {
			out, err := f.Publish(t.Context(), testkit.Admin(), pubsub.Draft{Type: "order.paid", Payload: []byte(`null`), Guarantee: pubsub.AtMostOnce})
			require.NoError(t, err)
			want = append(want, note{ID: out.ID, Do: "order.paid", Text: "1"})
		}
		for _, n := range want { // with the second one, the first one has been passed on to all connections
			require.Equal(t, n, other.next().note)
		}
		end()
		writing.Wait()
		require.Contains(t, inboxNotes(t, <-polled), want[0])
	})
	runPubSubCase(t, "are comet's own events where an agent subscribes to those of nova", func(t *testing.T, f pubsubFixture) {
		ada, bob := f.agent(t, "ada"), f.agent(t, "bob")
		require.NoError(t, f.Subscribe(t.Context(), testkit.Admin(), "bob", []pubsub.Pattern{{Pattern: "task.*"}}))
		over, none := f.connect(t, ada, ""), f.connect(t, bob, "")
		require.NoError(t, f.Subscribe(t.Context(), testkit.Admin(), "ada", []pubsub.Pattern{{Pattern: "task.*", From: models.RootAgentID}}))
		emit := func() (id string) {
			require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
				return tx.Events().Emit(events.TaskCreated, "t", map[string]string{"agent_id": "ada"})
			}))
			e, err := f.DB.Events(t.Context()).Newest("t", events.TaskCreated)
			require.NoError(t, err)
			return e.ID
		}
		var emitted []string
		var received []wsFrame
		for end := time.Now().Add(testkit.Timeout); len(received) == 0; { // events before the start of Follow are not passed on
			require.True(t, time.Now().Before(end), "no event was passed on")
			emitted = append(emitted, emit())
			received = over.barrier("a" + emitted[len(emitted)-1])
		}
		require.Contains(t, emitted, received[0].ID)
		require.Equal(t, note{ID: received[0].ID, Do: "task.created", Text: "1"}, received[0].note)
		for last := emit(); over.next().ID != last; { // bob is considered after ada: the events before this one have been passed on
		}
		require.Empty(t, none.barrier("b1"))
		f.WaitForInbox(t, "ada", 0)
	})
	runPubSubCase(t, "are dead letters where the protocol cannot express them", func(t *testing.T, f pubsubFixture) {
		token := f.agent(t, "ada")
		f.protocol.render = func(models.InboxMessage, int) ([][]byte, error) { return nil, nil }
		id := f.publish(t, pubsub.Draft{To: "ada"})
		require.Empty(t, f.poll(t, token, ""))
		f.requireDead(t, "ada", id, pubsub.Unsupported, 0)
		f.WaitForInbox(t, "ada", 0)
	})
	runPubSubCase(t, "do not keep later messages from an agent that acknowledges none", func(t *testing.T, f pubsubFixture) {
		token := f.agent(t, "ada")
		require.Empty(t, f.poll(t, token, ""))
		for range 120 {
			f.publish(t, pubsub.Draft{To: "ada", InitialInterval: time.Minute, MaxAttempts: 2})
		}
		first := f.poll(t, token, "?limit=1000")
		require.Len(t, first, 101, "one slot of the agent and 100 messages")
		require.Empty(t, f.poll(t, token, "?limit=1000"))
		f.DB.Clock.Advance(time.Minute)
		require.Len(t, f.poll(t, token, "?limit=1000"), 101)
		f.DB.Clock.Advance(2 * time.Minute)
		rest := f.poll(t, token, "?limit=1000") // ends the first ones, unless the recurring job has
		require.Len(t, append(rest, f.poll(t, token, "?limit=1000")...), 19)
	})
}
