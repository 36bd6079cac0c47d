package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/internal/workflow"
	"comet/models"
)

// isPaused reports whether a workflow waits for a decision.
func isPaused(v workflow.View) bool { return len(choicesOf(v)) > 0 }

// choicesOf returns the decisions on the open checkpoint of a workflow that a form can express, empty if it is not paused.
// The last one is that of a client that declines, unless the form asks for a budget.
func choicesOf(v workflow.View) []string {
	return slices.DeleteFunc(v.Choices(), func(option string) bool { return option == string(workflow.ResolutionAccept) })
}

// checkpointForm returns the question about the open checkpoint of a workflow.
func checkpointForm(v workflow.View) *mcp.ElicitParams {
	fields := map[string]any{
		"decision": map[string]any{"type": "string", "title": "Decision", "enum": choicesOf(v)},
		"feedback": map[string]any{"type": "string", "title": "Feedback", "maxLength": 2000},
	}
	if v.AsksForBudget() {
		fields["budget"] = map[string]any{
			"type": "integer", "title": "Budget", "description": "The new total, to raise the budget", "minimum": v.Budget.Used + v.Budget.Reserved + 1,
		}
	}
	return &mcp.ElicitParams{Mode: "form", Message: v.Question(), RequestedSchema: map[string]any{
		"type": "object", "required": []string{"decision"}, "properties": fields,
	}}
}

// decide applies the answer to checkpointForm, and reports whether the checkpoint is decided. If another decision was
// first, or what was shown has changed, the answer has no effect.
func (g *Server) decide(ctx context.Context, by models.Principal, v workflow.View, answer *mcp.ElicitResult) (decided bool, err error) {
	choices, choice, feedback := choicesOf(v), "", ""
	switch {
	case answer.Action == "accept":
		choice, _ = answer.Content["decision"].(string)
		if feedback, _ = answer.Content["feedback"].(string); len(feedback) > 2000 {
			return false, invalidParams("feedback must have at most 2000 bytes")
		}
		if !slices.Contains(choices, choice) {
			return false, invalidParams("decision must be one of %s, not %s", strings.Join(choices, ", "), input.Quote(choice))
		}
	case answer.Action == "decline" && !v.AsksForBudget():
		choice = choices[len(choices)-1]
	default:
		return false, nil
	}
	d := v.Decision(choice)
	d.Feedback, d.Via = feedback, workflow.ViaElicitation
	if d.Resolution == workflow.ResolutionRaise {
		total, _ := answer.Content["budget"].(float64)
		if d.Budget = int64(total); float64(d.Budget) != total {
			return false, invalidParams("budget must be an integer")
		}
	}
	err = g.opts.Workflows.Decide(ctx, by, v.WorkflowID, v.CheckpointID, d)
	if name := tools.ErrorName(err); name == "WORKFLOW_STATE" || name == "CHECKPOINT_STALE" {
		err = nil
	}
	return err == nil, err
}

// askAboutPause asks the client of a call for the decision on the open checkpoint of the workflow that the call has waited
// for. reply is the result of the call, which a client that cannot be asked gets.
func (g *Server) askAboutPause(ctx context.Context, r clientRequest, args json.RawMessage, id string, reply toolReply) (toolReply, error) {
	for r.can.Forms() {
		t, err := g.opts.Workflows.Task(ctx, r.by.Principal, id)
		if err != nil || !isPaused(t.View) {
			return reply, nil //nolint:nilerr // the workflow of another token, or the result is complete
		}
		switch {
		case r.tasks:
			return g.createdTask(t), nil
		case r.newest:
			return g.askWithResult(ctx, r, args, t.View)
		case r.session == nil:
			return reply, nil
		}
		decided, err := g.askOnSession(ctx, r, t.View)
		if err != nil {
			return g.replyOf(nil, err)
		}
		if !decided {
			return reply, nil
		}
		if reply, err = g.awaitWorkflow(ctx, r.by.Principal, id); err != nil {
			return toolReply{}, err
		}
	}
	return reply, nil
}

