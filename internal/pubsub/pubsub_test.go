package pubsub_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	publications "comet/store/pubsub"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// fixture is publish/subscribe on a database, with jobs.
type fixture struct {
	*testkit.Work
	*pubsub.PubSub
}

func setup(t *testing.T, db *storetest.DB) fixture {
	t.Helper()
	p := pubsub.New(db.Store, &pubsub.Options{Protocols: []string{"open"}})
	return fixture{testkit.StartWork(t, db, orchestrator.Options{}, func(r *jobs.Runner) { p.RegisterJobs(r) }), p}
}

// run runs a case on a new fixture for each kind of database.
func run(t *testing.T, name string, fn func(t *testing.T, f fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, setup(t, db)) })
	})
}

// agents adds agents that subscribe to patterns; a pattern may have a sender after a space.
func (f fixture) agents(t *testing.T, prefix string, count int, patterns ...string) (ids []string) {
	t.Helper()
	require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
		for n := range count {
			ids = append(ids, fmt.Sprintf("%s-%04d", prefix, n))
			if err := tx.Agents().Insert(testkit.NewAgent(f.DB, ids[n])); err != nil {
				return err
			}
		}
		return nil
	}))
	var list []pubsub.Pattern
	for _, p := range patterns {
		pattern, from, _ := strings.Cut(p, " ")
		list = append(list, pubsub.Pattern{Pattern: pattern, From: from})
	}
	for _, id := range ids {
		if patterns != nil {
			require.NoError(t, f.Subscribe(t.Context(), testkit.Admin(), id, list))
		}
	}
	return ids
}

// join connects an agent with a protocol.
func (f fixture) join(t *testing.T, id, protocol string) {
	t.Helper()
	_, err := f.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: protocol, Transport: "none"})
	require.NoError(t, err)
}

// bound is a principal that is bound to an agent.
func bound(agentID string, scopes ...models.Scope) models.Principal {
	return models.Principal{TokenID: "token-" + agentID, Name: agentID, AgentID: &agentID, Scopes: scopes}
}

func (f fixture) publish(t *testing.T, by models.Principal, d pubsub.Draft) pubsub.Published {
	t.Helper()
	d.Type = cmp.Or(d.Type, "order.paid")
	if d.Payload == nil {
		d.Payload = []byte("{}")
	}
	out, err := f.Publish(t.Context(), by, d)
	require.NoError(t, err)
	return out
}

