package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/models"
)

// messageLog is a message log by task.
type messageLog map[string][]api.TaskMessage

// add logs messages about a task, and returns them with their ids.
func (l messageLog) add(taskID string, messages ...api.TaskMessage) []api.TaskMessage {
	for i := range messages {
		m := &messages[i]
		m.ID, m.Ctx, m.TID = fmt.Sprintf("01890a5d-ac96-774b-bcce-b30209%06d", i), "S1", "T1"
	}
	l[taskID] = messages
	return messages
}

// byTask implements api.Services.TaskMessages.
func (l messageLog) byTask(_ context.Context, t models.Task, after string, limit int) (out []api.TaskMessage, err error) {
	for _, m := range l[t.ID] {
		if m.ID > after && len(out) < limit {
			out = append(out, m)
		}
	}
	return append([]api.TaskMessage{}, out...), nil
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

	runStreamTest(t, "HaveTheMessageThatCausedThem", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		var none page
		got := h.do(t, "GET", address(id, ""), "")
		got.decode(t, http.StatusOK, &none)
		require.JSONEq(t, `{"messages":[]}`, string(got.body), "no message is about it")
		request := api.TaskMessage{Number: 5, From: "O1", To: "W1", Type: "R", State: new("N"), Data: "call=read"}
		logged := h.messages.add(id, request,
			api.TaskMessage{Number: 1, From: "W1", To: "O1", Type: "E", State: new("F"), Err: new("E33"), Data: "pid=M5;desc=no file", PID: new(5), ParentID: new("01890a5d-ac96-774b-bcce-b30209000000")},
			api.TaskMessage{Number: 2, From: "W1", To: "O1", Type: "A", Data: "pid=M77", PID: new(77)})
		var all page
		h.do(t, "GET", address(id, ""), "").decode(t, http.StatusOK, &all)
		require.Len(t, all.Messages, 3)
		require.Empty(t, all.NextCursor)
		first, second, third := all.Messages[0], all.Messages[1], all.Messages[2]
		require.Equal(t, logged[0].ID, first.ID)
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
		require.Nil(t, third.ParentID, "the message that it names is unknown")
		require.Nil(t, third.State)
	})

	runStreamTest(t, "AreListedInPages", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		h.messages.add(id, make([]api.TaskMessage, 5)...)
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

	runStreamTest(t, "RequireAccessToTheTask", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		as := func(scopes ...models.Scope) int {
			return h.do(t, "GET", address(id, ""), "", "Authorization", "Bearer "+h.token(t, scopes...)).status
		}
		require.Equal(t, http.StatusOK, as(models.ScopeTasksRead))
		require.Equal(t, http.StatusNotFound, as(models.ScopeMessagesSend), "the token did not submit it")
		require.Equal(t, http.StatusForbidden, as(models.ScopeAgentsRead))
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", address("none", ""), "").status)
	})

	runStreamTest(t, "RejectAnUnknownFormatOfAStream", fixtureOptions{}, func(t *testing.T, h *fixture) {
		got := h.do(t, "GET", "/api/v1/events?format=v4", "")
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Contains(t, string(got.body), "format must be")
	})
}