// awaitWorkflow returns the state of a workflow as the result of a tool. If this process executes the workflow, it first waits
// until the workflow is paused or has ended.
func (g *Server) awaitWorkflow(ctx context.Context, by models.Principal, id string) (toolReply, error) {
	v, err := g.opts.Workflows.Wait(ctx, by, id)
	if err != nil {
		return g.replyOf(nil, err)
	}
	res, err := v.CallResult()
	return toolReply{Result: upstream.NewResult(res)}, err
}

// askOnSession asks the client of a session, on the stream of its call, and applies the answer. The question is withdrawn
// when the workflow changes, for example because another client has decided or the checkpoint has expired, and when the
// session ends.
func (g *Server) askOnSession(ctx context.Context, r clientRequest, v workflow.View) (decided bool, err error) {
	asking, cancel := g.opts.Workflows.UntilChange(ctx, v.WorkflowID, v.Version)
	defer cancel()
	answers, err := askSession(ctx, r.session)(asking, mcp.InputRequestMap{v.CheckpointID: checkpointForm(v)})
	withdrawn := asking.Err() != nil && ctx.Err() == nil
	switch answer, ok := answers[v.CheckpointID].(*mcp.ElicitResult); {
	case withdrawn:
		return true, nil
	case err != nil || !ok:
		g.log.Debug("a client could not be asked for a decision", "error", err)
		return false, ctx.Err()
	default:
		return g.decide(ctx, r.by.Principal, v, answer)
	}
}

// askWithResult returns the question as the result of the call (MCP 2026-07-28, multi round-trip requests). Any replica
// accepts the answer, which repeats the call with the state.
func (g *Server) askWithResult(ctx context.Context, r clientRequest, args json.RawMessage, v workflow.View) (toolReply, error) {
	state := strings.Join([]string{v.WorkflowID, v.CheckpointID, rand.Text()}, ".")
	if err := g.opts.Workflows.Ask(ctx, v.CheckpointID, questionKey(state, r.name, args)); err != nil {
		return toolReply{}, toRPCError(err)
	}
	return toolReply{Result: upstream.NewResult(&mcp.CallToolResult{
		Content: []mcp.Content{}, InputRequests: mcp.InputRequestMap{v.CheckpointID: checkpointForm(v)}, RequestState: state,
	})}, nil
}

// questionKey returns what is stored of a question: a digest of its state and of the call that it belongs to.
func questionKey(state, name string, args json.RawMessage) string {
	sum := sha256.New()
	for _, part := range []string{state, name, string(args)} {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// resumeDecision applies the answer to a question of askWithResult, and waits for the workflow.
func (g *Server) resumeDecision(ctx context.Context, r clientRequest, args json.RawMessage) (toolReply, error) {
	parts := strings.Split(r.state, ".")
	asked, err := len(parts) == 3, error(nil)
	if asked {
		asked, err = g.opts.Workflows.IsAsked(ctx, r.by.Principal, parts[0], parts[1], questionKey(r.state, r.name, args))
	}
	if err != nil {
		return toolReply{}, toRPCError(err)
	}
	if !asked {
		return toolReply{}, invalidParams("no workflow waits for this requestState: it has its answer, or belongs to another call, which continues by itself (%s)", parts[0])
	}
	id, checkpoint := parts[0], parts[1]
	t, err := g.task(ctx, r.by.Principal, id)
	if err != nil {
		return toolReply{}, err
	}
	decided := true
	if t.CheckpointID == checkpoint && isPaused(t.View) { // otherwise another decision was first
		answer, ok := r.answers[checkpoint].(*mcp.ElicitResult)
		if !ok {
			return toolReply{}, invalidParams("params.inputResponses has no response to %s", checkpoint)
		}
		if decided, err = g.decide(ctx, r.by.Principal, t.View, answer); err != nil {
			return g.replyOf(nil, err)
		}
	}
	err = g.opts.Workflows.Ask(ctx, checkpoint, "") // a state is used once
	reply, waitErr := g.awaitWorkflow(ctx, r.by.Principal, id)
	if err = errors.Join(err, waitErr); err != nil || !decided {
		return reply, err
	}
	return g.askAboutPause(ctx, r, args, id, reply)
}
