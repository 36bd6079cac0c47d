package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/protocol/v5/messagelog"
	"comet/models"
	"comet/store"
)

// logMessages has lines kept that were said about a task, and returns them.
func (h *fixture) logMessages(t testing.TB, taskID string, lines ...models.LoggedMessage) []models.LoggedMessage {
	t.Helper()
	var name models.ShortID
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) (err error) { name, err = tx.TaskShortID(taskID, ""); return err }))
	log := messagelog.New(h.db.Store, nil)
	for i := range lines {
		l := &lines[i]
		l.ID, l.At = fmt.Sprintf("01890a5d-ac96-774b-bcce-b30209%06d", i), h.db.Now()
		l.Context, l.Task, l.Peer = name.Context, name.Task, "W1"
		log.Add(*l)
	}
	require.NoError(t, log.Flush(t.Context()))
	return lines
}

func TestTaskMessages(t *testing.T) {
	t.Parallel()
	type page struct {
		Messages []struct {
			ID, Ctx, TID, From, To, Type, Data string
			Number                             int
			State, Err                         *string
			PID                                *int
			ParentID                           *string `json:"parent_id"`
		}
		NextCursor string `json:"next_cursor"`
	}
	address := func(id, query string) string { return "/api/v1/tasks/" + id + "/messages" + query }

	runStreamTest(t, "AreThereWithTheLineThatCausedEach", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		var none page
		got := h.do(t, "GET", address(id, ""), "")
		got.decode(t, http.StatusOK, &none)
		require.JSONEq(t, `{"messages":[]}`, string(got.body), "nobody has spoken of it")
		said := h.logMessages(t, id,
			models.LoggedMessage{Number: 5, From: "O1", To: "W1", Type: "R", State: "N", Data: "call=read"},
			models.LoggedMessage{Number: 1, From: "W1", To: "O1", Type: "E", State: "F", Code: "E33", Data: "pid=M5;desc=no file", Parent: 5},
			models.LoggedMessage{Number: 2, From: "W1", To: "O1", Type: "A", Data: "pid=M77", Parent: 77})
		var all page
		h.do(t, "GET", address(id, ""), "").decode(t, http.StatusOK, &all)
		require.Len(t, all.Messages, 3)
		require.Empty(t, all.NextCursor)
		first, second, third := all.Messages[0], all.Messages[1], all.Messages[2]
		require.Equal(t, said[0].ID, first.ID)
		require.Equal(t, []string{"S1", "T1", "O1", "W1", "R", "call=read"}, []string{first.Ctx, first.TID, first.From, first.To, first.Type, first.Data})
		require.Equal(t, 5, first.Number)
		require.Equal(t, "N", *first.State)
		require.Nil(t, first.Err)
		require.Nil(t, first.PID)
		require.Nil(t, first.ParentID)
		require.Equal(t, "E33", *second.Err)
		require.Equal(t, 5, *second.PID)
		require.Equal(t, first.ID, *second.ParentID)
		require.Equal(t, 77, *third.PID)
		require.Nil(t, third.ParentID, "what it names was not said")
		require.Nil(t, third.State)
	})

	runStreamTest(t, "ComeInPages", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		h.logMessages(t, id, make([]models.LoggedMessage, 5)...)
		var ids []string
		for query := "?limit=2"; query != ""; {
			got := h.do(t, "GET", address(id, query), "")
			var p page
			got.decode(t, http.StatusOK, &p)
			for _, l := range p.Messages {
				ids = append(ids, l.ID[30:])
			}
			query = ""
			if p.NextCursor != "" {
				require.Contains(t, got.header.Get("Link"), `rel="next"`)
				query = "?limit=2&cursor=" + p.NextCursor
			}
		}
		require.Equal(t, []string{"000000", "000001", "000002", "000003", "000004"}, ids)
		require.Equal(t, http.StatusBadRequest, h.do(t, "GET", address(id, "?cursor=*"), "").status)
		require.Equal(t, http.StatusBadRequest, h.do(t, "GET", address(id, "?limit=0"), "").status)
	})

	runStreamTest(t, "AreForThoseWhoSeeTheTask", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		as := func(scopes ...models.Scope) int {
			return h.do(t, "GET", address(id, ""), "", "Authorization", "Bearer "+h.token(t, scopes...)).status
		}
		require.Equal(t, http.StatusOK, as(models.ScopeTasksRead))
		require.Equal(t, http.StatusNotFound, as(models.ScopeMessagesSend), "it asked for another one")
		require.Equal(t, http.StatusForbidden, as(models.ScopeAgentsRead))
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", address("none", ""), "").status)
	})

	runStreamTest(t, "HaveNoFormInAStreamOfAServerThatDoesNotSpeakIt", fixtureOptions{}, func(t *testing.T, h *fixture) {
		for _, form := range []string{"v5", "v4"} {
			got := h.do(t, "GET", "/api/v1/events?format="+form, "")
			require.Equal(t, http.StatusBadRequest, got.status)
			require.Contains(t, string(got.body), "format must be")
		}
	})
}
