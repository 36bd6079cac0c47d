package pubsub_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	publications "comet/store/pubsub"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
)

// ownFixture follows comet's own events.
type ownFixture struct {
	fixture
	got chan string // the receiver, the type and the key of delivered events
}

func follow(t *testing.T, f fixture, log io.Writer) *ownFixture {
	t.Helper()
	feed := events.NewFeed(f.DB.Store, nil)
	relay := events.NewRelay(f.DB.Store, feed, &events.Options{Poll: 20 * time.Millisecond})
	require.NoError(t, relay.Start(t.Context()))
	f.PubSub = pubsub.New(f.DB.Store, &pubsub.Options{Feed: feed, Events: map[models.EventType]models.Scope{
		events.TaskCreated: models.ScopeTasksRead, events.TaskProgress: models.ScopeTasksRead, events.AgentUpdated: models.ScopeAgentsRead, events.ToolCalled: models.ScopeToolsCall,
	}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	o := &ownFixture{f, make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.Follow(ctx, func(id string, of *models.Publication) {
			var payload struct{ Key string }
			if json.Unmarshal(of.Payload, &payload) == nil && of.From == models.RootAgentID && of.Guarantee == pubsub.AtMostOnce {
				o.got <- id + " " + of.Type + " " + payload.Key
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		require.NoError(t, relay.Stop(context.Background()))
	})
	require.NoError(t, o.Subscribe(t.Context(), testkit.Admin(), models.RootAgentID, []pubsub.Pattern{{Pattern: "*", From: models.RootAgentID}}))
	require.Eventually(t, func() bool { // it has begun to follow
		o.emit(t, events.AgentUpdated, "begin", nil)
		return len(o.got) > 0
	}, testkit.Timeout, 5*time.Millisecond)
	o.until(t, "begun")
	return o
}

func (o *ownFixture) emit(t *testing.T, kind models.EventType, key string, data map[string]string) {
	t.Helper()
	require.NoError(t, o.DB.Write(t.Context(), func(tx *store.Tx) error { return tx.Events().Emit(kind, key, data) }))
}

// until emits a last event, which nova receives, and returns what was delivered before.
func (o *ownFixture) until(t *testing.T, last string) (all []string) {
	t.Helper()
	o.emit(t, events.AgentUpdated, last, nil)
	for {
		got := testkit.Receive(t, o.got)
		if strings.HasSuffix(got, " "+last) {
			return all
		}
		all = append(all, got)
	}
}

// TestOwnEvents covers comet's own events, which agents receive as publications of nova.
func TestOwnEvents(t *testing.T) {
	t.Parallel()
	run(t, "reach the subscribers in whose subtree they are", func(t *testing.T, f fixture) {
		o := follow(t, f, io.Discard)
		ids := o.agents(t, "ada", 4)
		set := func(id string, patterns ...string) {
			var list []pubsub.Pattern
			for _, p := range patterns {
				pattern, from, _ := strings.Cut(p, " ")
				list = append(list, pubsub.Pattern{Pattern: pattern, From: from})
			}
			require.NoError(t, o.Subscribe(t.Context(), testkit.Admin(), id, list))
		}
		set("orch-my-team", "task.* nova", "order.* nova")
		set(ids[0], "task.created nova", "task.* nova")
		set(ids[1], "*", "task.*", "* shop")
		set(ids[2], "* nova")
		o.emit(t, events.TaskCreated, "t1", map[string]string{"agent_id": ids[0], "owner_agent": ids[2]})
		o.emit(t, events.TaskCreated, "t2", map[string]string{"agent_id": ids[1]})
		o.emit(t, events.TaskCreated, "t3", nil)
		o.emit(t, events.AgentUpdated, ids[2], nil)
		o.emit(t, events.ToolCalled, "c1", map[string]string{"agent_id": ids[2]})
		o.emit(t, events.TokenCreated, "not published", map[string]string{"agent_id": ids[2]})
		o.emit(t, events.TaskProgress, "a message of Genesis", map[string]string{"agent_id": ids[2]})
		require.Equal(t, []string{
			"ada-0000 task.created t1", "ada-0002 task.created t1", "nova task.created t1", "orch-my-team task.created t1",
			"nova task.created t2", "orch-my-team task.created t2", "nova task.created t3",
			"ada-0002 agent.updated ada-0002", "nova agent.updated ada-0002", "ada-0002 tool.called c1", "nova tool.called c1",
		}, o.until(t, "end"))
		set(ids[0])
		set(ids[3], "agent.* nova")
		o.emit(t, events.TaskCreated, "t4", map[string]string{"agent_id": ids[0]})
		o.emit(t, events.AgentUpdated, ids[3], nil)
		require.Equal(t, []string{"nova task.created t4", "orch-my-team task.created t4", "ada-0003 agent.updated ada-0003", "nova agent.updated ada-0003"}, o.until(t, "changed"))
	})
	run(t, "need the scopes of the types at the subscription", func(t *testing.T, f fixture) {
		o := follow(t, f, io.Discard)
		ada := o.agents(t, "ada", 1)[0]
		subscribe := func(pattern, from string, scopes ...models.Scope) error {
			return o.Subscribe(t.Context(), bound(ada, scopes...), ada, []pubsub.Pattern{{Pattern: pattern, From: from}})
		}
		require.NoError(t, subscribe("*", ""))
		require.NoError(t, subscribe("order.*", models.RootAgentID))
		require.NoError(t, subscribe("task.*", models.RootAgentID, models.ScopeTasksRead))
		err := subscribe("*", models.RootAgentID, models.ScopeTasksRead)
		require.Equal(t, errs.MissingScope, errs.CodeOf(err))
		require.ErrorContains(t, err, `"*" from nova selects the events agent.updated of comet, which require the scope "agents:read"`)
		event, err := o.DB.Events(t.Context()).Newest(ada, publications.EventSubscribed)
		require.NoError(t, err)
		require.JSONEq(t, `{"agent_id":"ada-0000","patterns":[{"pattern":"task.*","from":"nova"}],"actor":"ada-0000"}`, string(event.Data))
	})
	run(t, "cannot be published by agents", func(t *testing.T, f fixture) {
		o := follow(t, f, io.Discard)
		for typ, code := range map[string]errs.Code{"task.created": errs.InvalidRequest, "order.created": ""} {
			_, err := o.Publish(t.Context(), bound(models.RootAgentID), pubsub.Draft{Type: typ, Payload: []byte("1")})
			require.Equal(t, code, errs.CodeOf(err), "%s: %v", typ, err)
		}
		o.publish(t, testkit.Admin(), pubsub.Draft{Type: "task.created"})
		for _, by := range []models.Principal{testkit.Admin(), {Name: models.RootAgentID, Scopes: []models.Scope{models.ScopeMessagesSend}}, bound(o.agents(t, "ada", 1)[0])} {
			_, err := o.Publish(t.Context(), by, pubsub.Draft{From: models.RootAgentID, Type: "task.created", Payload: []byte("1")})
			require.Equal(t, errs.ForeignAgent, errs.CodeOf(err), "%s: %v", by.Name, err)
		}
	})
	run(t, "wait while the database does not respond, and arrive once", func(t *testing.T, f fixture) {
		failed := make(written)
		o := follow(t, f, failed)
		o.emit(t, events.TaskCreated, "t1", nil)
		require.Equal(t, []string{"nova task.created t1"}, o.until(t, "before"))
		rename := func(from, to string) {
			require.NoError(t, o.DB.Write(t.Context(), func(tx *store.Tx) error { return tx.Run("ALTER TABLE " + from + " RENAME TO " + to) }))
		}
		rename("subscriptions", "away")
		o.emit(t, publications.EventSubscribed, models.RootAgentID, nil)
		require.Contains(t, testkit.Receive(t, failed), "following events for subscribers")
		o.emit(t, events.TaskCreated, "t2", nil)
		rename("away", "subscriptions")
		require.Contains(t, testkit.Receive(t, failed), "following events for subscribers")
		require.Equal(t, []string{"nova task.created t2"}, o.until(t, "after"))
	})
}

// written receives what is written to it.
type written chan string

func (w written) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
