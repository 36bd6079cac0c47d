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

// submit takes a work_request (Chiffon §work_request). The asker hears how far the work
// is when it was taken, or, where it waits, how it ended.
func (d *Protocol) submit(ctx context.Context, s sender, e wire.Envelope, p wire.WorkRequest, wait time.Duration) (protocol.Reply, error) {
	if !s.maySubmit() {
		return protocol.Reply{}, d.rejectSender(ctx, s, e, "the token lacks the scope messages:send")
	}
	sub, err := submission(s, e, p)
	if err != nil {
		return protocol.Reply{}, err
	}
	done, err := d.work.Submit(ctx, s.Principal, sub, nil)
	if errs.Is(err, errs.TaskExists) {
		return protocol.Reply{}, wrongField("/task_id", "task_id %s is taken by another request", p.TaskID)
	}
	if err != nil {
		return protocol.Reply{}, requestError(err, e, p)
	}
	t := done.Task
	if wait > 0 && !t.State.Ended() {
		t, err = d.work.Wait(ctx, s.Principal.TokenID, t.ID, wait)
		if err != nil && !errs.Is(err, errs.Busy) { // where too many wait, this one does not
			return protocol.Reply{}, err
		}
	}
	// Whoever waited too long, or whose server stops, is told where the task stands.
	told, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyTimeout)
	defer cancel()
	return d.taskReply(told, e, p.TaskID, t)
}

// replyTimeout bounds how long it takes to read what an answer says.
const replyTimeout = 5 * time.Second

func submission(s sender, e wire.Envelope, p wire.WorkRequest) (orchestrator.Submission, error) {
	kept, err := metaOf(e, p.Hints)
	if err != nil {
		return orchestrator.Submission{}, err
	}
	sub := orchestrator.Submission{
		ID: p.TaskID.String(), RequestID: e.RequestID.String(), Class: Class,
		Capabilities: []string{p.WorkType}, AgentType: e.To, Parameters: p.Parameters, Priority: models.DefaultPriority,
		Fingerprint: fingerprint(e), Meta: kept, Traceparent: traceparent(e),
		Override: orchestrator.Override{TimeoutMS: p.Hints.MaxDurationSeconds * 1000, Notify: s.agentID != ""},
	}
	if e.To == wire.Orchestrator { // whoever can do it
		sub.AgentType = ""
	}
	if p.Hints.MaxTokens > 0 {
		sub.Budget = &p.Hints.MaxTokens
	}
	return sub, nil
}

// requestError gives the core's refusals of a request the context that the protocol
// wants to have with them.
func requestError(err error, e wire.Envelope, p wire.WorkRequest) error {
	switch {
	case errs.Is(err, errs.RequestIDReused):
		return refusal{wire.InvalidMessage(wire.Problem{
			Field: "request_id", Detail: "request_id " + e.RequestID.String() + " was used before for another request",
		}), err}
	case errs.Is(err, errs.UnsupportedWork):
		return refusal{wire.UnsupportedWorkType(p.WorkType, metaStrings(err, "supported")), err}
	case errs.Is(err, errs.BudgetExceeded):
		return refusal{wire.ResourceLimit(limitTokens, metaNumber(err, "remaining"), metaNumber(err, "requested")), err}
	case errs.Is(err, errs.Busy):
		return refusal{wire.Unavailable(e.To, nil), err}
	}
	return err
}

// cancel takes back a task that the same principal asked for (decisions: “Cancel is a
// work_request”). One that has ended stays as it is.
func (d *Protocol) cancel(ctx context.Context, s sender, e wire.Envelope, p wire.WorkRequest) (protocol.Reply, error) {
	if !s.maySubmit() {
		return protocol.Reply{}, d.rejectSender(ctx, s, e, "the token lacks the scope messages:send")
	}
	t, err := d.work.Task(ctx, p.TaskID.String())
	if err == nil && t.Owner != s.TokenID && !s.Has(models.ScopeAdmin) {
		err = errs.New(errs.NotFound, "there is no task %q", p.TaskID.String())
	}
	if err != nil {
		return protocol.Reply{}, taskError(err)
	}
	t, err = d.work.Cancel(ctx, t.ID, "cancelled by the asker", nil)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return d.taskReply(ctx, e, p.TaskID, t)
}

// taskReply tells an asker where its task stands: 202 with a work_status until it has
// ended, then its result, or the error it ended with.
func (d *Protocol) taskReply(ctx context.Context, to wire.Envelope, id uuid.UUID, t models.Task) (protocol.Reply, error) {
	if !t.State.Ended() {
		return d.statusReply(to, id, t)
	}
	payload, err := d.endPayload(ctx, task{TaskWithInput: orchestrator.TaskWithInput{Task: t}, id: id})
	if err != nil {
		return protocol.Reply{}, err
	}
	answer := accepted(t.ID)
	answer.SendBack, answer.Status = true, http.StatusOK
	if f, failed := payload.(wire.Failure); failed {
		answer.Status, answer.IsError = f.Code.HTTPStatus(), true
	}
	return d.replyWith(answer, wire.Reply(to, newID(), d.clock(), payload))
}

// statusReply answers with how far a task is.
func (d *Protocol) statusReply(to wire.Envelope, id uuid.UUID, t models.Task) (protocol.Reply, error) {
	p := wire.WorkStatus{TaskID: id, Status: wire.StatusRunning, Progress: t.Progress}
	if t.StepName != "" {
		p.Step = &wire.Step{Number: t.Step, Name: t.StepName}
	}
	answer := accepted(t.ID)
	answer.SendBack = true
	return d.replyWith(answer, wire.Reply(to, newID(), d.clock(), p))
}

const contentType = "application/json"

// replyWith puts an envelope into an answer.
func (d *Protocol) replyWith(answer protocol.Reply, e wire.Envelope) (protocol.Reply, error) {
	body, err := wire.Format(e)
	answer.Body, answer.ContentType = body, contentType
	return answer, err
}
