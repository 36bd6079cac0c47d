package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/events"
	"comet/models"
)

// serveAt is serve with a given address.
func serveAt(t *testing.T, data, address string, settings ...setting) *process {
	t.Helper()
	return start(t, []string{"serve", "--listen", address, "--data", data}, settings...)
}

// registerInfra registers an agent with capabilities and returns its token.
func (c *client) registerInfra(t *testing.T, id string, capabilities ...string) (token string) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": capabilities, "type": "infra", "token_budget": 100_000,
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	return c.createToken(t, id)
}

func (c *client) createToken(t *testing.T, id string) string {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"name": id, "scopes": []string{"agents:write"}, "agent_id": id})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	var issued struct{ Token string }
	require.NoError(t, json.Unmarshal(body, &issued))
	return issued.Token
}

// jobRunner runs agents that do the work type job: the result contains its parameter.
type jobRunner struct {
	runs   atomic.Int64 // calls of the function
	tokens int64
}

// runAgent runs an agent of the package until the test ends.
func (j *jobRunner) runAgent(t *testing.T, url, token string, concurrency int) {
	t.Helper()
	a, err := comet.New(url, token, &comet.Options{Concurrency: concurrency, Drain: -1})
	require.NoError(t, err)
	a.Handle("job", func(ctx context.Context, w *comet.Work) (comet.Result, error) {
		j.runs.Add(1)
		var p struct{ N int }
		if err := w.Decode(&p); err != nil {
			return comet.Result{}, err
		}
		if err := w.Progress(50, "half"); err != nil {
			return comet.Result{}, err
		}
		w.Tokens(j.tokens)
		return comet.Result{Output: "job " + strconv.Itoa(p.N)}, nil
	})
	runInBackground(t, a)
}

// runInBackground runs an agent until the test ends.
func runInBackground(t *testing.T, a *comet.Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_ = a.Run(ctx) // the first connection may meet a stopped server
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// job is one submitted task.
type job struct {
	n       int
	request comet.Request
}

// submitUntilAccepted submits a job until the server accepts it. It returns false if the test ends
// first.
func submitUntilAccepted(ctx context.Context, c *comet.Client, j *job) bool {
	for ctx.Err() == nil {
		reply, err := c.Send(ctx, &j.request, 0)
		if err == nil && (reply.Code == 0 || !isTransient(reply)) {
			return true
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}

// isTransient reports whether the server was temporarily unavailable, which says nothing about the
// task.
func isTransient(r comet.Response) bool {
	var about struct {
		AgentID string `json:"agent_id"`
	}
	return r.Code == 5002 && json.Unmarshal(r.Context, &about) == nil && about.AgentID == "orchestrator"
}

func newJob(n int, budget int64) *job {
	return &job{n: n, request: comet.Request{
		To: "infra", WorkType: "job", Parameters: fmt.Appendf(nil, `{"n":%d}`, n), Hints: comet.Hints{MaxDuration: 10 * time.Second, MaxTokens: budget},
		TaskID: uuid.New(), RequestID: uuid.New(), TraceID: uuid.New(),
	}}
}

// taskDetail is a task as the server shows it.
type taskDetail struct {
	ID, State string
	Failure   *string
	Tokens    int64
	Attempts  []struct {
		AgentID *string `json:"agent_id"`
		State   string
		Tokens  int64
	}
	Timeline []struct{ Type string }
}

func (d taskDetail) ended() bool {
	return d.State == "done" || d.State == "failed" || d.State == "cancelled"
}

// endEvents returns the number of end events in the timeline.
func (d taskDetail) endEvents() (n int) {
	for _, e := range d.Timeline {
		switch models.EventType(e.Type) {
		case events.TaskCompleted, events.TaskFailed, events.TaskCancelled:
			n++
		}
	}
	return n
}

// waitSettled waits until a task has ended, and checks what must be true of every ended task.
func (c *client) waitSettled(t *testing.T, j *job) taskDetail {
	t.Helper()
	var d taskDetail
	eventually(t, func() bool {
		d = get[taskDetail](t, c, "/api/v1/tasks/"+j.request.TaskID.String())
		return d.ended()
	}, "the task ends")
	require.Equal(t, 1, d.endEvents(), "%s ended once", d.ID)
	sum := int64(0)
	for _, a := range d.Attempts {
		require.NotContains(t, []string{"assigned", "running"}, a.State)
		sum += a.Tokens
	}
	require.Equal(t, sum, d.Tokens, "%+v", d)
	if d.State == "done" {
		_, body, err := c.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+d.ID+"/output", nil)
		require.NoError(t, err)
		require.Equal(t, "job "+strconv.Itoa(j.n), string(body))
	}
	return d
}

// charges is what agents must be charged for: the usage of their attempts at some tasks.
type charges struct {
	client *client
	tasks  map[uuid.UUID]taskDetail
}

// settle waits for the end of the tasks and returns their charges.
func (c *client) settle(t *testing.T, all ...*job) *charges {
	t.Helper()
	out := &charges{c, map[uuid.UUID]taskDetail{}}
	for _, j := range all {
		out.tasks[j.request.TaskID] = c.waitSettled(t, j)
	}
	return out
}

// tokensOf returns what an agent must be charged. Tasks with several attempts are read again,
// because a withdrawn attempt may report its usage late.
func (c *charges) tokensOf(t *testing.T, agentID string) (sum int64) {
	t.Helper()
	for id, d := range c.tasks {
		if len(d.Attempts) > 1 {
			d = get[taskDetail](t, c.client, "/api/v1/tasks/"+id.String())
		}
		for _, a := range d.Attempts {
			if a.AgentID != nil && *a.AgentID == agentID {
				sum += a.Tokens
			}
		}
	}
	return sum
}

// requireSettled checks that the agents have no reservations and no tasks, and that each was
// charged once for its attempts.
func (c *charges) requireSettled(t *testing.T, agents ...string) {
	t.Helper()
	for _, id := range agents {
		held := get[struct{ Reservations []any }](t, c.client, "/api/v1/agents/"+id+"/reservations?state=held")
		require.Empty(t, held.Reservations, id)
		eventually(t, func() bool { return c.tokensOf(t, id) == c.client.used(t, id) }, id+" is charged what its attempts used, once")
		worker := get[struct {
			InFlight int `json:"in_flight"`
		}](t, c.client, "/api/v1/workers/"+id)
		require.Zero(t, worker.InFlight, id)
	}
}
