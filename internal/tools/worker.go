package tools

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/telemetry"
	"comet/internal/upstream"
	"comet/models"
)

// worker takes tasks for an upstream's agent, as an agent behind a link does.
type worker struct {
	h       *Service
	server  string
	agentID string
	// line names its connection, so that another one's stays when this one goes.
	line string
	stop context.CancelFunc
}

const (
	// sign is how often a worker shows that it lives, and look how often it looks whether it
	// is still taken for there: another replica's may have hung up.
	sign = 10 * time.Second
	look = time.Second
	// strayAfter is when a message that nobody takes is taken away.
	strayAfter = time.Minute
	// farewell is how long it may take to say that it goes.
	farewell = 5 * time.Second
)

// run takes work until ctx ends: the upstream is down, or comet stops.
func (w *worker) run(ctx context.Context) {
	news, over := w.h.work.Inbox(w.agentID)
	defer over()
	var tasks sync.WaitGroup
	under := &underway{tasks: map[string]map[int]context.CancelFunc{}}
	defer tasks.Wait()
	again := time.NewTimer(0)
	defer again.Stop()
	joined, shown := false, time.Time{}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-news:
		case <-again.C:
			if now := w.h.opts.Clock(); !joined || now.Sub(shown) >= sign || w.h.work.CachedWorker(w.agentID).State == models.WorkerOffline {
				joined, shown = w.show(ctx, joined), now
			}
			again.Reset(look)
		}
		if ctx.Err() != nil {
			break
		}
		if joined {
			w.takeAll(ctx, under, &tasks)
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := w.h.work.Disconnect(end, w.agentID, w.line); err != nil && !errs.Is(err, errs.NotFound) {
		w.h.log.Debug("an upstream's agent goes without saying so", "agent", w.agentID, "error", err)
	}
}

// show has the worker known as one that is there.
func (w *worker) show(ctx context.Context, joined bool) bool {
	if joined {
		away, err := w.h.work.KeepAlive(ctx, []string{w.agentID})
		if err == nil && len(away) == 0 {
			return true
		}
	}
	_, err := w.h.work.Join(ctx, w.agentID, orchestrator.JoinRequest{Protocol: upstreamDialect, Transport: "upstream", ConnectionID: w.line, Concurrency: upstreamPlaces})
	if err != nil && ctx.Err() == nil {
		w.h.log.Warn("an upstream's agent cannot take work yet", "agent", w.agentID, "error", err)
	}
	return err == nil
}

// underway are the attempts that a worker makes, by task and number, and what ends each.
type underway struct {
	mu    sync.Mutex
	tasks map[string]map[int]context.CancelFunc
}

func (u *underway) add(task string, attempt int, cancel context.CancelFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tasks[task] == nil {
		u.tasks[task] = map[int]context.CancelFunc{}
	}
	u.tasks[task][attempt] = cancel
}

// end ends one attempt.
func (u *underway) end(task string, attempt int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if cancel := u.tasks[task][attempt]; cancel != nil {
		cancel()
	}
	delete(u.tasks[task], attempt)
	if len(u.tasks[task]) == 0 {
		delete(u.tasks, task)
	}
}

// cancel ends all attempts at a task up to one, and reports whether there was any.
func (u *underway) cancel(task string, upTo int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := false
	for attempt, cancel := range u.tasks[task] {
		if upTo == 0 || attempt <= upTo {
			found = true
			cancel()
		}
	}
	return found
}

// takeAll takes what is in the agent's inbox. Who acknowledges a message first has it: each
// replica has the upstream, and one of them does the work.
func (w *worker) takeAll(ctx context.Context, under *underway, tasks *sync.WaitGroup) {
	all, err := w.h.work.Messages(ctx, w.agentID, 2*upstreamPlaces)
	if err != nil {
		w.h.log.Warn("an upstream's inbox cannot be read", "agent", w.agentID, "error", err)
		return
	}
	for _, m := range all {
		if m.Kind == models.MessageCancel && !under.cancel(m.TaskID, m.Attempt) && w.h.opts.Clock().Sub(m.CreatedAt) < strayAfter {
			continue // another replica has the task, and takes it
		}
		n, err := w.h.work.Acknowledge(ctx, w.agentID, []string{m.ID})
		if err != nil || n == 0 || m.Kind != models.MessageAssign {
			continue
		}
		inner, cancel := context.WithCancel(ctx)
		under.add(m.TaskID, m.Attempt, cancel)
		tasks.Go(func() {
			defer under.end(m.TaskID, m.Attempt)
			w.do(inner, m.TaskID)
		})
	}
}

