package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/background"
	"comet/internal/wire/envelope"
)

// receive handles an envelope. It never blocks: the same connection brings the acknowledgements
// that make space in the outbox.
func (a *Agent) receive(life context.Context, data []byte) {
	e, err := envelope.Parse(data)
	var wrong *envelope.Error
	if errors.As(err, &wrong) && e.MessageID == uuid.Nil {
		a.log.Warn("the server sent an invalid message without an id", "error", err)
		return
	}
	repeated, _ := a.seen.ContainsOrAdd(e.MessageID, struct{}{})
	switch {
	case repeated:
		a.acknowledgeRepeated(e)
		return
	case wrong != nil && e.Type == envelope.TypeError:
		a.acks.Add(e.MessageID) // no error about an error
		return
	case wrong != nil:
		a.sendFailure(life, e, wrong.Failure)
		return
	}
	switch p := e.Payload.(type) {
	case envelope.WorkRequest:
		if p.WorkType == envelope.WorkTypeCancel {
			a.cancelWork(e, p)
			return
		}
		a.startWork(life, e, p)
	case envelope.Failure:
		a.handleFailure(e, p)
	default:
		a.acks.Add(e.MessageID)
	}
}

// keyOf is the cache key of a request.
func keyOf(e envelope.Envelope) Key {
	p, _ := e.Payload.(envelope.WorkRequest)
	return Key{Request: e.RequestID, Task: p.TaskID}
}

// acknowledgeRepeated acknowledges a message again, unless its request is not recorded in the
// cache yet: acknowledgeRequest does it then.
func (a *Agent) acknowledgeRepeated(e envelope.Envelope) {
	a.mu.Lock()
	j := a.jobs[keyOf(e)]
	waits := j != nil && !j.recorded
	a.mu.Unlock()
	if !waits {
		a.acks.Add(e.MessageID)
	}
}

// startWork starts the work of a request, or joins the request to work that is already running.
func (a *Agent) startWork(life context.Context, e envelope.Envelope, p envelope.WorkRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[keyOf(e)]; j != nil {
		if j.cancelled {
			j.next = &e
			a.acks.Add(e.MessageID)
			return
		}
		j.newest = e
		if j.recorded {
			a.acks.Add(e.MessageID)
		} else {
			j.messages = append(j.messages, e.MessageID)
		}
		j.repeated.Set()
		return
	}
	switch known := a.handlers[withoutPrefix(p.WorkType)]; {
	case known == nil:
		a.sendFailure(life, e, envelope.UnsupportedWorkType(p.WorkType, slices.Sorted(maps.Keys(a.handlers))))
	case a.draining:
		a.sendFailure(life, e, envelope.Unavailable(a.hello.AgentID, nil))
	case len(a.jobs) >= 2*a.opts.Concurrency:
		a.sendFailure(life, e, envelope.ResourceLimit("concurrency", int64(a.opts.Concurrency), int64(len(a.jobs)+1)))
	default:
		j := a.newJob(life, e, p)
		a.jobs[keyOf(e)] = j
		a.handling.Go(func() {
			defer j.cancel(nil)
			a.handleRequest(life, j)
		})
	}
}

func (a *Agent) newJob(life context.Context, e envelope.Envelope, p envelope.WorkRequest) *job {
	ctx, cancel := context.WithCancelCause(life)
	j := &job{ctx: ctx, cancel: cancel, repeated: background.NewSignal(), newest: e, messages: []uuid.UUID{e.MessageID}}
	j.work = &Work{agentID: a.hello.AgentID, request: e, payload: p, status: envelope.WorkStatus{TaskID: p.TaskID, Status: envelope.StatusRunning}}
	j.work.send = func(s envelope.WorkStatus) error { return a.sendStatus(ctx, j, s) }
	return j
}

// cancelWork ends the work of a task. A task without work here has ended already.
func (a *Agent) cancelWork(e envelope.Envelope, p envelope.WorkRequest) {
	a.mu.Lock()
	for _, j := range a.jobs {
		if j.work.TaskID() == p.TaskID {
			j.cancelled = true
			j.cancel(ErrCancelled)
		}
	}
	a.mu.Unlock()
	a.acks.Add(e.MessageID)
}

