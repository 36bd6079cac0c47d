package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
)

// documentMessage is an example of the document in the first example's envelope.
type documentMessage map[string]any

// documentExamples returns the examples by name (Chiffon, in the document's order).
func documentExamples(t *testing.T) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("../wire/envelope/testdata/document.txtar")
	require.NoError(t, err)
	all := map[string]string{}
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".json"); ok {
			all[name] = string(f.Data)
		}
	}
	require.Len(t, all, 9)
	return all
}

// wrapExample puts a fragment into the first example's envelope, as a message about a task. Reports
// of an agent go in the other direction.
func wrapExample(t *testing.T, all map[string]string, name string, task uuid.UUID, request string) documentMessage {
	t.Helper()
	var p, fragment documentMessage
	require.NoError(t, json.Unmarshal([]byte(all["full-envelope"]), &p))
	text := strings.ReplaceAll(all[name], `"..."`, `"`+task.String()+`"`)
	if strings.HasPrefix(text, `"hints"`) {
		require.NoError(t, json.Unmarshal([]byte("{"+text+"}"), &fragment))
		p["payload"].(map[string]any)["hints"] = fragment["hints"]
	} else {
		require.NoError(t, json.Unmarshal([]byte(text), &fragment))
		for member, value := range fragment {
			p[member] = value
		}
	}
	p["message_id"], p["request_id"] = uuid.NewString(), request
	if p["type"] != "error" {
		p["payload"].(map[string]any)["task_id"] = task.String()
	}
	if p["type"] != "work_request" {
		p["from_agent"], p["to_agent"] = "infra", "orchestrator"
	}
	return p
}

// TestDocumentExamples sends every JSON example of the document to a real server over HTTP.
func TestDocumentExamples(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		p := serve(t, data, database)
		c := newClient(t, p.url(t), adminToken(t, data))
		infra := newClient(t, c.URL, c.registerInfra(t, "infra-1", "run_playbook"))
		all := documentExamples(t)
		send := func(from *client, m documentMessage, want int) (answer documentMessage) {
			t.Helper()
			status, body, err := from.do(t.Context(), http.MethodPost, "/api/agent/message", m)
			require.NoError(t, err)
			require.Equal(t, want, status, "%s", body)
			if len(body) > 0 {
				require.NoError(t, json.Unmarshal(body, &answer))
			}
			return answer
		}
		polled := func() (request string) { // the agent is online and has a free slot
			t.Helper()
			status, body, err := infra.do(t.Context(), http.MethodGet, "/api/agent/inbox?wait=20", nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "%s", body)
			var got struct{ Messages []documentMessage }
			require.NoError(t, json.Unmarshal(body, &got))
			require.Len(t, got.Messages, 1)
			return got.Messages[0]["request_id"].(string)
		}
		status, _, err := infra.do(t.Context(), http.MethodGet, "/api/agent/inbox", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)

		// The complete envelope as printed, with every report of the document.
		var first documentMessage
		require.NoError(t, json.Unmarshal([]byte(all["full-envelope"]), &first))
		accepted := send(c, first, http.StatusAccepted)
		require.Equal(t, first["trace_id"], accepted["trace_id"])
		require.Equal(t, first["request_id"], polled())
		task := uuid.MustParse(first["payload"].(map[string]any)["task_id"].(string))
		request := first["request_id"].(string)
		for _, name := range []string{"work_status", "chunk-2", "chunk-1", "chunk-1"} {
			send(infra, wrapExample(t, all, name, task, request), http.StatusAccepted)
		}
		send(infra, wrapExample(t, all, "work_result-success", task, request), http.StatusAccepted)
		ended := send(c, first, http.StatusOK)
		require.Equal(t, "work_result", ended["type"])
		var want documentMessage
		require.NoError(t, json.Unmarshal([]byte(all["work_result-success"]), &want))
		got := ended["payload"].(map[string]any)
		require.Contains(t, got["resources_used"], "cpu_time_ms")
		delete(got["resources_used"].(map[string]any), "tokens")
		require.Equal(t, want["payload"], got)
		status, log, err := c.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.String()+"/output?stream=log", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "Updating config.yaml...\nAdded uptime monitors: 3\n[first 256 KB of output...][next 256 KB of output...]", string(log))

		// The request of a fragment, with the hints of another fragment, fails.
		for _, name := range []string{"work_request", "timeout-hints"} {
			task, request := uuid.New(), uuid.NewString()
			sent := wrapExample(t, all, name, task, request)
			send(c, sent, http.StatusAccepted)
			require.Equal(t, request, polled())
			send(infra, wrapExample(t, all, "work_result-failure", task, request), http.StatusAccepted)
			failed := send(c, sent, http.StatusOK)["payload"].(map[string]any)
			require.Equal(t, "failed", failed["status"])
			require.InDelta(t, 1, failed["exit_code"], 0)
			require.Contains(t, failed["output"], "Docker image pull timeout")
		}

		// An agent without enough memory reports that; the task is retried.
		lack, request := uuid.New(), uuid.NewString()
		send(c, wrapExample(t, all, "work_request", lack, request), http.StatusAccepted)
		require.Equal(t, request, polled())
		send(infra, wrapExample(t, all, "error", lack, request), http.StatusAccepted)
		require.Equal(t, request, polled(), "the second attempt")
		d := get[taskDetail](t, c, "/api/v1/tasks/"+lack.String())
		require.Len(t, d.Attempts, 2)
		require.Equal(t, "failed", d.Attempts[0].State)
		p.stop(t)
	})
}

// TestDocumentWorkflow runs the “Full Workflow” of the document with a real worker: five statuses,
// 20 to 100 percent, and the result.
func TestDocumentWorkflow(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data)
	c := newClient(t, p.url(t), adminToken(t, data))
	w := worker(t, c.URL, c.registerInfra(t, "infra-1", "run_playbook"), `
		for step in 1 2 3 4 5; do
			echo "::progress $((step * 20)) step $step of 5"
			echo "output of step $step"
			sleep 0.3
		done
		echo "::tokens 42"`)
	eventually(t, func() bool { return c.online(t, "infra-1") }, "the worker is online")
	sender, err := comet.NewClient(c.URL, c.Token, c.HTTP)
	require.NoError(t, err)
	r := &comet.Request{To: "infra", WorkType: "run_playbook", Parameters: []byte(`{"playbook":"deploy_kuma.yml"}`)}
	reply, err := sender.Await(t.Context(), r)
	require.NoError(t, err)
	require.True(t, reply.Succeeded, "%s", reply.Raw)
	require.Contains(t, reply.Output, "output of step 5")
	history := get[taskProgress](t, c, "/api/v1/tasks/"+r.TaskID.String())
	var steps []int
	for _, e := range history.Timeline {
		if e.Type == "task.progress" && (len(steps) == 0 || steps[len(steps)-1] != e.Data.Progress) {
			steps = append(steps, e.Data.Progress)
		}
	}
	require.Subset(t, steps, []int{20, 40, 60, 80, 100})
	require.IsIncreasing(t, steps)
	require.Equal(t, "done", history.State)
	require.Equal(t, int64(42), history.Tokens)
	require.Equal(t, int64(42), c.used(t, "infra-1"))
	w.stop(t)
	p.stop(t)
}

// taskProgress is the history of a task.
type taskProgress struct {
	State    string
	Tokens   int64
	Timeline []struct {
		Type string
		Data struct{ Progress int }
	}
}
