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

// wrapExample puts a fragment into the first example's envelope, as a message about a task.
// Reports are an agent's: they go the other way.
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

// TestTheDocumentsExamples sends every JSON example of the document over HTTP, to a real
// server.
func TestTheDocumentsExamples(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		p := serve(t, data, database)
		c := newClient(t, p.url(t), adminToken(t, data))
		infra := &client{c.url, c.registerInfra(t, "infra-1", "run_playbook"), c.http}
		all := documentExamples(t)
		say := func(who *client, m documentMessage, want int) (answer documentMessage) {
			t.Helper()
			status, body, err := who.do(t.Context(), http.MethodPost, "/api/agent/message", m)
			require.NoError(t, err)
			require.Equal(t, want, status, "%s", body)
			if len(body) > 0 {
				require.NoError(t, json.Unmarshal(body, &answer))
			}
			return answer
		}
		polled := func() (request string) { // the agent is there, and has its place free
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

		// The full envelope as it is printed, done with every report of the document.
		var first documentMessage
		require.NoError(t, json.Unmarshal([]byte(all["full-envelope"]), &first))
		taken := say(c, first, http.StatusAccepted)
		require.Equal(t, first["trace_id"], taken["trace_id"])
		require.Equal(t, first["request_id"], polled())
		task := uuid.MustParse(first["payload"].(map[string]any)["task_id"].(string))
		request := first["request_id"].(string)
		for _, name := range []string{"work_status", "chunk-2", "chunk-1", "chunk-1"} {
			say(infra, wrapExample(t, all, name, task, request), http.StatusAccepted)
		}
		say(infra, wrapExample(t, all, "work_result-success", task, request), http.StatusAccepted)
		ended := say(c, first, http.StatusOK)
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

		// The request as a fragment, with the hints of its own fragment, fails.
		for _, name := range []string{"work_request", "timeout-hints"} {
			task, request := uuid.New(), uuid.NewString()
			asked := wrapExample(t, all, name, task, request)
			say(c, asked, http.StatusAccepted)
			require.Equal(t, request, polled())
			say(infra, wrapExample(t, all, "work_result-failure", task, request), http.StatusAccepted)
			failed := say(c, asked, http.StatusOK)["payload"].(map[string]any)
			require.Equal(t, "failed", failed["status"])
			require.InDelta(t, 1, failed["exit_code"], 0)
			require.Contains(t, failed["output"], "Docker image pull timeout")
		}

		// An agent without the memory says so; the work is tried again.
		lack, request := uuid.New(), uuid.NewString()
		say(c, wrapExample(t, all, "work_request", lack, request), http.StatusAccepted)
		require.Equal(t, request, polled())
		say(infra, wrapExample(t, all, "error", lack, request), http.StatusAccepted)
		require.Equal(t, request, polled(), "the second attempt")
		d := get[taskDetail](t, c, "/api/v1/tasks/"+lack.String())
		require.Len(t, d.Attempts, 2)
		require.Equal(t, "failed", d.Attempts[0].State)
		p.stop(t)
	})
}

// TestTheDocumentsWorkflow runs the “Full Workflow” of the document with a real worker:
// five statuses, 20 to 100 percent, and the result.
func TestTheDocumentsWorkflow(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data)
	c := newClient(t, p.url(t), adminToken(t, data))
	w := worker(t, c.url, c.registerInfra(t, "infra-1", "run_playbook"), `
		for step in 1 2 3 4 5; do
			echo "::progress $((step * 20)) step $step of 5"
			echo "output of step $step"
			sleep 0.3
		done
		echo "::tokens 42"`)
	eventually(t, func() bool { return c.online(t, "infra-1") }, "the worker is there")
	speak, err := comet.NewClient(c.url, c.token, c.http)
	require.NoError(t, err)
	r := &comet.Request{To: "infra", WorkType: "run_playbook", Parameters: []byte(`{"playbook":"deploy_kuma.yml"}`)}
	reply, err := speak.Await(t.Context(), r)
	require.NoError(t, err)
	require.True(t, reply.Succeeded, "%s", reply.Raw)
	require.Contains(t, reply.Output, "output of step 5")
	told := get[taskProgress](t, c, "/api/v1/tasks/"+r.TaskID.String())
	var steps []int
	for _, e := range told.Timeline {
		if e.Type == "task.progress" && (len(steps) == 0 || steps[len(steps)-1] != e.Data.Progress) {
			steps = append(steps, e.Data.Progress)
		}
	}
	require.Subset(t, steps, []int{20, 40, 60, 80, 100})
	require.IsIncreasing(t, steps)
	require.Equal(t, "done", told.State)
	require.Equal(t, int64(42), told.Tokens)
	require.Equal(t, int64(42), c.used(t, "infra-1"))
	w.stop(t)
	p.stop(t)
}

// taskProgress is how a task went.
type taskProgress struct {
	State    string
	Tokens   int64
	Timeline []struct {
		Type string
		Data struct{ Progress int }
	}
}
