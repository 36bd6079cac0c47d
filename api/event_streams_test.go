package api_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

const stream = "/api/v1/events"

// runStreamTest runs one case in a fresh fixture of every database, with a running relay.
func runStreamTest(t *testing.T, name string, opts fixtureOptions, fn func(t *testing.T, h *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
			own := opts // the databases run side by side
			own.startOrchestrator = true
			fn(t, setup(t, db, own))
		})
	})
}

// renameAgent changes an agent, which is an event.
func (h *fixture) renameAgent(t testing.TB, id, name string) {
	t.Helper()
	require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/"+id, `{"name":`+quoted(name)+`}`).status)
}

// lastPosition is the position of the newest event, once all have one.
func (h *fixture) lastPosition(t testing.TB) (head int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting, err := h.db.Events(t.Context()).Pending()
		return err == nil && !waiting
	}, time.Minute, 5*time.Millisecond)
	head, err := h.db.Events(t.Context()).LastPosition()
	require.NoError(t, err)
	return head
}

// TestEventStreamOfAWorkflow: the owner of a workflow receives its events, whichever agent pays; other tokens do not.
func TestEventStreamOfAWorkflow(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "Owner", fixtureOptions{}, func(t *testing.T, h *fixture) {
		owner, other := h.token(t, models.ScopeToolsCall), h.token(t, models.ScopeToolsCall)
		var paused, second struct {
			ID string `json:"workflow_id"`
		}
		h.do(t, "POST", "/api/v1/workflows", goodWorkflow, "Authorization", "Bearer "+owner).decode(t, http.StatusOK, &paused)
		h.do(t, "POST", "/api/v1/workflows", goodWorkflow, "Authorization", "Bearer "+owner).decode(t, http.StatusOK, &second)
		h.lastPosition(t)
		mine := h.openStream(t, owner, stream+"?workflow_id="+paused.ID)
		foreign := h.openStream(t, other, stream+"?workflow_id="+paused.ID)
		all := h.openStream(t, h.admin, stream+"?types=workflow.ended")
		for _, id := range []string{second.ID, paused.ID} {
			require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows/"+id+"/abort", `{"reason":"not needed"}`).status)
		}
		for _, want := range []string{"workflow.step_ended", "workflow.ended"} {
			e := mine.event()
			require.Equal(t, []string{want, paused.ID}, []string{e.event, e.data.Key})
		}
		require.Equal(t, second.ID, all.event().data.Key)
		require.Equal(t, paused.ID, all.event().data.Key)
		var me struct {
			Token struct{ ID string } `json:"token"`
		}
		h.do(t, "GET", "/api/v1/me", "", "Authorization", "Bearer "+other).decode(t, http.StatusOK, &me)
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+me.Token.ID, "").status)
		text, _ := foreign.rest() // the stream ends with its token
		require.NotContains(t, text, "event:")
	})
}

