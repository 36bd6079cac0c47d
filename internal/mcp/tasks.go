package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/internal/workflow"
	"comet/models"
)

// pollInterval is the interval at which clients request the state of a task.
const pollInterval = time.Second

// acknowledgement is the result of tasks/update and tasks/cancel.
type acknowledgement struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// addTaskMethods adds the methods of the Tasks extension to an SDK server.
func (g *Server) addTaskMethods(s *mcp.Server) {
	add := func(method string, do func(context.Context, models.Principal, *taskParams) error) {
		_ = mcp.AddReceivingCustomMethod(s, method, func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledgement, error) {
			by, _ := ctx.Value(callerKey{}).(tools.Caller)
			return &acknowledgement{ResultType: "complete"}, do(ctx, by.Principal, p)
		}) // fails only for a standard method
	}
	add(updateTask, g.updateTask)
	add(cancelTask, g.cancelTask)
	_ = mcp.AddReceivingCustomMethod(s, getTask, func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*taskResult, error) {
		by, _ := ctx.Value(callerKey{}).(tools.Caller)
		t, err := g.task(ctx, by.Principal, p.TaskID)
		if err != nil {
			return nil, err
		}
		return g.describeTask(t), nil
	})
}

// checkTaskRequest returns the error of a request of the extension that its client may not send.
func checkTaskRequest(req mcp.Request, method string) error {
	if protocolVersionOf(req) < statelessVersion {
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " requires " + statelessVersion}
	}
	if !capabilitiesOf(req).tasks {
		return errTasksMissing(method + " requires")
	}
	return nil
}

// errTasksMissing is the error for a client that does not declare the Tasks extension.
func errTasksMissing(what string) error {
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: what + " the capability " + tasksExtension + " of the client",
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
	}
}

// task returns a task of the principal's token.
func (g *Server) task(ctx context.Context, by models.Principal, id string) (workflow.Task, error) {
	t, err := g.opts.Workflows.Task(ctx, by, id)
	return t, toRPCError(err)
}

// describeTask returns the state of a task for its client.
func (g *Server) describeTask(t workflow.Task) *taskResult {
	out := &taskResult{
		ResultType: "complete", TaskID: t.WorkflowID, Status: "working", StatusMessage: t.Reason,
		CreatedAt: inMilliseconds(t.CreatedAt), LastUpdatedAt: inMilliseconds(t.UpdatedAt), PollIntervalMs: pollInterval.Milliseconds(),
	}
	if !t.DeletedAt.IsZero() {
		out.TTLMs = new(t.DeletedAt.Sub(t.CreatedAt).Milliseconds())
	}
	switch {
	case t.Failure != nil:
		out.Status, out.StatusMessage, out.Error = "failed", t.Failure.Message, t.Failure
	case t.Result != nil:
		out.Status, out.Result = "completed", t.Result
	case t.Status == "aborted", t.Status == "rejected":
		out.Status, out.StatusMessage = "cancelled", cmp.Or(t.Reason, t.Feedback, t.Status)
	case t.CheckpointID != "":
		form := checkpointForm(t.View)
		out.Status, out.StatusMessage, out.InputRequests = "input_required", t.Description, mcp.InputRequestMap{t.CheckpointID: form}
	default:
		if out.InputRequests = g.asked.requestsOf(t.WorkflowID); len(out.InputRequests) > 0 {
			out.Status = "input_required"
		}
	}
	return out
}

func inMilliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// updateTask passes responses to the questions of a task. Responses to questions that are not open are ignored.
func (g *Server) updateTask(ctx context.Context, by models.Principal, p *taskParams) error {
	t, err := g.task(ctx, by, p.TaskID)
	if err != nil {
		return err
	}
	if err := g.asked.answer(t.WorkflowID, p.InputResponses); err != nil {
		return err
	}
	raw, answered := p.InputResponses[t.CheckpointID]
	if !answered || !isPaused(t.View) {
		return nil
	}
	answer, err := elicitResultOf(raw)
	if err != nil {
		return invalidParams("params.inputResponses.%s must be the result of an elicitation", t.CheckpointID)
	}
	_, err = g.decide(ctx, by, t.View, answer)
	return toRPCError(err)
}

// cancelTask aborts a workflow. A task that has ended stays as it is.
func (g *Server) cancelTask(ctx context.Context, by models.Principal, p *taskParams) error {
	if _, err := g.task(ctx, by, p.TaskID); err != nil {
		return err
	}
	err := g.opts.Workflows.Abort(ctx, by, p.TaskID, "cancelled by the client")
	if tools.ErrorName(err) == "WORKFLOW_STATE" || tools.ErrorName(err) == "WORKFLOW_NOT_FOUND" { // it has ended
		return nil
	}
	return toRPCError(err)
}

// createdTask returns the reply to a call that has become a task. The task is stored.
func (g *Server) createdTask(t workflow.Task) toolReply {
	out := g.describeTask(t)
	out.ResultType, out.InputRequests, out.Result, out.Error = "task", nil, nil, nil
	return toolReply{task: out}
}

// awaitTask returns the reply to a call that has lasted too long for its request: it becomes a task. A call that cannot
// become one is awaited.
func (g *Server) awaitTask(ctx context.Context, r clientRequest, out callOutcome) (toolReply, callOutcome, error) {
	for out.slow {
		call := out.call
		if call.workflow == "" {
			id, err := g.opts.Workflows.Hold(ctx, r.by, r.name, call.arguments, g.hold(call))
			if err == nil {
				call.workflow = id
				call.detach()
			} else {
				g.log.Debug("a call cannot become a task", "tool", r.name, "error", err)
			}
		}
		if call.workflow != "" {
			t, err := g.opts.Workflows.Task(ctx, r.by.Principal, call.workflow)
			switch {
			case err == nil:
				return g.createdTask(t), out, nil
			case tools.ErrorName(err) != "WORKFLOW_NOT_FOUND": // that of another token, which is no task of this client
				return toolReply{}, out, toRPCError(err)
			}
		}
		call.after, call.waits = 0, call.workflow == ""
		out = g.suspended.next(ctx, call)
	}
	return toolReply{}, out, nil
}

// hold returns the function that waits for a call which has become a task, and asks its questions as those of the task.
func (g *Server) hold(call *suspendedCall) func(context.Context, string) (*upstream.Result, error) {
	return func(ctx context.Context, task string) (*upstream.Result, error) {
		defer g.asked.forget(task)
		for {
			select {
			case q := <-call.questions:
				g.asked.add(task, q)
				continue
			case <-ctx.Done():
				call.cancel()
			case out := <-call.done:
				call.done <- out
			}
			out := <-call.done
			res, _ := out.res.(*upstream.Result)
			return res, out.err
		}
	}
}

// demandsTasks returns the error for a call of a tool that demands the Tasks extension by a client without it.
func (g *Server) demandsTasks(ctx context.Context, r clientRequest) error {
	if !r.newest || r.tasks || g.opts.Workflows == nil || !g.tools.DemandsTasks(r.name) {
		return nil
	}
	if _, err := g.tools.Lookup(ctx, r.by, r.name); err != nil {
		return nil //nolint:nilerr // the call fails with it
	}
	return errTasksMissing("the tool requires")
}
