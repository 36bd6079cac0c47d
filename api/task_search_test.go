package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
)

func TestTaskSearch(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "ByRequestOwnerAndTrace", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		traced := h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`, "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		require.Equal(t, http.StatusAccepted, traced.status)
		id := h.submit(t, `{"capabilities":["read"],"request_id":"r-1","attempt_timeout_ms":60000}`)
		require.NoError(t, complete(t, h, id, orchestrator.Result{Output: []byte("short"), Detail: []byte(`{"a":1}`)}))
		var task struct {
			Owner         string
			FailureDetail any `json:"failure_detail"`
			Output        struct{ Text string }
			Request       struct {
				AttemptTimeoutMS int `json:"attempt_timeout_ms"`
			}
		}
		h.do(t, "GET", "/api/v1/tasks/"+id, "").decode(t, http.StatusOK, &task)
		require.Equal(t, "short", task.Output.Text)
		require.Nil(t, task.FailureDetail, "the task has not failed")
		require.Equal(t, 60_000, task.Request.AttemptTimeoutMS)
		for query, want := range map[string]int{
			"request_id=r-1": 1, "request_id=r-1&owner=" + task.Owner: 1, "request_id=r-2": 0, "owner=" + task.Owner: 2, "owner=other": 0,
			"request_id=r-1&owner=other": 0, "trace_id=" + trace: 1, "trace_id=4bf92f35-77b3-4da6-a3ce-929d0e0e4736": 1, "trace_id=5bf92f3577b34da6a3ce929d0e0e4736": 0,
			"waiting_for=reply": 0, "waiting_for=worker": 0, "id_prefix=" + id[:30]: 1, "id_prefix=" + id: 1, "id_prefix=" + id[:30] + "%25": 0, "id_prefix=" + id[:30] + "&state=new": 0,
		} {
			var page struct {
				Tasks []struct{ Capabilities []string }
			}
			h.do(t, "GET", "/api/v1/tasks?"+query, "").decode(t, http.StatusOK, &page)
			require.Len(t, page.Tasks, want, query)
			for _, task := range page.Tasks {
				require.Equal(t, []string{"read"}, task.Capabilities)
			}
		}
		for _, query := range []string{"trace_id=4bf9", "owner=other&mine=true"} {
			require.Equal(t, http.StatusBadRequest, h.do(t, "GET", "/api/v1/tasks?"+query, "").status, query)
		}
	})
}

func complete(t *testing.T, h *fixture, id string, r orchestrator.Result) error {
	t.Helper()
	_, err := h.orchestrator.Complete(t.Context(), "reader", id, r)
	return err
}