// do makes the call that a task asks for, and says how it went.
func (w *worker) do(ctx context.Context, taskID string) {
	order, err := w.h.work.TaskWithInput(ctx, taskID)
	if err != nil {
		w.h.log.Warn("a task for an upstream cannot be read", "task", taskID, "error", err)
		return // its deadline passes, and it is tried again
	}
	res, tokens, err := w.call(ctx, order)
	if ctx.Err() != nil && !errors.Is(err, errNotDone) {
		err = errNotDone
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	result := resultOf(res, err)
	result.Tokens, result.Kind = tokens, factKind
	if _, err := w.h.work.Complete(end, w.agentID, taskID, result); err != nil && !errs.Is(err, errs.TaskState) && !errs.Is(err, errs.NotFound) {
		w.h.log.Warn("a task's result is lost; it is tried again", "task", taskID, "error", err)
	}
}

// errNotDone is a call that was broken off: the task was taken back, or the upstream went.
var errNotDone = errors.New("broken off")

// call makes the call of a task, on behalf of whoever asked for it. What it cost is the
// agent's that does it, and settled with the task.
func (w *worker) call(ctx context.Context, order orchestrator.TaskWithInput) (*mcp.CallToolResult, int64, error) {
	name, err := w.toolOf(order.Input.Capabilities)
	if err != nil {
		return nil, 0, err
	}
	by := Caller{
		Principal: models.Principal{TokenID: order.Task.Owner, Name: "task " + order.Task.ID, Scopes: []models.Scope{models.ScopeToolsCall}},
		Door:      DoorTask, TaskID: order.Task.ID, Session: order.Task.SessionID, TraceID: telemetry.TraceID(order.Input.Trace), Payer: w.agentID,
	}
	news := upstream.TellLatest(func(p upstream.Progress) { w.progress(ctx, order.Task.ID, p) })
	defer news.Close()
	res, err := w.h.Call(ctx, by, name, order.Input.Parameters, &CallOptions{Progress: news.Put})
	said := saidOf(order.Input.Parameters, res)
	return res, w.h.trail.count.count(said.texts...), err
}

func (w *worker) progress(ctx context.Context, taskID string, p upstream.Progress) {
	step := orchestrator.Progress{StepName: strings.ToValidUTF8(textTo(p.Message, 200), "?")}
	if p.Total > 0 {
		step.Percent = new(max(min(int(100*p.Progress/p.Total), 99), 0))
	}
	if _, err := w.h.work.Progress(ctx, w.agentID, taskID, step); err != nil {
		w.h.log.Debug("a task's progress is not told", "task", taskID, "error", err)
	}
}

// toolOf is the tool that the capabilities of a task name.
func (w *worker) toolOf(capabilities []string) (string, error) {
	var found []string
	for _, name := range capabilities {
		if id := models.CapabilityKey(name); strings.HasPrefix(id, w.server+":") {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", refusal(CodeToolNotFound, "a task for the MCP server %s has to name one of its tools as capability: custom:%s:<tool>", w.server, w.server)
	}
	return "", refusal(CodeInvalidArguments, "a task for the MCP server %s is for one tool, not for %d", w.server, len(found))
}

// resultOf is a call's end as the orchestrator has it.
func resultOf(res *mcp.CallToolResult, err error) orchestrator.Result {
	if err != nil {
		if errors.Is(err, errNotDone) || errors.Is(err, context.Canceled) {
			return orchestrator.Result{Failure: orchestrator.FailureUnavailable, Text: "the upstream went before it answered"}
		}
		e := toError(err)
		return orchestrator.Result{Failure: failureOf(e), Text: e.Error()}
	}
	if res.IsError {
		_, why := valueOf(res)
		return orchestrator.Result{Failure: orchestrator.FailureWork, Text: textTo(strings.ToValidUTF8(why.Error(), "?"), 2000)}
	}
	if len(res.Content) == 1 && res.StructuredContent == nil {
		if t, ok := res.Content[0].(*mcp.TextContent); ok {
			return orchestrator.Result{Output: []byte(t.Text)}
		}
	}
	out, err := valueOf(res)
	if err != nil {
		return orchestrator.Result{Failure: orchestrator.FailureWork, Text: "the tool's result is no JSON"}
	}
	return orchestrator.Result{Output: out}
}

// failureOf says what a failed call is to the orchestrator: whether it is worth another
// attempt.
func failureOf(e *Error) orchestrator.Failure {
	switch e.Code {
	case CodeToolNotFound:
		return orchestrator.FailureUnsupported
	case CodeInvalidArguments, CodePermissionDenied:
		return orchestrator.FailureInvalid
	case CodeBudgetExceeded:
		return orchestrator.FailureBudget
	case CodeServerError:
		switch e.Details["reason"] {
		case "timeout":
			return orchestrator.FailureTimeout
		case "down", "busy":
			return orchestrator.FailureUnavailable
		}
		if e.refused {
			return orchestrator.FailureUnavailable
		}
	}
	return orchestrator.FailureWork
}