// handleFailure handles the server's rejection of a message. If the server is unavailable the
// message stays in the outbox and is sent again later. If output exceeds a limit no more of it is
// sent.
func (a *Agent) handleFailure(e envelope.Envelope, f envelope.Failure) {
	a.acks.Add(e.MessageID)
	if isServerUnavailable(f) {
		a.log.Warn("the server cannot accept a message now", "request_id", e.RequestID, "error", f.Message)
		if a.outbox.pause(e.RequestID) {
			a.resend.Set()
		}
		return
	}
	level := slog.LevelInfo // mostly a late status of a task that has ended
	if f.Code != envelope.CodeInvalidMessage {
		level = slog.LevelWarn
	}
	a.log.Log(context.Background(), level, "the server rejects a message", "request_id", e.RequestID, "code", int(f.Code), "error", f.Message)
	if f.Code == envelope.CodeResourceLimit {
		a.mu.Lock()
		for k, j := range a.jobs { // requests of several clients may share the id; the trace id differs
			if k.Request == e.RequestID && j.newest.TraceID == e.TraceID {
				j.work.outputRejected.Store(true)
			}
		}
		a.mu.Unlock()
	}
}

// sendStatus sends a status of a job, as a reply to the newest message of its request.
func (a *Agent) sendStatus(ctx context.Context, j *job, s envelope.WorkStatus) error {
	a.mu.Lock()
	asked := j.newest
	a.mu.Unlock()
	return a.enqueue(ctx, a.newEnvelope(asked, s))
}

// sendResult sends the result of a request and removes its job: repeated requests find the result
// in the cache from now on.
func (a *Agent) sendResult(life context.Context, j *job, out outcome) {
	last := j.work.close(func(s envelope.WorkStatus) error { return a.sendStatus(life, j, s) })
	a.mu.Lock()
	delete(a.jobs, j.work.key())
	asked, late, next := j.newest, j.messages, j.next
	a.mu.Unlock()
	a.acks.Add(late...)
	if next != nil {
		if out.Outcome == envelope.OutcomeCancelled {
			// The result would count for the next attempt.
			a.startWork(life, *next, next.Payload.(envelope.WorkRequest))
			return
		}
		asked = *next
	}
	for _, p := range out.payloads(j.work.payload, last) {
		e := a.newEnvelope(asked, p)
		if p.Type() == envelope.TypeWorkResult {
			e.Custom = out.custom()
		}
		if err := a.enqueue(life, e); err != nil {
			a.log.Warn("the result was not sent", "work", j.work.String(), "result", out.summary(), "error", err)
			return
		}
	}
	a.log.Info("work ended", "work", j.work.String(), "result", out.summary())
}

// sendFailure replies to a message with an error, in its own goroutine: the caller reads the
// connection and must not block.
func (a *Agent) sendFailure(life context.Context, e envelope.Envelope, f envelope.Failure) {
	if e.MessageID != uuid.Nil {
		a.acks.Add(e.MessageID)
	}
	a.posting.Go(func() {
		if err := a.enqueue(life, a.newEnvelope(e, f)); err != nil {
			a.log.Warn("the error was not sent", "code", int(f.Code), "error", err)
		}
	})
}

// newEnvelope is a message from this agent. It is always sent to the orchestrator.
func (a *Agent) newEnvelope(asked envelope.Envelope, p envelope.Payload) envelope.Envelope {
	e := envelope.Reply(asked, uuid.New(), time.Now(), p)
	a.mu.Lock()
	defer a.mu.Unlock()
	e.From, e.To = a.hello.AgentType, envelope.Orchestrator
	return e
}

// enqueue puts a message into the outbox.
func (a *Agent) enqueue(ctx context.Context, e envelope.Envelope) error {
	data, err := envelope.Format(e)
	if err != nil {
		return err
	}
	return a.outbox.put(ctx, message{id: e.MessageID, request: e.RequestID, data: data})
}
