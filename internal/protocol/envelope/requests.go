package envelope

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// submit processes a work_request (Chiffon §work_request). The reply is the state of the task, or
// its end if the request waits for it.
func (p *Protocol) submit(ctx context.Context, s sender, e wire.Envelope, req wire.WorkRequest, wait time.Duration) (protocol.Reply, error) {
	sub, err := submission(s, e, req)
	if err != nil {
		return protocol.Reply{}, err
	}
	done, err := p.work.Submit(ctx, s.Principal, sub, nil)
	if errs.Is(err, errs.TaskExists) {
		return protocol.Reply{}, invalidField(err, "payload.task_id", "task_id "+req.TaskID.String()+" is used by another request")
	}
	if err != nil {
		return protocol.Reply{}, requestError(err, e, req)
	}
	t := done.Task
	if wait > 0 && !t.State.Ended() {
		t, err = p.work.Wait(ctx, s.Principal.TokenID, t.ID, wait)
		if err != nil && !errs.Is(err, errs.Busy) { // with too many waiting requests, reply at once
			return protocol.Reply{}, err
		}
	}
	// A request that waited too long, or whose server stops, still gets the state of the task.
	replyCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyTimeout)
	defer cancel()
	return p.taskReply(replyCtx, e, req.TaskID, t)
}

// replyTimeout limits reading the data of a reply.
const replyTimeout = 5 * time.Second

// attemptLimit returns the total limit of an attempt in milliseconds: five seconds more than the agent's
// own, which begins with the delivery, so that the agent can report that it reached its limit.
func attemptLimit(seconds int64) int64 {
	if seconds == 0 {
		return 0
	}
	return (seconds + 5) * 1000
}

func submission(s sender, e wire.Envelope, req wire.WorkRequest) (orchestrator.Submission, error) {
	stored, err := metaOf(e, req.Hints)
	if err != nil {
		return orchestrator.Submission{}, err
	}
	sub := orchestrator.Submission{
		ID: req.TaskID.String(), RequestID: e.RequestID.String(), Class: Class,
		Capabilities: []string{req.WorkType}, AgentType: e.To, Parameters: req.Parameters, Priority: orchestrator.DefaultPriority,
		Fingerprint: fingerprint(e), Meta: stored, Traceparent: traceparent(e),
		Override: orchestrator.Override{TimeoutMS: req.Hints.MaxDurationSeconds * 1000, AttemptTimeoutMS: attemptLimit(req.Hints.MaxDurationSeconds), Notify: s.agentID != ""},
	}
	if e.To == wire.Orchestrator { // any agent type
		sub.AgentType = ""
	}
	if req.Hints.MaxTokens > 0 {
		sub.Budget = &req.Hints.MaxTokens
	}
	return sub, nil
}

// requestError adds the context that the protocol requires to an error about a request.
func requestError(err error, e wire.Envelope, req wire.WorkRequest) error {
	meta := errs.From(err).Meta
	switch {
	case errs.Is(err, errs.RequestIDReused):
		return invalidField(err, "request_id", "request_id "+e.RequestID.String()+" was used before for another request")
	case errs.Is(err, errs.UnsupportedWork):
		supported, _ := meta["supported"].([]string)
		return refusal{wire.UnsupportedWorkType(req.WorkType, supported), err}
	case errs.Is(err, errs.BudgetExceeded):
		remaining, _ := meta["remaining"].(int64)
		requested, _ := meta["requested"].(int64)
		return refusal{wire.ResourceLimit(limitTokens, remaining, requested), err}
	case errs.Is(err, errs.Busy):
		return refusal{wire.Unavailable(e.To, nil), err}
	}
	return err
}

// cancel cancels a task that the same principal submitted (decisions: “Cancel is a work_request”).
// A task that has ended does not change.
func (p *Protocol) cancel(ctx context.Context, s sender, e wire.Envelope, req wire.WorkRequest) (protocol.Reply, error) {
	t, err := p.work.Task(ctx, req.TaskID.String())
	if err == nil && t.Owner != s.TokenID && !s.Administers() {
		err = errs.New(errs.NotFound, "there is no task %q", req.TaskID.String())
	}
	if err != nil {
		return protocol.Reply{}, taskError(err)
	}
	t, err = p.work.Cancel(ctx, t.ID, "cancelled by the requester", nil)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return p.taskReply(ctx, e, req.TaskID, t)
}

// taskReply returns the state of a task: 202 with a work_status while it is running, then its
// result or the error it ended with.
func (p *Protocol) taskReply(ctx context.Context, to wire.Envelope, id uuid.UUID, t models.Task) (protocol.Reply, error) {
	if !t.State.Ended() {
		reply := accepted(t.ID)
		reply.SendBack = true
		return p.replyWith(reply, wire.Reply(to, newID(), p.clock(), statusOf(id, t)))
	}
	payload, err := p.endPayload(ctx, task{TaskWithInput: orchestrator.TaskWithInput{Task: t}, id: id})
	if err != nil {
		return protocol.Reply{}, err
	}
	reply := accepted(t.ID)
	reply.SendBack, reply.Status = true, http.StatusOK
	if failure, isFailure := payload.(wire.Failure); isFailure {
		reply.Status, reply.IsError = failure.Code.HTTPStatus(), true
		if failure.Code == wire.CodeAuthenticationFailed { // the agent reports it, not the token of the request
			reply.Status = http.StatusBadGateway
		}
	}
	return p.replyWith(reply, wire.Reply(to, newID(), p.clock(), payload))
}

// statusOf returns the progress of a task.
func statusOf(id uuid.UUID, t models.Task) wire.WorkStatus {
	status := wire.WorkStatus{TaskID: id, Status: wire.StatusRunning, Progress: t.Progress}
	if t.StepName != "" {
		status.Step = &wire.Step{Number: t.Step, Name: t.StepName}
	}
	return status
}

const contentType = "application/json"

// replyWith puts an envelope into a reply.
func (p *Protocol) replyWith(reply protocol.Reply, e wire.Envelope) (protocol.Reply, error) {
	body, err := wire.Format(e)
	reply.Body, reply.ContentType = body, contentType
	return reply, err
}
