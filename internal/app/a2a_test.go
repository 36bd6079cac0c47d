package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestA2A: a client of A2A gives a task to an agent of PROTOCOL_V5, in the whole program.
func TestA2A(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		cfg := configured(t, database)
		a := startWithV5(t, cfg, nil)
		c := newClient(t, a.URL(), adminToken(t, cfg.Data))
		worker := dialTCP(t, a.V5Addr())
		own := worker.join(";name=digger;caps=custom:dig")
		eventually(t, func() bool { return c.online(t, "v5-digger") }, "the agent is online")

		status, card, err := c.do(t.Context(), http.MethodGet, "/.well-known/agent-card.json", nil, "Authorization", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(card), a.URL()+"/a2a/rest")

		send := func(id, taskID string) (out struct {
			Task struct {
				ID        string
				Status    struct{ State string }
				Artifacts []struct{ Parts []struct{ Text string } }
			}
		}) {
			message := map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]string{"text": "deep"}}, "metadata": map[string]string{"capability": "dig"}}
			if taskID != "" {
				message["taskId"] = taskID
			}
			status, body, err := c.do(t.Context(), http.MethodPost, "/a2a/rest/message:send", map[string]any{"message": message}, "A2A-Version", "1.0")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.NoError(t, json.Unmarshal(body, &out))
			return out
		}
		worked := make(chan struct{})
		go func() {
			defer close(worked)
			request := strings.Split(worker.next(), "|")
			worker.send("M2|" + own + ">O1|C|" + request[3] + "|P2|R|-|0|" + request[8] + "|-|question=how deep?")
			for line := worker.next(); ; line = worker.next() {
				if reply := strings.Split(line, "|"); reply[2] == "C" {
					worker.send("M3|" + own + ">O1|S|" + request[3] + "|P2|D|-|0|" + request[8] + "|-|hole=1")
					return
				}
			}
		}()
		asked := send("m-1", "")
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Task.Status.State)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := c.Open(ctx, http.MethodPost, "/a2a/rest/tasks/"+asked.Task.ID+":subscribe", "", "A2A-Version", "1.0")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		require.True(t, lines.Scan())
		require.True(t, strings.HasPrefix(lines.Text(), "id: "), lines.Text())

		done := send("m-2", asked.Task.ID)
		<-worked
		require.Equal(t, "TASK_STATE_COMPLETED", done.Task.Status.State)
		require.Equal(t, "hole=1", done.Task.Artifacts[0].Parts[0].Text)
		var last string
		for lines.Scan() {
			if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
				last = data
			}
		}
		require.Contains(t, last, "TASK_STATE_COMPLETED")
		require.Equal(t, http.StatusNotFound, c.status(t, "/a2a/rest/tasks/none?A2A-Version=1.0"))
		_, metrics, err := c.do(t.Context(), http.MethodGet, "/metrics", nil)
		require.NoError(t, err)
		require.Contains(t, string(metrics), `comet_failures_total{api="a2a",code="TASK_NOT_FOUND"} 1`)
	})
}
