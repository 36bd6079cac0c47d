package api_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

const stream = "/api/v1/events"

// streaming runs one case in a fresh house of every database, whose relay runs.
func streaming(t *testing.T, name string, opts houseOptions, fn func(t *testing.T, h *house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
			own := opts // the databases run side by side
			own.work = true
			fn(t, setup(t, db, own))
		})
	})
}

// rename changes an agent, which is an event.
func (h *house) rename(t testing.TB, id, name string) {
	t.Helper()
	require.Equal(t, http.StatusOK, h.do(t, "PATCH", "/api/v1/agents/"+id, `{"name":`+quoted(name)+`}`).status)
}

// head is the position of the newest event, once all have one.
func (h *house) head(t testing.TB) (head int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting, err := h.db.EventsUnnumbered(t.Context())
		return err == nil && !waiting
	}, time.Minute, time.Millisecond)
	head, err := h.db.LastPosition(t.Context())
	require.NoError(t, err)
	return head
}

func TestEventStream(t *testing.T) {
	t.Parallel()

	streaming(t, "TellsWhatHappensFromNowOn", houseOptions{}, func(t *testing.T, h *house) {
		head := h.head(t)
		s := h.tap(t, h.admin, stream)
		require.Equal(t, "text/event-stream; charset=utf-8", s.header.Get("Content-Type"))
		require.Equal(t, "no-store", s.header.Get("Cache-Control"))
		hello := s.next()
		require.Equal(t, "1000", hello.retry)
		require.Equal(t, strconv.FormatInt(head, 10), hello.id, "who loses the stream before an event comes back with it")
		h.rename(t, "orch-scholar", "A: B")
		m := s.next()
		require.Equal(t, "agent.updated", m.event)
		require.Equal(t, strconv.FormatInt(head+1, 10), m.id)
		require.Equal(t, head+1, m.data.Position)
		require.Equal(t, models.EventAgentUpdated, m.data.Type)
		require.Equal(t, "orch-scholar", m.data.Key)
		require.Equal(t, h.db.Now(), m.data.At)
		require.NotEmpty(t, m.data.ID)
		require.Contains(t, string(m.data.Data), `"to":"A: B"`)
	})

	streaming(t, "GoesOnBehindThePositionAClientComesBackWith", houseOptions{}, func(t *testing.T, h *house) {
		head := h.head(t)
		const more = 450 // than are read at a time
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			for range more {
				if err := tx.Emit(models.EventWorkerChanged, "reader", models.WorkerChanged{AgentID: "reader"}); err != nil {
					return err
				}
			}
			return nil
		}))
		for _, s := range []*tap{
			h.tap(t, h.admin, stream, "Last-Event-ID", strconv.FormatInt(head, 10)),
			h.tap(t, h.admin, stream+"?last_event_id="+strconv.FormatInt(head, 10)),
			h.tap(t, h.admin, stream+"?last_event_id=0", "Last-Event-ID", strconv.FormatInt(head, 10)),
		} {
			for i := range int64(more) {
				require.Equal(t, head+1+i, s.event().data.Position)
			}
			s.close()
		}
		all := h.tap(t, h.admin, stream+"?last_event_id=0")
		for i := range head + more {
			require.Equal(t, i+1, all.event().data.Position)
		}
		h.rename(t, "orch-scholar", "Now")
		require.Equal(t, head+more+1, all.event().data.Position)
	})

	streaming(t, "TellsOfWhatWasDeleted", houseOptions{}, func(t *testing.T, h *house) {
		head := h.head(t)
		h.db.Clock.Advance(2 * time.Hour)
		h.rename(t, "orch-scholar", "later")
		require.Equal(t, head+1, h.head(t))
		require.NoError(t, events.Purge(h.db.Store, time.Hour)(t.Context()))
		s := h.tap(t, h.admin, stream, "Last-Event-ID", "3")
		m := s.event()
		require.Equal(t, "gap", m.event)
		require.Equal(t, strconv.FormatInt(head, 10), m.id, "who comes back with it hears of no gap again")
		require.JSONEq(t, fmt.Sprintf(`{"after":3,"resumed_after":%d}`, head), m.raw)
		require.Equal(t, head+1, s.event().data.Position)
		require.Equal(t, "agent.updated", h.tap(t, h.admin, stream, "Last-Event-ID", m.id).event().event)

		ahead := h.tap(t, h.admin, stream, "Last-Event-ID", "1000000")
		require.JSONEq(t, fmt.Sprintf(`{"after":1000000,"resumed_after":%d}`, head+1), ahead.event().raw, "a position of another database")
	})

	streaming(t, "SelectsByTypeAgentAndTask", houseOptions{}, func(t *testing.T, h *house) {
		reader(t, h)
		types := h.tap(t, h.admin, stream+"?types=task.completed,agent.updated")
		agent := h.tap(t, h.admin, stream+"?agent_id=reader")
		var first, second struct{ ID string }
		h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).into(t, 202, &first)
		task := h.tap(t, h.admin, stream+"?last_event_id=0&task_id="+first.ID)
		h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).into(t, 202, &second)
		h.rename(t, "orch-scholar", "x")
		h.rename(t, "reader", "Second")
		h.worker(t, "reader", "done")

		require.Equal(t, "orch-scholar", types.event().data.Key)
		require.Equal(t, "reader", types.event().data.Key)
		require.Equal(t, "task.completed", types.event().event)
		require.Equal(t, []string{"task.assigned", "task.assigned", "agent.updated"}, []string{agent.event().event, agent.event().event, agent.event().event})
		for _, want := range []string{"task.created", "task.assigned", "task.started", "task.completed"} {
			m := task.event()
			require.Equal(t, want, m.event)
			require.Equal(t, first.ID, m.data.Key)
		}
	})

	streaming(t, "TellsATokenOnlyWhatItMaySee", houseOptions{}, func(t *testing.T, h *house) {
		reader(t, h)
		watcher, registrar := h.token(t, models.ScopeTasksRead), h.token(t, models.ScopeAgentsRead)
		tasks, agents := h.tap(t, watcher, stream), h.tap(t, registrar, stream)
		h.rename(t, "reader", "First")
		h.token(t, models.ScopeAdmin)
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).status)
		h.rename(t, "reader", "Second")
		require.Equal(t, []string{"task.created", "task.assigned"}, []string{tasks.event().event, tasks.event().event})
		require.Equal(t, []string{"agent.updated", "agent.updated"}, []string{agents.event().event, agents.event().event})

		p := h.do(t, "GET", stream+"?types=task.created,token.created", "", "Authorization", "Bearer "+watcher)
		p.problem(t, 403, errs.MissingScope)
		require.Equal(t, "admin", metaOf(t, p)["scope"])
		h.do(t, "GET", stream, "", "Authorization", "Bearer "+h.token(t, models.ScopeMessagesSend)).problem(t, 403, errs.MissingScope)
	})

	streaming(t, "EndsWithItsToken", houseOptions{heartbeat: time.Hour}, func(t *testing.T, h *house) {
		issued, err := h.auth.Create(t.Context(), models.System(), models.TokenDraft{Name: new("guest"), Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
		require.NoError(t, err)
		s := h.tap(t, issued.Secret, stream)
		require.Equal(t, "1000", s.next().retry)
		require.NoError(t, h.auth.Revoke(t.Context(), models.System(), issued.Token.ID))
		h.rename(t, "orch-scholar", "x")
		s.rest() // and not after its next sign of life
	})

	streaming(t, "ShowsHowFarItIsWhileNothingIsForItsClient", houseOptions{heartbeat: 10 * time.Millisecond}, func(t *testing.T, h *house) {
		head := h.head(t)
		s := h.tap(t, h.admin, stream+"?agent_id=nova")
		h.rename(t, "orch-scholar", "x")
		for {
			if m := s.next(); m.comment != "" && m.id != "" {
				require.Equal(t, strconv.FormatInt(head+1, 10), m.id)
				require.Empty(t, m.raw)
				break
			}
		}
	})

	streaming(t, "HasItsPlaceUntilItsClientGoes", houseOptions{streams: 1}, func(t *testing.T, h *house) {
		s := h.tap(t, h.admin, stream)
		refused := h.do(t, "GET", stream, "")
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Contains(t, string(refused.body), string(errs.Busy))
		require.NotEmpty(t, refused.header.Get("Retry-After"))
		require.Equal(t, http.StatusServiceUnavailable, h.do(t, "HEAD", stream, "").status)
		s.close()
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, time.Millisecond)
	})

	streaming(t, "LeavesPlacesToOtherTokens", houseOptions{streams: 20}, func(t *testing.T, h *house) {
		first := h.tap(t, h.admin, stream)
		h.tap(t, h.admin, stream)
		refused := h.do(t, "GET", stream, "")
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Contains(t, string(refused.body), "the token has 2 streams already")
		h.tap(t, h.token(t, models.ScopeTasksRead), stream)
		first.close()
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, time.Millisecond)
	})

	streaming(t, "DropsAClientThatDoesNotRead", houseOptions{streams: 1, patience: 50 * time.Millisecond}, func(t *testing.T, h *house) {
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error { // more than any buffer on the way takes
			for range 400 {
				if err := tx.Emit(models.EventTaskReplied, "t", models.TaskChanged{Reply: strings.Repeat("x", 100_000)}); err != nil {
					return err
				}
			}
			return nil
		}))
		h.head(t)
		h.tap(t, h.admin, stream+"?last_event_id=0")
		require.Eventually(t, func() bool { return h.do(t, "HEAD", stream, "").status == http.StatusOK }, time.Minute, 10*time.Millisecond)
	})

	streaming(t, "EndsWhenTheServerStops", houseOptions{}, func(t *testing.T, h *house) {
		h.head(t)
		s := h.tap(t, h.admin, stream)
		require.Equal(t, "1000", s.next().retry)
		h.door.Drain()
		h.door.Drain() // twice is fine
		text, ended := s.rest()
		require.Empty(t, text)
		require.True(t, ended)
	})
}

// reader has an agent that reads come to work.
func reader(t testing.TB, h *house) {
	t.Helper()
	require.Equal(t, http.StatusCreated, h.create(t, "reader", 2, 555, "orch-personnel", `,"capabilities":["custom:read"]`).status)
	require.NoError(t, h.work.ReindexAgent(t.Context(), "reader"))
	h.join(t, "reader", 10)
	h.head(t) // so that none of this is news to a stream
}

// TestStreamsOutliveTheServersTimeLimits: those are for requests and for answers that
// have an end.
func TestStreamsOutliveTheServersTimeLimits(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), houseOptions{heartbeat: 5 * time.Millisecond, work: true})
	const limit = 20 * time.Millisecond
	h.head(t)
	unlimited := h.url
	h.url = limited(t, h.door, limit)
	s := h.tap(t, h.admin, stream)
	h.url = unlimited
	for begin := time.Now(); time.Since(begin) < 5*limit; {
		s.next()
	}
	h.rename(t, "orch-scholar", "x")
	require.Equal(t, "agent.updated", s.event().event)
}
