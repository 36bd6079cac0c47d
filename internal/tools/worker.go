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

// upstreamWorker takes tasks for an upstream's agent, as an agent behind a link does.
type upstreamWorker struct {
	svc     *Service
	server  string
	agentID string
	// connectionID names its connection, so that another one's stays when this one goes.
	connectionID string
	stop         context.CancelFunc
}

const (
	// heartbeatInterval is how often a worker shows that it lives, and look how often it looks whether it
	// is still taken for there: another replica's may have hung up.
	heartbeatInterval = 10 * time.Second
	pollInterval      = time.Second
	// orphanedAfter is when a message that nobody takes is taken away.
	orphanedAfter = time.Minute
	// goodbyeTimeout is how long it may take to say that it goes.
	goodbyeTimeout = 5 * time.Second
)

// run takes work until ctx ends: the upstream is down, or comet stops.
func (w *upstreamWorker) run(ctx context.Context) {
	news, over := w.svc.orchestrator.Inbox(w.agentID)
	defer over()
	var tasks sync.WaitGroup
	under := &attempts{tasks: map[string]map[int]context.CancelFunc{}}
	defer tasks.Wait()
	again := time.NewTimer(0)
	defer again.Stop()
	joined, shown := false, time.Time{}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-news:
		case <-again.C:
			if now := w.svc.opts.Clock(); !joined || now.Sub(shown) >= heartbeatInterval || w.svc.orchestrator.CachedWorker(w.agentID).State == models.WorkerOffline {
				joined, shown = w.stayJoined(ctx, joined), now
			}
			again.Reset(pollInterval)
		}
		if ctx.Err() != nil {
			break
		}
		if joined {
			w.processInbox(ctx, under, &tasks)
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	if err := w.svc.orchestrator.Disconnect(end, w.agentID, w.connectionID); err != nil && !errs.Is(err, errs.NotFound) {
		w.svc.log.Debug("an upstream's agent goes without saying so", "agent", w.agentID, "error", err)
	}
}

// stayJoined has the worker known as one that is there.
func (w *upstreamWorker) stayJoined(ctx context.Context, joined bool) bool {
	if joined {
		away, err := w.svc.orchestrator.KeepAlive(ctx, []string{w.agentID})
		if err == nil && len(away) == 0 {
			return true
		}
	}
	_, err := w.svc.orchestrator.Join(ctx, w.agentID, orchestrator.JoinRequest{Protocol: workerProtocol, Transport: "upstream", ConnectionID: w.connectionID, Concurrency: workerConcurrency})
	if err != nil && ctx.Err() == nil {
		w.svc.log.Warn("an upstream's agent cannot take work yet", "agent", w.agentID, "error", err)
	}
	return err == nil
}

// attempts are the attempts that a worker makes, by task and number, and what ends each.
type attempts struct {
	mu    sync.Mutex
	tasks map[string]map[int]context.CancelFunc
}

func (u *attempts) add(task string, attempt int, cancel context.CancelFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tasks[task] == nil {
		u.tasks[task] = map[int]context.CancelFunc{}
	}
	u.tasks[task][attempt] = cancel
}

