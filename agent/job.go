package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"comet/internal/background"
	"comet/internal/wire/envelope"
)

// job is a request whose work is in progress.
type job struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   *Work
	// repeated is set if the request arrived again.
	repeated background.Signal
	// The agent's mutex guards the following. newest is the newest message of the request, which
	// the result replies to; messages are those not acknowledged yet. recorded is whether the
	// cache knows the request, so that they may be.
	newest   envelope.Envelope
	messages []uuid.UUID
	recorded bool
	// cancelled is whether the task was cancelled; next is the request that arrived after that,
	// nil for none. Its work starts when the cancelled work has ended.
	cancelled bool
	next      *envelope.Envelope
}

// handleRequest does the work of a request and sends its result.
func (a *Agent) handleRequest(life context.Context, j *job) {
	id := j.work.key()
	known, err := a.opts.Cache.Begin(id)
	a.acknowledgeRequest(j)
	switch before, ok := decodeOutcome(known.Result); {
	case err != nil:
		a.log.Error("the cache cannot be read", "request_id", id.Request, "task_id", id.Task, "error", err)
		a.sendResult(life, j, outcome{Error: new(envelope.Unavailable(j.work.agentID, nil))})
	case ok:
		a.sendResult(life, j, before)
	case known.Interrupted && a.opts.NoRerun:
		out := outcome{Outcome: envelope.OutcomeFailed, ExitCode: 1, Output: "the work was interrupted by the end of the agent and is not run again"}
		a.storeOutcome(id, out)
		a.sendResult(life, j, out)
	default:
		out := a.runInSlot(j)
		a.storeOutcome(id, out)
		a.sendResult(life, j, out)
	}
}

// acknowledgeRequest acknowledges the messages that brought a request.
func (a *Agent) acknowledgeRequest(j *job) {
	a.mu.Lock()
	ids := j.messages
	j.messages, j.recorded = nil, true
	a.mu.Unlock()
	a.acks.Add(ids...)
}

func decodeOutcome(data []byte) (out outcome, ok bool) {
	return out, data != nil && json.Unmarshal(data, &out) == nil
}

// storeOutcome stores an outcome before it is sent. Work that ended because the agent stops stays
// recorded as started.
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
		a.log.Error("the result cannot be stored; the request would run again", "request_id", id.Request, "task_id", id.Task, "error", err)
	}
}

// runInSlot waits for a free slot and runs the handler in it.
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
	ended, updated := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(updated)
		a.sendUpdates(j, ended)
	}()
	r, err := a.runHandler(ctx, j.work)
	out := newOutcome(ctx, j.work, r, err, time.Since(began))
	close(ended)
	<-updated
	return out
}

func (a *Agent) addRunning(n int) {
	a.mu.Lock()
	before := a.running >= a.opts.Concurrency
	a.running += n
	now := a.running >= a.opts.Concurrency
	a.mu.Unlock()
	if before != now {
		a.presenceChanged.Set()
	}
}

// runHandler runs the handler. A panic fails this work and not the agent.
func (a *Agent) runHandler(ctx context.Context, w *Work) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("a handler panicked", "work", w.String(), "panic", p, "stack", string(debug.Stack()))
			r, err = Result{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return a.handlers[withoutPrefix(w.Type())](ctx, w)
}

// sendUpdates sends buffered output and progress while the handler runs.
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
			if !j.work.statusSent.Load() { // otherwise another status says that the work has started
				err = j.work.resendStatus()
			}
		case <-j.repeated:
			err = j.work.resendStatus()
		case <-silent:
			if a.outbox.idle() { // otherwise messages are on their way
				err = j.work.resendStatus()
			}
		}
		if err != nil {
			a.log.Debug("the status cannot be sent", "work", j.work.String(), "error", err)
		}
	}
}