// waiting returns the ids of the publications that wait for an agent.
func (f fixture) waiting(t *testing.T, agentID string) (ids []string) {
	t.Helper()
	list, err := f.Messages(t.Context(), agentID, 2000)
	require.NoError(t, err)
	for _, m := range list {
		require.Equal(t, pubsub.Kind, m.Kind)
		ids = append(ids, m.ID)
	}
	return ids
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	run(t, "select types by patterns and senders", func(t *testing.T, f fixture) {
		for id, patterns := range map[string][]string{
			"exact": {"order.paid"}, "below": {"order.*"}, "all": {"*"}, "other": {"stock.*", "orders.*", "order.paid.late"}, "from": {"* shop"}, "from-other": {"* other"}, "twice": {"order.paid", "*", "* shop"},
		} {
			f.agents(t, id, 1, patterns...)
		}
		f.agents(t, "none", 1, []string{}...)
		receivers := func(typ, from string) (got []string) {
			out := f.publish(t, testkit.Admin(), pubsub.Draft{Type: typ, From: from})
			for _, id := range []string{"exact", "below", "all", "other", "from", "from-other", "twice", "none"} {
				if slices.Contains(f.waiting(t, id+"-0000"), out.ID) {
					got = append(got, id)
				}
			}
			require.Len(t, got, out.Subscribers)
			return got
		}
		require.Equal(t, []string{"exact", "below", "all", "twice"}, receivers("order.paid", "x"))
		require.Equal(t, []string{"exact", "below", "all", "from", "twice"}, receivers("order.paid", "shop"))
		require.Equal(t, []string{"below", "all", "other", "twice"}, receivers("order.paid.late", "x"))
		require.Equal(t, []string{"all", "twice"}, receivers("order", "x"))
	})
	run(t, "are everything for agents of an open protocol that have not chosen", func(t *testing.T, f fixture) {
		f.agents(t, "open", 2)
		f.agents(t, "chosen", 1, "stock.low")
		f.agents(t, "closed", 1)
		for id, protocol := range map[string]string{"open-0000": "open", "open-0001": "open", "chosen-0000": "open", "closed-0000": "envelope"} {
			f.join(t, id, protocol)
		}
		require.Equal(t, 2, f.publish(t, testkit.Admin(), pubsub.Draft{}).Subscribers)
		require.Equal(t, 1, f.publish(t, bound("open-0000"), pubsub.Draft{}).Subscribers, "an agent does not receive its own publications")
		_, chosen, err := f.Subscriptions(t.Context(), "open-0000")
		require.NoError(t, err)
		require.False(t, chosen)
		require.NoError(t, f.Subscribe(t.Context(), bound("open-0000"), "open-0000", nil))
		require.Equal(t, 1, f.publish(t, testkit.Admin(), pubsub.Draft{}).Subscribers)
		list, chosen, err := f.Subscriptions(t.Context(), "open-0000")
		require.NoError(t, err)
		require.True(t, chosen)
		require.Empty(t, list)
		require.NoError(t, f.Subscribe(t.Context(), bound("open-0000"), "open-0000", []pubsub.Pattern{{Pattern: "*", From: "open-0000"}}))
		require.Equal(t, 2, f.publish(t, bound("open-0000"), pubsub.Draft{}).Subscribers, "unless it subscribes to them")
	})
	run(t, "are refused where they are invalid or the principal may not set them", func(t *testing.T, f fixture) {
		f.agents(t, "ada", 1)
		for _, p := range []string{"", ".", "a.", "*.a", "a.*.b", "a*", "a b", "ä", "**", strings.Repeat("a", 201), "a.b.c.d.e.f.g.h.i"} {
			err := f.Subscribe(t.Context(), testkit.Admin(), "ada-0000", []pubsub.Pattern{{Pattern: p}})
			require.Equal(t, "/patterns/0/pattern", errs.From(err).Fields[0].Pointer, "%q: %v", p, err)
		}
		require.True(t, errs.Is(f.Subscribe(t.Context(), testkit.Admin(), "ada-0000", make([]pubsub.Pattern, 101)), errs.InvalidRequest))
		require.True(t, errs.Is(f.Subscribe(t.Context(), testkit.Admin(), "missing", nil), errs.NotFound))
		require.True(t, errs.Is(f.Subscribe(t.Context(), models.Principal{Scopes: []models.Scope{models.ScopeMessagesSend}}, "ada-0000", nil), errs.MissingScope))
		require.True(t, errs.Is(f.Subscribe(t.Context(), bound("orch-personnel", models.ScopeAgentsWrite), "ada-0000", nil), errs.ForeignAgent))
	})
}

// TestConcurrentSubscriptions: of lists that are set at the same time, one remains.
func TestConcurrentSubscriptions(t *testing.T) {
	t.Parallel()
	run(t, "are not merged", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1)[0]
		for range 20 {
			var setting sync.WaitGroup
			for n := range 4 {
				setting.Go(func() {
					assert.NoError(t, f.Subscribe(context.Background(), testkit.Admin(), ada, []pubsub.Pattern{{Pattern: fmt.Sprint("order.", n)}}))
				})
			}
			setting.Wait()
			list, _, err := f.Subscriptions(t.Context(), ada)
			require.NoError(t, err)
			require.Len(t, list, 1)
		}
	})
}

