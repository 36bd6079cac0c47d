package agent

import (
	"context"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// status sends a status of a job, as an answer to the newest message with its request.
func (a *Agent) status(ctx context.Context, j *job, s envelope.WorkStatus) error {
	a.mu.Lock()
	asked := j.asked
	a.mu.Unlock()
	return a.post(ctx, a.envelope(asked, s))
}

// reply answers a request, and takes it from the list: the same request is looked up in
// the cache from now on.
func (a *Agent) reply(life context.Context, j *job, out answer) {
	last := j.work.close(func(s envelope.WorkStatus) error { return a.status(life, j, s) })
	a.mu.Lock()
	delete(a.jobs, j.work.key())
	asked, late, next := j.asked, j.messages, j.next
	a.mu.Unlock()
	a.acks.add(late...)
	if next != nil {
		if out.Outcome == envelope.OutcomeCancelled {
			// It would be taken for the answer to the next attempt.
			a.request(life, *next, next.Payload.(envelope.WorkRequest))
			return
		}
		asked = *next
	}
	for _, p := range out.payloads(j.work.asked, last) {
		e := a.envelope(asked, p)
		if p.Type() == envelope.TypeWorkResult {
			e.Custom = out.custom()
		}
		if err := a.post(life, e); err != nil {
			a.log.Warn("a result was not sent", "work", j.work.String(), "result", out.word(), "error", err)
			return
		}
	}
	a.log.Info("work ended", "work", j.work.String(), "result", out.word())
}

// refuse answers a message with an error, on a goroutine of its own: whoever reads the
// line must not wait for it.
func (a *Agent) refuse(life context.Context, e envelope.Envelope, f envelope.Failure) {
	if e.MessageID != uuid.Nil {
		a.acks.add(e.MessageID)
	}
	a.posting.Go(func() {
		if err := a.post(life, a.envelope(e, f)); err != nil {
			a.log.Warn("an error was not sent", "code", int(f.Code), "error", err)
		}
	})
}

// envelope is an answer from this agent. It goes to the orchestrator, whoever asked.
func (a *Agent) envelope(asked envelope.Envelope, p envelope.Payload) envelope.Envelope {
	e := envelope.Reply(asked, uuid.New(), time.Now(), p)
	a.mu.Lock()
	defer a.mu.Unlock()
	e.From, e.To = a.hello.AgentType, envelope.Orchestrator
	return e
}

// post puts a message into the outbox.
func (a *Agent) post(ctx context.Context, e envelope.Envelope) error {
	data, err := envelope.Format(e)
	if err != nil {
		return err
	}
	return a.outbox.put(ctx, parcel{id: e.MessageID, request: e.RequestID, data: data})
}
