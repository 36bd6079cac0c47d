package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/telemetry"
	"comet/internal/upstream"
	"comet/models"
)

// upstreamWorker executes tasks of an upstream's agent, like a worker behind a transport.
type upstreamWorker struct {
	svc     *Service
	server  string
	agentID string
	// connectionID identifies this worker's connection, so that it disconnects no other one.
	connectionID string
	stop         context.CancelFunc
}

const (
	// heartbeatInterval is how often a worker sends a heartbeat, and pollInterval how often it
	// checks whether it is still online, because another replica may have disconnected it.
	heartbeatInterval = 10 * time.Second
	pollInterval      = time.Second
	// orphanedAfter is the age at which a cancellation without a running attempt is removed.
	orphanedAfter = time.Minute
	// goodbyeTimeout limits the last requests of a worker.
	goodbyeTimeout = 5 * time.Second
)

// run executes tasks until ctx ends, because the upstream is down or comet stops.
func (w *upstreamWorker) run(ctx context.Context) {
	wake, over := w.svc.orchestrator.Inbox(w.agentID)
	defer over()
	var tasks sync.WaitGroup
	var running attempts
	defer tasks.Wait()
	joined, shown := false, time.Time{}
	background.NewPollLoop(background.PollOptions{Signal: wake}, func(ctx context.Context) (time.Duration, error) {
		if now := w.svc.opts.Clock(); !joined || now.Sub(shown) >= heartbeatInterval || w.svc.orchestrator.CachedWorker(w.agentID).State == models.WorkerOffline {
			joined, shown = w.stayJoined(ctx, joined), now
		}
		if joined && ctx.Err() == nil {
			w.processInbox(ctx, &running, &tasks)
		}
		return pollInterval, nil
	}).Run(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	if err := w.svc.orchestrator.Disconnect(end, w.agentID, w.connectionID); err != nil && !errs.Is(err, errs.NotFound) {
		w.svc.log.Debug("disconnect the agent of an upstream", "agent", w.agentID, "error", err)
	}
}

// stayJoined sends a heartbeat, or joins if the worker is offline; it reports success.
func (w *upstreamWorker) stayJoined(ctx context.Context, joined bool) bool {
	if joined {
		away, err := w.svc.orchestrator.KeepAlive(ctx, []string{w.agentID})
		if err == nil && len(away) == 0 {
			return true
		}
	}
	_, err := w.svc.orchestrator.Join(ctx, w.agentID, orchestrator.JoinRequest{Protocol: workerProtocol, Transport: "upstream", ConnectionID: w.connectionID, Concurrency: workerConcurrency})
	if err != nil && ctx.Err() == nil {
		w.svc.log.Warn("join as the agent of an upstream; retrying", "agent", w.agentID, "error", err)
	}
	return err == nil
}

type attempt struct {
	task   string
	number int
}

// attempts are the running attempts of a worker, each with its context.CancelFunc.
type attempts struct{ sync.Map }

// cancelUpTo cancels the attempts of a task up to a number, 0 for all; found is false for none.
func (u *attempts) cancelUpTo(upTo attempt) (found bool) {
	for a, cancel := range u.Range {
		if a := a.(attempt); a.task == upTo.task && (upTo.number == 0 || a.number <= upTo.number) {
			found = true
			cancel.(context.CancelFunc)()
		}
	}
	return found
}

// processInbox handles the messages of the agent's inbox. All replicas have the upstream; the one
// that acknowledges a message first executes it.
func (w *upstreamWorker) processInbox(ctx context.Context, running *attempts, tasks *sync.WaitGroup) {
	all, err := w.svc.orchestrator.Messages(ctx, w.agentID, 2*workerConcurrency)
	if err != nil {
		w.svc.log.Warn("read the inbox of an upstream's agent", "agent", w.agentID, "error", err)
		return
	}
	for _, m := range all {
		this := attempt{m.TaskID, m.Attempt}
		if m.Kind == models.MessageCancel && !running.cancelUpTo(this) && w.svc.opts.Clock().Sub(m.CreatedAt) < orphanedAfter {
			continue // another replica has the attempt and handles the message
		}
		n, err := w.svc.orchestrator.Acknowledge(ctx, w.agentID, []string{m.ID})
		if err != nil || n == 0 || m.Kind != models.MessageAssign {
			continue
		}
		inner, cancel := context.WithCancel(ctx)
		running.Store(this, cancel)
		tasks.Go(func() {
			defer cancel()
			defer running.Delete(this)
			w.runTask(inner, this)
		})
	}
}

func (w *upstreamWorker) runTask(ctx context.Context, this attempt) {
	task, err := w.svc.orchestrator.TaskWithInput(ctx, this.task)
	if err != nil {
		w.svc.log.Warn("read a task of an upstream", "task", this.task, "error", err)
		return // the task is retried after its deadline
	}
	res, tokens, err := w.call(ctx, task, this)
	if errors.Is(err, errNotBegun) {
		w.svc.log.Debug("an attempt of an upstream does not call the tool", "task", this.task, "error", err)
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	result := taskOutcome(res, err)
	result.Tokens, result.Kind, result.Attempt = tokens, factKind, this.number
	if _, err := w.svc.orchestrator.Complete(end, w.agentID, this.task, result); err != nil && !errs.Is(err, errs.TaskState) && !errs.Is(err, errs.NotFound) {
		w.svc.log.Warn("complete a task of an upstream; it will be retried", "task", this.task, "error", err)
	}
}

var (
	// errInterrupted is the error of a call whose task was cancelled or whose worker stopped.
	errInterrupted = errors.New("interrupted")
	// errNotBegun is the error of a call that must not begin, because its attempt has ended or cannot be recorded.
	errNotBegun = errors.New("the call has not begun")
)

// begin records that an attempt calls a tool that must not be called again if the result is lost. It returns OUTCOME_UNKNOWN
// if an earlier attempt may have acted.
func (w *upstreamWorker) begin(ctx context.Context, this attempt) error {
	earlier, err := w.svc.orchestrator.Attempts(ctx, this.task)
	for _, a := range earlier { // AttemptFailed: its worker has reported that the tool has not acted
		if a.Attempt < this.number && a.AcceptedAt != nil && a.State != models.AttemptFailed && a.AgentID == w.agentID {
			return errOutcomeUnknown("the result of the attempt %d was lost", a.Attempt)
		}
	}
	if err == nil {
		var t models.Task
		if t, err = w.svc.orchestrator.Accept(ctx, w.agentID, this.task); err == nil && t.Attempt != this.number {
			err = errors.New("a newer attempt has begun")
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	}
	return fmt.Errorf("%w: %w", errNotBegun, err)
}

// outcomeUnknown is the name of the error of a call that may have acted and is not repeated.
const outcomeUnknown = "OUTCOME_UNKNOWN"

// errOutcomeUnknown returns the error OUTCOME_UNKNOWN. Its reason is a clause.
func errOutcomeUnknown(reason string, args ...any) error {
	return NewError(errs.UpstreamFailed, outcomeUnknown, "%s; the tool may have acted, so it is not called again", fmt.Sprintf(reason, args...))
}

// call calls the tool of a task for its requester and charges the agent with the task.
func (w *upstreamWorker) call(ctx context.Context, task orchestrator.TaskWithInput, this attempt) (*mcp.CallToolResult, int64, error) {
	name, err := w.taskTool(task.Input.Capabilities)
	if err != nil {
		return nil, 0, err
	}
	t := w.svc.catalogue.Load().byName[name]
	once := t != nil && !t.IsRepeatable()
	if once {
		if err := w.begin(ctx, this); err != nil {
			return nil, 0, err
		}
	}
	by := Caller{
		Principal: models.Principal{TokenID: task.Task.Owner, Name: "task " + task.Task.ID, Scopes: []models.Scope{models.ScopeToolsCall}},
		Source:    SourceTask, TaskID: task.Task.ID, Session: task.Task.SessionID, TraceID: telemetry.TraceID(task.Input.Trace), Payer: w.agentID,
	}
	if task.Task.OwnerAgent != "" {
		by.Principal.AgentID = &task.Task.OwnerAgent
	}
	news := upstream.NewNotifications()
	defer news.Close()
	res, err := w.svc.CallTool(ctx, by, name, task.Input.Parameters, &CallOptions{Progress: func(p upstream.Progress) {
		news.Add(func() { w.progress(ctx, task.Task.ID, p) })
	}})
	tokens := w.svc.auditLog.tokens.count(append([]string{string(task.Input.Parameters)}, textsOf(res)...)...)
	switch {
	case err == nil:
		out, err := res.Decoded()
		return out, tokens, err
	case ctx.Err() != nil && once:
		err = errOutcomeUnknown("the call was interrupted")
	case ctx.Err() != nil:
		err = errInterrupted
	case once && ErrorDetails(err)[upstream.MayHaveActed] == true:
		err = errOutcomeUnknown("%s", errs.From(err).Detail)
	}
	return nil, tokens, err
}

func (w *upstreamWorker) progress(ctx context.Context, taskID string, p upstream.Progress) {
	step := orchestrator.Progress{StepName: strings.ToValidUTF8(p.Message[:min(len(p.Message), 200)], "?")}
	if p.Total > 0 {
		step.Percent = new(max(min(int(100*p.Progress/p.Total), 99), 0))
	}
	if _, err := w.svc.orchestrator.Progress(ctx, w.agentID, taskID, step); err != nil {
		w.svc.log.Debug("report the progress of a task", "task", taskID, "error", err)
	}
}

// taskTool returns the tool that the capabilities of a task name.
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
		return "", NewError(errs.NotFound, "TOOL_NOT_FOUND", "a task for the MCP server %s must name one of its tools as a capability: custom:%s:<tool>", w.server, w.server)
	}
	return "", errs.New(errs.InvalidRequest, "a task for the MCP server %s must name one tool, not %d", w.server, len(found))
}

// taskOutcome converts the result of a call to the result of a task.
func taskOutcome(res *mcp.CallToolResult, err error) orchestrator.Result {
	if err != nil {
		if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) {
			return orchestrator.Result{Failure: orchestrator.FailureUnavailable, Text: "the upstream stopped during the call"}
		}
		e := toCallError(err)
		if ErrorName(e) == outcomeUnknown {
			return orchestrator.Result{Failure: orchestrator.FailureWork, Text: ErrorText(e), Detail: json.RawMessage(`{"` + upstream.MayHaveActed + `":true}`)}
		}
		return orchestrator.Result{Failure: failureKind(e), Text: ErrorText(e)}
	}
	if res.IsError {
		_, err := Value(res)
		why := strings.ToValidUTF8(err.Error(), "?")
		return orchestrator.Result{Failure: orchestrator.FailureWork, Text: why[:min(len(why), 2000)]}
	}
	if len(res.Content) == 1 && res.StructuredContent == nil {
		if t, ok := res.Content[0].(*mcp.TextContent); ok {
			return orchestrator.Result{Output: []byte(t.Text)}
		}
	}
	out, err := Value(res)
	if err != nil {
		return orchestrator.Result{Failure: orchestrator.FailureWork, Text: "the tool's result is not JSON"}
	}
	return orchestrator.Result{Output: out}
}

// failureKind converts an error of a call to a failure of a task, which decides on a retry.
func failureKind(e *errs.Error) orchestrator.Failure {
	switch e.Code {
	case errs.NotFound:
		return orchestrator.FailureUnsupported
	case errs.InvalidRequest, errs.ToolDenied:
		return orchestrator.FailureInvalid
	case errs.BudgetExceeded:
		return orchestrator.FailureBudget
	case errs.UpstreamFailed:
		switch ErrorDetails(e)["reason"] {
		case upstream.ReasonTimeout:
			return orchestrator.FailureTimeout
		case upstream.ReasonDown, upstream.ReasonBusy, nil: // nil is an upstream that was not called
			return orchestrator.FailureUnavailable
		}
	}
	return orchestrator.FailureWork
}
