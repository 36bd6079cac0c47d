package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// job is a request that is being worked on.
type job struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   *Work
	// repeated holds one token when the request came once more.
	repeated chan struct{}
	// newest and messages are guarded by the agent: the newest message with the request,
	// which is the one to answer, and those that were not acknowledged yet. noted is
	// whether the cache knows of the request, so that they may be.
	newest   envelope.Envelope
	messages []uuid.UUID
	recorded bool
	// cancelled is work that was taken back; next is the request that came after that,
	// nil for none, which begins when the work has ended.
	cancelled bool
	next      *envelope.Envelope
}

// handleRequest works on a request until it is answered.
func (a *Agent) handleRequest(life context.Context, j *job) {
	id := j.work.key()
	known, err := a.opts.Cache.Begin(id)
	if err != nil {
		a.log.Error("what is known of a request cannot be read", "request_id", id.Request, "task_id", id.Task, "error", err)
		a.acknowledgeRequest(j)
		a.sendResult(life, j, outcome{Error: new(envelope.Unavailable(j.work.agentID, nil))})
		return
	}
	a.acknowledgeRequest(j)
	switch before, ok := decodeOutcome(known.Result); {
	case ok:
		a.sendResult(life, j, before)
	case known.Interrupted && a.opts.NoRerun:
		out := outcome{Outcome: envelope.OutcomeFailed, ExitCode: 1, Output: "the work was interrupted when its agent ended, and is not begun again"}
		a.storeOutcome(id, out)
		a.sendResult(life, j, out)
	default:
		out := a.runInSlot(j)
		a.storeOutcome(id, out)
		a.sendResult(life, j, out)
	}
}

// acknowledgeRequest lets the server forget the messages that brought a request.
func (a *Agent) acknowledgeRequest(j *job) {
	a.mu.Lock()
	ids := j.messages
	j.messages, j.recorded = nil, true
	a.mu.Unlock()
	a.acks.add(ids...)
}

func decodeOutcome(data []byte) (out outcome, ok bool) {
	return out, data != nil && json.Unmarshal(data, &out) == nil
}

// storeOutcome remembers an answer before it is sent. One whose work an end of the agent cut
// short stays noted as begun.
func (a *Agent) storeOutcome(id Key, out outcome) {
	var err error
	switch {
	case out.final():
		var data []byte
		if data, err = json.Marshal(out); err == nil {
			err = a.opts.Cache.End(id, data)
		}
	case out.notStarted || out.Error == nil || out.Error.Code != envelope.CodeUnavailable:
		err = a.opts.Cache.Forget(id)
	}
	if err != nil {
		a.log.Error("an answer cannot be kept; the request would run again", "request_id", id.Request, "task_id", id.Task, "error", err)
	}
}

// runInSlot waits for a place and runs the function there.
func (a *Agent) runInSlot(j *job) outcome {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-j.ctx.Done():
		out := newOutcome(j.ctx, j.work, Result{}, context.Cause(j.ctx), 0)
		out.notStarted = true
		return out
	}
	a.addRunning(1)
	defer a.addRunning(-1)
	ctx := j.ctx
	if d := j.work.Hints().MaxDuration; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, ErrMaxDuration)
		defer cancel()
	}
	j.work.setSend(func(s envelope.WorkStatus) error { return a.sendStatus(ctx, j, s) })
	began := time.Now()
	ended, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		a.sendUpdates(j, ended)
	}()
	r, err := a.runHandler(ctx, j.work)
	out := newOutcome(ctx, j.work, r, err, time.Since(began))
	close(ended)
	<-kept
	return out
}

func (a *Agent) addRunning(n int) {
	a.mu.Lock()
	before := a.running >= a.opts.Concurrency
	a.running += n
	now := a.running >= a.opts.Concurrency
	a.mu.Unlock()
	if before != now {
		a.announcePresence()
	}
}

// runHandler runs the function. A panic is the failure of this work and not of the agent.
func (a *Agent) runHandler(ctx context.Context, w *Work) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("a function panicked", "work", w.String(), "panic", p, "stack", string(debug.Stack()))
			r, err = Result{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return a.handlers[withoutPrefix(w.Type())](ctx, w)
}

// sendUpdates sends what gathers while the function runs.
func (a *Agent) sendUpdates(j *job, ended <-chan struct{}) {
	flush := time.NewTicker(a.opts.Flush)
	defer flush.Stop()
	begun := time.NewTimer(startDelay)
	defer begun.Stop()
	var silent <-chan time.Time
	if a.opts.KeepAlive > 0 {
		t := time.NewTicker(a.opts.KeepAlive)
		defer t.Stop()
		silent = t.C
	}
	for {
		var err error
		select {
		case <-ended:
			return
		case <-flush.C:
			err = j.work.flushBuffer()
		case <-begun.C:
			err = j.work.sendStarted()
		case <-j.repeated:
			err = j.work.resendStatus()
		case <-silent:
			if a.outbox.idle() { // else there is something to be heard of it anyway
				err = j.work.resendStatus()
			}
		}
		if err != nil {
			a.log.Debug("a status cannot be sent", "work", j.work.String(), "error", err)
		}
	}
}