func TestPublish(t *testing.T) {
	t.Parallel()
	run(t, "refuses an invalid publication", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1)[0]
		for name, c := range map[string]struct {
			change func(*pubsub.Draft)
			by     models.Principal
			code   errs.Code
		}{
			"no type":             {func(d *pubsub.Draft) { d.Type = "" }, testkit.Admin(), errs.InvalidRequest},
			"type":                {func(d *pubsub.Draft) { d.Type = "a..b" }, testkit.Admin(), errs.InvalidRequest},
			"pattern":             {func(d *pubsub.Draft) { d.Type = "a.*" }, testkit.Admin(), errs.InvalidRequest},
			"no payload":          {func(d *pubsub.Draft) { d.Payload = nil }, testkit.Admin(), errs.InvalidRequest},
			"payload":             {func(d *pubsub.Draft) { d.Payload = []byte("{") }, testkit.Admin(), errs.InvalidRequest},
			"long payload":        {func(d *pubsub.Draft) { d.Payload = make([]byte, pubsub.MaxPayload+1) }, testkit.Admin(), errs.InvalidRequest},
			"guarantee":           {func(d *pubsub.Draft) { d.Guarantee = "always" }, testkit.Admin(), errs.InvalidRequest},
			"no deduplication id": {func(d *pubsub.Draft) { d.Guarantee = pubsub.ExactlyOnce }, testkit.Admin(), errs.InvalidRequest},
			"attempts":            {func(d *pubsub.Draft) { d.MaxAttempts = 21 }, testkit.Admin(), errs.InvalidRequest},
			"interval":            {func(d *pubsub.Draft) { d.InitialInterval = time.Millisecond }, testkit.Admin(), errs.InvalidRequest},
			"coefficient":         {func(d *pubsub.Draft) { d.Coefficient = 0.5 }, testkit.Admin(), errs.InvalidRequest},
			"name":                {func(d *pubsub.Draft) { d.Name = "a\x00" }, testkit.Admin(), errs.InvalidRequest},
			"receiver":            {func(d *pubsub.Draft) { d.To = "missing" }, testkit.Admin(), errs.NotFound},
			"an agent's name":     {func(d *pubsub.Draft) { d.From = ada }, testkit.Admin(), errs.ForeignAgent},
			"another name":        {func(d *pubsub.Draft) { d.From = "shop" }, bound(ada), errs.ForeignAgent},
			"scope":               {func(*pubsub.Draft) {}, models.Principal{Name: "reader", Scopes: []models.Scope{models.ScopeTasksRead}}, errs.MissingScope},
			"no bus":              {func(d *pubsub.Draft) { d.Guarantee = pubsub.AtMostOnce }, testkit.Admin(), errs.Unavailable},
		} {
			d := pubsub.Draft{Type: "order.paid", Payload: []byte("{}")}
			c.change(&d)
			_, err := f.Publish(t.Context(), c.by, d)
			require.Equal(t, c.code, errs.CodeOf(err), "%s: %v", name, err)
		}
	})
	run(t, "has one effect with an idempotency key", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		b, err := bus.New(nil)
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
		defer func() { require.NoError(t, b.Stop(context.Background())) }()
		var sent atomic.Int32
		sub, err := b.Subscribe(string(bus.Publications), func(bus.Message) { sent.Add(1) })
		require.NoError(t, err)
		defer sub.Unsubscribe()
		p := pubsub.New(f.DB.Store, &pubsub.Options{Bus: b})
		for _, guarantee := range []string{pubsub.AtMostOnce, pubsub.AtLeastOnce} {
			var first pubsub.Published
			for n := range 2 {
				key := &models.Idempotency{Principal: "t", Key: guarantee, Render: func(result any) (models.StoredResponse, error) {
					return models.StoredResponse{Status: 202, Body: []byte(result.(pubsub.Published).ID)}, nil
				}}
				out, err := p.Publish(t.Context(), testkit.Admin(), pubsub.Draft{Type: "order.paid", Payload: []byte("1"), Guarantee: guarantee, Once: key})
				require.NoError(t, err)
				if n == 0 {
					first = out
					require.Nil(t, key.Replay)
					continue
				}
				require.Equal(t, first.ID, string(key.Replay.Body))
			}
		}
		require.Len(t, f.waiting(t, ada), 1)
		_, err = p.Publish(t.Context(), testkit.Admin(), pubsub.Draft{Type: "order.paid", Payload: []byte("1"), Guarantee: pubsub.AtMostOnce})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return sent.Load() == 2 }, testkit.Timeout, 5*time.Millisecond) // the first and the last one
	})
	run(t, "commits the rows of the caller or nothing", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		failure := errors.New("no")
		_, err := f.Publish(t.Context(), testkit.Admin(), pubsub.Draft{Type: "a", Payload: []byte("1"), With: func(*store.Tx) error { return failure }})
		require.ErrorIs(t, err, failure)
		require.Empty(t, f.waiting(t, ada))
		f.publish(t, testkit.Admin(), pubsub.Draft{With: func(tx *store.Tx) error {
			_, err := tx.Inbox().MarkProcessed(ada, "mark")
			return err
		}})
		require.Len(t, f.waiting(t, ada), 1)
		marked, err := f.DB.Inbox(t.Context()).IsProcessed(ada, "mark")
		require.NoError(t, err)
		require.True(t, marked)
	})
	run(t, "reaches more subscribers than a transaction has", func(t *testing.T, f fixture) {
		ids := f.agents(t, "many", 1100, "order.*")
		out := f.publish(t, testkit.Admin(), pubsub.Draft{})
		require.Equal(t, 1100, out.Subscribers)
		var status pubsub.Status
		require.Eventually(t, func() bool {
			var err error
			status, err = f.Status(t.Context(), testkit.Admin(), out.ID)
			return err == nil && !status.Distributing
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, []int{1100, 0, 1100, 0}, []int{status.Subscribers, status.Delivered, status.Waiting, status.Dead})
		for _, id := range []string{ids[0], ids[499], ids[500], ids[1099]} {
			require.Equal(t, []string{out.ID}, f.waiting(t, id))
		}
	})
	run(t, "ends the oldest of more than 1,000 waiting publications", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		var all []string
		publish := func() {
			for range 2 {
				all = append(all, f.publish(t, testkit.Admin(), pubsub.Draft{}).ID)
			}
		}
		publish()
		require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error { // those between, without the cost of publishing
			for all = all[:2]; len(all) < pubsub.MaxWaiting; {
				id, err := uuid.NewV7()
				if err == nil {
					err = tx.Inbox().EnqueueAll([]string{ada}, models.InboxMessage{ID: id.String(), Kind: pubsub.Kind, Priority: 1})
				}
				if err != nil {
					return err
				}
				all = append(all, id.String())
			}
			return nil
		}))
		require.Equal(t, all, f.waiting(t, ada))
		publish()
		require.Equal(t, all[2:], f.waiting(t, ada))
		dead, err := f.DeadLetters(t.Context(), testkit.Admin(), pubsub.DeadQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, dead, 2)
		require.Equal(t, []string{all[0], all[1], pubsub.QueueFull}, []string{dead[0].PublicationID, dead[1].PublicationID, dead[0].Reason})
		event, err := f.DB.Events(t.Context()).Newest(all[1], publications.EventDead)
		require.NoError(t, err)
		require.JSONEq(t, `{"publication_id":"`+all[1]+`","agent_id":"ada-0000","reason":"queue_full","attempts":0}`, string(event.Data))
	})
	run(t, "ends what waits for a day", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		id := f.publish(t, testkit.Admin(), pubsub.Draft{}).ID
		f.DB.Clock.Advance(pubsub.Window + time.Minute)
		require.Eventually(t, func() bool {
			dead, err := f.DeadLetters(t.Context(), testkit.Admin(), pubsub.DeadQuery{Limit: 10})
			return err == nil && len(dead) == 1 && dead[0].PublicationID == id && dead[0].Reason == pubsub.Expired
		}, testkit.Timeout, 5*time.Millisecond)
		require.Empty(t, f.waiting(t, ada))
		f.DB.Clock.Advance(7 * 24 * time.Hour)
		require.Eventually(t, func() bool {
			_, err := f.Status(t.Context(), testkit.Admin(), id)
			return errs.Is(err, errs.NotFound)
		}, testkit.Timeout, 5*time.Millisecond)
		dead, err := f.DeadLetters(t.Context(), testkit.Admin(), pubsub.DeadQuery{Limit: 10})
		require.NoError(t, err)
		require.Empty(t, dead)
	})
}