// finish ends one attempt.
func (u *attempts) finish(task string, attempt int) {
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

// cancelUpTo ends all attempts at a task up to one, and reports whether there was any.
func (u *attempts) cancelUpTo(task string, upTo int) bool {
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

// processInbox takes what is in the agent's inbox. Who acknowledges a message first has it: each
// replica has the upstream, and one of them does the work.
func (w *upstreamWorker) processInbox(ctx context.Context, under *attempts, tasks *sync.WaitGroup) {
	all, err := w.svc.orchestrator.Messages(ctx, w.agentID, 2*workerConcurrency)
	if err != nil {
		w.svc.log.Warn("an upstream's inbox cannot be read", "agent", w.agentID, "error", err)
		return
	}
	for _, m := range all {
		if m.Kind == models.MessageCancel && !under.cancelUpTo(m.TaskID, m.Attempt) && w.svc.opts.Clock().Sub(m.CreatedAt) < orphanedAfter {
			continue // another replica has the task, and takes it
		}
		n, err := w.svc.orchestrator.Acknowledge(ctx, w.agentID, []string{m.ID})
		if err != nil || n == 0 || m.Kind != models.MessageAssign {
			continue
		}
		inner, cancel := context.WithCancel(ctx)
		under.add(m.TaskID, m.Attempt, cancel)
		tasks.Go(func() {
			defer under.finish(m.TaskID, m.Attempt)
			w.runTask(inner, m.TaskID)
		})
	}
}

// runTask makes the call that a task asks for, and says how it went.
func (w *upstreamWorker) runTask(ctx context.Context, taskID string) {
	order, err := w.svc.orchestrator.TaskWithInput(ctx, taskID)
	if err != nil {
		w.svc.log.Warn("a task for an upstream cannot be read", "task", taskID, "error", err)
		return // its deadline passes, and it is tried again
	}
	res, tokens, err := w.call(ctx, order)
	if ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		err = errInterrupted
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	result := taskOutcome(res, err)
	result.Tokens, result.Kind = tokens, factKind
	if _, err := w.svc.orchestrator.Complete(end, w.agentID, taskID, result); err != nil && !errs.Is(err, errs.TaskState) && !errs.Is(err, errs.NotFound) {
		w.svc.log.Warn("a task's result is lost; it is tried again", "task", taskID, "error", err)
	}
}

// errInterrupted is a call that was broken off: the task was taken back, or the upstream went.
var errInterrupted = errors.New("broken off")

// call makes the call of a task, on behalf of whoever asked for it. What it cost is the
// agent's that does it, and settled with the task.
func (w *upstreamWorker) call(ctx context.Context, order orchestrator.TaskWithInput) (*mcp.CallToolResult, int64, error) {
	name, err := w.taskTool(order.Input.Capabilities)
	if err != nil {
		return nil, 0, err
	}
	by := Caller{
		Principal: models.Principal{TokenID: order.Task.Owner, Name: "task " + order.Task.ID, Scopes: []models.Scope{models.ScopeToolsCall}},
		Via:       ViaTask, TaskID: order.Task.ID, Session: order.Task.SessionID, TraceID: telemetry.TraceID(order.Input.Trace), Payer: w.agentID,
	}
	news := upstream.NewLatestProgress(func(p upstream.Progress) { w.progress(ctx, order.Task.ID, p) })
	defer news.Close()
	res, err := w.svc.Call(ctx, by, name, order.Input.Parameters, &CallOptions{Progress: news.Update})
	said := textOf(order.Input.Parameters, res)
	return res, w.svc.auditLog.tokens.count(said.texts...), err
}

func (w *upstreamWorker) progress(ctx context.Context, taskID string, p upstream.Progress) {
	step := orchestrator.Progress{StepName: strings.ToValidUTF8(truncate(p.Message, 200), "?")}
	if p.Total > 0 {
		step.Percent = new(max(min(int(100*p.Progress/p.Total), 99), 0))
	}
	if _, err := w.svc.orchestrator.Progress(ctx, w.agentID, taskID, step); err != nil {
		w.svc.log.Debug("a task's progress is not told", "task", taskID, "error", err)
	}
}

// taskTool is the tool that the capabilities of a task name.
func (w *upstreamWorker) taskTool(capabilities []string) (string, error) {
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
		return "", newRefusal(CodeToolNotFound, "a task for the MCP server %s has to name one of its tools as capability: custom:%s:<tool>", w.server, w.server)
	}
	return "", newRefusal(CodeInvalidArguments, "a task for the MCP server %s is for one tool, not for %d", w.server, len(found))
}

// taskOutcome is a call's end as the orchestrator has it.
func taskOutcome(res *mcp.CallToolResult, err error) orchestrator.Result {
	if err != nil {
		if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) {
			return orchestrator.Result{Failure: orchestrator.FailureUnavailable, Text: "the upstream went before it answered"}
		}
		e := toError(err)
		return orchestrator.Result{Failure: failureKind(e), Text: e.Error()}
	}
	if res.IsError {
		_, why := valueOf(res)
		return orchestrator.Result{Failure: orchestrator.FailureWork, Text: truncate(strings.ToValidUTF8(why.Error(), "?"), 2000)}
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

// failureKind says what a failed call is to the orchestrator: whether it is worth another
// attempt.
func failureKind(e *Error) orchestrator.Failure {
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
