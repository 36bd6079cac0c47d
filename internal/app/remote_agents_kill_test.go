package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/testkit/loopback"
)

// TestRemoteAgentsRunOnce kills a server whose agent is a remote A2A agent, another server: before the remote agent has the task, while it
// works, and after it has finished. Every task ends with its result, and is executed once.
func TestRemoteAgentsRunOnce(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		remoteData := t.TempDir()
		far := serve(t, remoteData)
		remote := newClient(t, far.url(t), adminToken(t, remoteData))
		var mu sync.Mutex
		runs, hold := map[int]int{}, make(chan struct{}, 1)
		begun := make(chan int, 100)
		a, err := comet.New(remote.URL, remote.registerInfra(t, "infra-far", "job"), &comet.Options{Concurrency: 4, Drain: -1})
		require.NoError(t, err)
		a.Handle("job", func(ctx context.Context, w *comet.Work) (comet.Result, error) {
			var p struct{ N int }
			if err := w.Decode(&p); err != nil {
				return comet.Result{}, err
			}
			mu.Lock()
			runs[p.N]++
			mu.Unlock()
			begun <- p.N
			for {
				select {
				case <-hold:
					return comet.Result{Output: fmt.Sprintf(`{"n":%d}`, p.N)}, nil
				case <-time.After(5 * time.Second): // it is not silent
					_ = w.Progress(50, "half")
				case <-ctx.Done():
					return comet.Result{}, ctx.Err()
				}
			}
		})
		runInBackground(t, a)

		data, address := t.TempDir(), loopback.Address(t)
		settings := []setting{database, env("COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.1")}
		p := serveAt(t, data, address, settings...)
		c := newClient(t, p.url(t), adminToken(t, data))
		c.registerInfra(t, "infra-near", "job")
		status, body, err := c.do(t.Context(), http.MethodPut, "/api/v1/agents/infra-near/a2a", map[string]any{
			"card_url": remote.URL + "/.well-known/agent-card.json", "auth": map[string]string{"type": "bearer", "secret": remote.Token},
		})
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status, "%s", body)
		kill := func() {
			p.kill()
			p = serveAt(t, data, address, settings...)
			p.url(t)
		}
		for i := range kills(t) {
			var task struct {
				ID    string
				State string
			}
			status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/tasks", map[string]any{
				"capabilities": []string{"job"}, "parameters": map[string]int{"n": i}, "timeout_ms": 600_000,
			})
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, status, "%s", body)
			require.NoError(t, json.Unmarshal(body, &task))
			if i%3 == 0 {
				kill()
			}
			<-begun
			if i%3 == 1 {
				kill()
			}
			hold <- struct{}{}
			if i%3 == 2 {
				kill()
			}
			eventually(t, func() bool {
				status, body, err := c.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID, nil)
				return err == nil && status == http.StatusOK && json.Unmarshal(body, &task) == nil && (task.State == "done" || task.State == "failed")
			}, "the task ends")
			require.Equal(t, "done", task.State)
			out, err := c.Send(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID+"/output", "")
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, i), out.String())
		}
		mu.Lock()
		defer mu.Unlock()
		for n, times := range runs {
			require.Equal(t, 1, times, "the task %d", n)
		}
		p.stop(t)
	})
}