func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	draft := func(payload, id string) pubsub.Draft {
		return pubsub.Draft{Type: "order.paid", Payload: []byte(payload), Guarantee: pubsub.ExactlyOnce, DeduplicationID: id}
	}
	run(t, "a repetition has no effect within a day", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		first := f.publish(t, testkit.Admin(), draft(`{"a":1,"b":2}`, "d1"))
		again := f.publish(t, testkit.Admin(), draft(`{"b":2, "a":1}`, "d1"))
		require.Equal(t, pubsub.Published{ID: first.ID, Subscribers: 1, Replayed: true}, again)
		_, err := f.Publish(t.Context(), testkit.Admin(), draft(`{"a":2}`, "d1"))
		require.True(t, errs.Is(err, errs.Conflict), "%v", err)
		require.Equal(t, first.ID, errs.From(err).Meta["publication_id"])
		require.False(t, f.publish(t, bound("someone-else"), draft(`{"a":2}`, "d1")).Replayed, "another sender has ids of its own")
		require.Len(t, f.waiting(t, ada), 2)
		f.DB.Clock.Advance(pubsub.Window - time.Microsecond)
		require.True(t, f.publish(t, testkit.Admin(), draft(`{"a":1,"b":2}`, "d1")).Replayed)
		f.DB.Clock.Advance(time.Microsecond)
		require.False(t, f.publish(t, testkit.Admin(), draft(`{"a":3}`, "d1")).Replayed, "the id is free again")
	})
	run(t, "concurrent repetitions on two replicas have one effect", func(t *testing.T, f fixture) {
		ada := f.agents(t, "ada", 1, "*")[0]
		other := pubsub.New(f.DB.Store, nil)
		const rounds = 20
		for round := range rounds {
			var group sync.WaitGroup
			var mu sync.Mutex
			ids, replayed := map[string]bool{}, 0
			for n := range 8 {
				group.Go(func() {
					p := []*pubsub.PubSub{f.PubSub, other}[n%2]
					out, err := p.Publish(context.Background(), testkit.Admin(), draft("1", fmt.Sprint("round-", round)))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if ids[out.ID] = true; out.Replayed {
						replayed++
					}
				})
			}
			group.Wait()
			require.Len(t, ids, 1)
			require.Equal(t, 7, replayed)
		}
		require.Len(t, f.waiting(t, ada), rounds)
	})
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	run(t, "are listed and redelivered as far as a principal may", func(t *testing.T, f fixture) {
		ids := f.agents(t, "ada", 3, "*")
		out := f.publish(t, testkit.Admin(), pubsub.Draft{})
		for _, id := range ids {
			require.NoError(t, f.End(t.Context(), models.InboxMessage{AgentID: id, ID: out.ID}, pubsub.Unsupported))
		}
		list := func(by models.Principal, q pubsub.DeadQuery) (agents []string) {
			q.Limit = 10
			dead, err := f.DeadLetters(t.Context(), by, q)
			require.NoError(t, err)
			for _, d := range dead {
				agents = append(agents, d.AgentID)
			}
			return agents
		}
		require.Equal(t, ids, list(testkit.Admin(), pubsub.DeadQuery{Type: "order.paid"}))
		require.Empty(t, list(testkit.Admin(), pubsub.DeadQuery{Type: "order"}))
		require.Equal(t, ids[1:2], list(bound(ids[1]), pubsub.DeadQuery{}))
		_, err := f.DeadLetters(t.Context(), bound(ids[1]), pubsub.DeadQuery{AgentID: ids[0], Limit: 1})
		require.True(t, errs.Is(err, errs.ForeignAgent))
		for _, c := range []struct {
			by   models.Principal
			q    pubsub.DeadQuery
			want int
		}{{bound(ids[0]), pubsub.DeadQuery{}, 1}, {testkit.Admin(), pubsub.DeadQuery{AgentID: ids[1]}, 1}, {testkit.Admin(), pubsub.DeadQuery{}, 1}, {testkit.Admin(), pubsub.DeadQuery{}, 0}} {
			n, err := f.Redeliver(t.Context(), c.by, c.q)
			require.NoError(t, err)
			require.Equal(t, c.want, n)
		}
		for _, id := range ids {
			require.Equal(t, []string{out.ID}, f.waiting(t, id))
		}
		for code, q := range map[errs.Code]pubsub.DeadQuery{errs.NotFound: {AgentID: "missing"}, errs.ForeignAgent: {AgentID: ids[0]}} {
			_, err := f.Redeliver(t.Context(), map[errs.Code]models.Principal{errs.NotFound: testkit.Admin(), errs.ForeignAgent: bound(ids[1])}[code], q)
			require.Equal(t, code, errs.CodeOf(err), "%v", err)
		}
		_, err = f.Redeliver(t.Context(), testkit.Admin(), pubsub.DeadQuery{PublicationID: "missing"})
		require.ErrorContains(t, err, `there is no publication "missing"`)
	})
	run(t, "are redelivered in many transactions", func(t *testing.T, f fixture) {
		f.agents(t, "ada", 2, "*")
		require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error { // statistics without publications
			for range 50 {
				if err := tx.Inbox().EnqueueAll([]string{"other"}, models.InboxMessage{ID: uuid.NewString(), Kind: models.MessageNotice, Priority: 1}); err != nil {
					return err
				}
			}
			if err := tx.Run("ANALYZE inbox"); err != nil {
				return err
			}
			return tx.Run("CREATE TABLE analyzed (id BIGINT)") // a database with another schema is not used again
		}))
		for range 300 {
			out := f.publish(t, testkit.Admin(), pubsub.Draft{})
			for _, id := range []string{"ada-0000", "ada-0001"} {
				require.NoError(t, f.End(t.Context(), models.InboxMessage{AgentID: id, ID: out.ID}, pubsub.Unsupported))
			}
		}
		n, err := f.Redeliver(t.Context(), testkit.Admin(), pubsub.DeadQuery{})
		require.NoError(t, err)
		require.Equal(t, 600, n)
		require.Len(t, f.waiting(t, "ada-0001"), 300)
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	run(t, "is shown to the sender and to those who may read it", func(t *testing.T, f fixture) {
		ids := f.agents(t, "ada", 2)
		id := f.publish(t, bound(ids[0]), pubsub.Draft{To: ids[1]}).ID
		for name, by := range map[string]models.Principal{"sender": bound(ids[0]), "receiver": bound(ids[1]), "reader": {Scopes: []models.Scope{models.ScopeTasksRead}}, "above": bound("orch-my-team", models.ScopeTasksRead)} {
			_, err := f.Status(t.Context(), by, id)
			require.NoError(t, err, name)
		}
		for name, by := range map[string]models.Principal{"other sender": {TokenID: "x", Scopes: []models.Scope{models.ScopeMessagesSend}}, "other agent": bound("orch-personnel", models.ScopeTasksRead)} {
			_, err := f.Status(t.Context(), by, id)
			require.True(t, errs.Is(err, errs.NotFound), name)
		}
	})
}
