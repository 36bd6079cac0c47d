package remote

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
)

// The kinds of failures that the client does not have.
const (
	kindLoop    client.Kind = "LOOP"
	kindTimeout client.Kind = "TIMEOUT"
)

// result returns the result of the attempt after an error of follow.
func (a *attempt) result(ctx context.Context, err error) orchestrator.Result {
	state := a.status.State
	if errors.Is(err, errDone) && state == a2a.TaskStateCompleted {
		if a.interrupted {
			e, _ := a.client.Get(ctx, a.row.RemoteID)
			if whole, ok := e.(*a2a.Task); ok {
				a.tokens = max(a.tokens, usageOf(whole))
				if len(whole.Artifacts) > 0 {
					_ = a.out.add(whole) // it has the limit of the stream
				}
			}
		}
		if rest := a.out.end(); rest != nil {
			if _, err := a.work.Progress(ctx, a.AgentID, a.key.task, orchestrator.Progress{Chunk: &orchestrator.Chunk{Start: a.out.toldBytes, Data: rest}}); err == nil {
				return orchestrator.Result{}
			}
		}
		return orchestrator.Result{Output: a.out.result()}
	}
	kind, failure, text := "FAILED", orchestrator.FailureWork, ""
	switch failed, isClient := errors.AsType[*client.Error](err); {
	case errors.Is(err, errDone):
		kind = strings.TrimPrefix(string(state), "TASK_STATE_")
		text = map[string]string{"FAILED": "the remote task has failed", "REJECTED": "the remote agent rejects the task", "CANCELED": "the remote agent has canceled the task",
			"AUTH_REQUIRED": "the remote agent requires another authorization, which comet cannot give"}[kind]
		if reason := textOf(a.status.Message); reason != "" {
			text += ": " + reason
		}
		if kind == "REJECTED" {
			failure = orchestrator.FailureUnsupported
		}
	case !isClient:
		text = "an internal error occurred"
		a.log.Error("an attempt of a remote agent failed", "task", a.key.task, "error", err)
	default:
		kind, text = string(failed.Kind), failed.Text
		switch failed.Kind {
		case client.Unreachable:
			failure = orchestrator.FailureUnavailable
		case client.Refused, kindLoop:
			failure = orchestrator.FailureInvalid
		case kindTimeout:
			failure = orchestrator.FailureTimeout
		}
	}
	if !state.Terminal() && a.row.RemoteID != "" && kind != string(client.Unreachable) {
		end, stop := context.WithTimeout(ctx, goodbyeTimeout)
		_, _ = a.client.Cancel(end, a.row.RemoteID) // its result has no use any more
		stop()
	}
	code := "REMOTE_" + kind
	detail, _ := json.Marshal(map[string]string{"code": code, "remote_task_id": a.row.RemoteID}) // strings
	return orchestrator.Result{Failure: failure, Text: input.ClipBytes(strings.ToValidUTF8(code+": "+text, "?"), maxReason), Detail: detail}
}

// run executes the attempt and reports its result, unless ctx ends before.
func (a *attempt) run(ctx context.Context) {
	err := a.prepare(ctx)
	for wait := a.opts.PollMin; isTransient(err) && sleep(ctx, wait) == nil; wait = min(2*wait, a.opts.PollMax) {
		err = a.prepare(ctx)
	}
	if err == nil {
		err = a.follow(ctx)
	}
	if ctx.Err() != nil || errors.Is(err, errEnded) {
		return
	}
	result := a.result(ctx, err)
	result.Tokens, result.Kind, result.Attempt = a.tokens, factKind, a.key.number
	for wait := a.opts.PollMin; ; wait = min(2*wait, a.opts.PollMax) {
		_, err := a.work.Complete(ctx, a.AgentID, a.key.task, result)
		if code := errs.CodeOf(err); code == "" || code == errs.TaskState || code == errs.NotFound {
			return
		}
		a.log.Warn("complete a task of a remote agent; retrying", "task", a.key.task, "error", err)
		if sleep(ctx, wait) != nil {
			return
		}
	}
}