func TestEventStream(t *testing.T) {
	t.Parallel()

	runStreamTest(t, "StartsWithTheNextEvent", fixtureOptions{}, func(t *testing.T, h *fixture) {
		head := h.lastPosition(t)
		s := h.openStream(t, h.admin, stream)
		require.Equal(t, "text/event-stream", s.header.Get("Content-Type"))
		require.Equal(t, "no-store", s.header.Get("Cache-Control"))
		hello := s.next()
		require.Equal(t, "1000", hello.retry)
		require.Equal(t, strconv.FormatInt(head, 10), hello.id, "who loses the stream before an event comes back with it")
		h.renameAgent(t, "orch-scholar", "A: B")
		m := s.next()
		require.Equal(t, "agent.updated", m.event)
		require.Equal(t, strconv.FormatInt(head+1, 10), m.id)
		require.Equal(t, head+1, m.data.Position)
		require.Equal(t, events.AgentUpdated, m.data.Type)
		require.Equal(t, "orch-scholar", m.data.Key)
		require.Equal(t, h.db.Now(), m.data.At)
		require.NotEmpty(t, m.data.ID)
		require.Contains(t, string(m.data.Data), `"to":"A: B"`)
	})

	runStreamTest(t, "ResumesAfterLastEventID", fixtureOptions{}, func(t *testing.T, h *fixture) {
		head := h.lastPosition(t)
		const more = 450 // than are read at a time
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			for range more {
				if err := tx.Events().Emit(events.WorkerChanged, "reader", events.WorkerData{AgentID: "reader"}); err != nil {
					return err
				}
			}
			return nil
		}))
		for _, s := range []*streamReader{
			h.openStream(t, h.admin, stream, "Last-Event-ID", strconv.FormatInt(head, 10)),
			h.openStream(t, h.admin, stream+"?last_event_id="+strconv.FormatInt(head, 10)),
			h.openStream(t, h.admin, stream+"?last_event_id=0", "Last-Event-ID", strconv.FormatInt(head, 10)),
		} {
			for i := range int64(more) {
				require.Equal(t, head+1+i, s.event().data.Position)
			}
			s.close()
		}
		all := h.openStream(t, h.admin, stream+"?last_event_id=0")
		for i := range head + more {
			require.Equal(t, i+1, all.event().data.Position)
		}
		h.renameAgent(t, "orch-scholar", "Now")
		require.Equal(t, head+more+1, all.event().data.Position)
	})

	runStreamTest(t, "StartsWithAGapAfterDeletedEvents", fixtureOptions{}, func(t *testing.T, h *fixture) {
		head := h.lastPosition(t)
		h.db.Clock.Advance(2 * time.Hour)
		h.renameAgent(t, "orch-scholar", "later")
		require.Equal(t, head+1, h.lastPosition(t))
		require.NoError(t, events.Purge(h.db.Store, time.Hour)(t.Context()))
		s := h.openStream(t, h.admin, stream, "Last-Event-ID", "3")
		m := s.event()
		require.Equal(t, "gap", m.event)
		require.Equal(t, strconv.FormatInt(head, 10), m.id, "the new position has no gap")
		require.JSONEq(t, fmt.Sprintf(`{"after":3,"resumed_after":%d}`, head), m.raw)
		require.Equal(t, head+1, s.event().data.Position)
		require.Equal(t, "agent.updated", h.openStream(t, h.admin, stream, "Last-Event-ID", m.id).event().event)

		ahead := h.openStream(t, h.admin, stream, "Last-Event-ID", "1000000")
		require.JSONEq(t, fmt.Sprintf(`{"after":1000000,"resumed_after":%d}`, head+1), ahead.event().raw, "a position of another database")
	})

	runStreamTest(t, "FiltersByTypeAgentAndTask", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		types := h.openStream(t, h.admin, stream+"?types=task.completed,agent.updated")
		agent := h.openStream(t, h.admin, stream+"?agent_id=reader")
		var first, second struct{ ID string }
		h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).decode(t, 202, &first)
		task := h.openStream(t, h.admin, stream+"?last_event_id=0&task_id="+first.ID)
		h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).decode(t, 202, &second)
		h.renameAgent(t, "orch-scholar", "x")
		h.renameAgent(t, "reader", "Second")
		h.worker(t, "reader", "done")

		require.Equal(t, "orch-scholar", types.event().data.Key)
		require.Equal(t, "reader", types.event().data.Key)
		require.Equal(t, "task.completed", types.event().event)
		require.Equal(t, []string{"task.created", "task.created", "agent.updated"}, []string{agent.event().event, agent.event().event, agent.event().event})
		for _, want := range []string{"task.created", "task.completed"} {
			m := task.event()
			require.Equal(t, want, m.event)
			require.Equal(t, first.ID, m.data.Key)
		}
	})

	runStreamTest(t, "ContainsOnlyEventsOfTheTokensScopes", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		watcher, registrar := h.token(t, models.ScopeTasksRead), h.token(t, models.ScopeAgentsRead)
		tasks, agents := h.openStream(t, watcher, stream), h.openStream(t, registrar, stream)
		h.renameAgent(t, "reader", "First")
		h.token(t, models.ScopeAdmin)
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).status)
		h.renameAgent(t, "reader", "Second")
		require.Equal(t, "task.created", tasks.event().event)
		require.Equal(t, []string{"agent.updated", "agent.updated"}, []string{agents.event().event, agents.event().event})

		p := h.do(t, "GET", stream+"?types=task.created,token.created", "", "Authorization", "Bearer "+watcher)
		p.problem(t, 403, errs.MissingScope)
		require.Equal(t, "admin", metaOf(t, p)["scope"])
		h.do(t, "GET", stream, "", "Authorization", "Bearer "+h.token(t, models.ScopeMessagesSend)).problem(t, 403, errs.MissingScope)
	})

	runStreamTest(t, "EndsWhenItsTokenIsRevoked", fixtureOptions{heartbeat: time.Hour}, func(t *testing.T, h *fixture) {
		issued, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("reader"), Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
		require.NoError(t, err)
		s := h.openStream(t, issued.Secret, stream)
		require.Equal(t, "1000", s.next().retry)
		require.NoError(t, h.auth.Revoke(t.Context(), models.System(), issued.Token.ID, nil))
		h.renameAgent(t, "orch-scholar", "x")
		s.rest() // and not after its next sign of life
	})

	runStreamTest(t, "SendsItsPositionWhenEventsAreFilteredOut", fixtureOptions{heartbeat: 10 * time.Millisecond}, func(t *testing.T, h *fixture) {
		head := h.lastPosition(t)
		s := h.openStream(t, h.admin, stream+"?agent_id=nova")
		h.renameAgent(t, "orch-scholar", "x")
		for {
			if m := s.next(); m.comment != "" && m.id != "" {
				require.Equal(t, strconv.FormatInt(head+1, 10), m.id)
				require.Empty(t, m.raw)
				break
			}
		}
	})

	runStreamTest(t, "CountsAgainstTheLimitUntilItEnds", fixtureOptions{streams: 1}, func(t *testing.T, h *fixture) {
		s := h.openStream(t, h.admin, stream)
		refused := h.do(t, "GET", stream, "")
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Contains(t, string(refused.body), string(errs.Busy))
		require.NotEmpty(t, refused.header.Get("Retry-After"))
		require.Equal(t, http.StatusServiceUnavailable, h.do(t, "HEAD", stream, "").status)
		s.close()
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, 5*time.Millisecond)
	})

	runStreamTest(t, "LimitsTheStreamsOfEachToken", fixtureOptions{streams: 20}, func(t *testing.T, h *fixture) {
		first := h.openStream(t, h.admin, stream)
		h.openStream(t, h.admin, stream)
		refused := h.do(t, "GET", stream, "")
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Contains(t, string(refused.body), "the token has reached its limit of 2 open streams")
		h.openStream(t, h.token(t, models.ScopeTasksRead), stream)
		first.close()
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, 5*time.Millisecond)
	})

	runStreamTest(t, "EndsIfItsClientDoesNotRead", fixtureOptions{streams: 1, writeTimeout: 50 * time.Millisecond}, func(t *testing.T, h *fixture) {
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error { // more than any buffer on the way takes
			for range 400 {
				if err := tx.Events().Emit(events.TaskReplied, "t", events.TaskData{Reply: strings.Repeat("x", 100_000)}); err != nil {
					return err
				}
			}
			return nil
		}))
		h.lastPosition(t)
		h.openStream(t, h.admin, stream+"?last_event_id=0")
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, 10*time.Millisecond)
	})

	runStreamTest(t, "EndsWhenTheServerStops", fixtureOptions{}, func(t *testing.T, h *fixture) {
		h.lastPosition(t)
		s := h.openStream(t, h.admin, stream)
		require.Equal(t, "1000", s.next().retry)
		h.server.Drain()
		h.server.Drain() // twice is fine
		text, ended := s.rest()
		require.Empty(t, text)
		require.True(t, ended)
	})
}

// joinReader connects an agent with the capability of reading as a worker.
func joinReader(t testing.TB, h *fixture) {
	t.Helper()
	require.Equal(t, http.StatusCreated, h.create(t, "reader", 2, 555, "orch-personnel", `,"capabilities":["custom:read"]`).status)
	require.NoError(t, h.orchestrator.ReindexAgent(t.Context(), "reader"))
	h.joinWorker(t, "reader", 10)
	h.lastPosition(t) // so that none of this is news to a stream
}

// TestStreamsHaveNoServerTimeouts: those are for requests and for answers that
// have an end.
func TestStreamsHaveNoServerTimeouts(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{heartbeat: 5 * time.Millisecond, startOrchestrator: true})
	const limit = 20 * time.Millisecond
	h.lastPosition(t)
	unlimited := h.url
	h.url = serveWithTimeouts(t, h.server, limit)
	s := h.openStream(t, h.admin, stream)
	h.url = unlimited
	for begin := time.Now(); time.Since(begin) < 5*limit; {
		s.next()
	}
	h.renameAgent(t, "orch-scholar", "x")
	require.Equal(t, "agent.updated", s.event().event)
}
