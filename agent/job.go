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
	// again holds one token when the request came once more.
	again chan struct{}
	// asked and messages are guarded by the agent: the newest message with the request,
	// which is the one to answer, and those that were not acknowledged yet. noted is
	// whether the cache knows of the request, so that they may be.
	asked    envelope.Envelope
	messages []uuid.UUID
	noted    bool
	// withdrawn is work that was taken back; next is the request that came after that,
	// nil for none, which begins when the work has ended.
	withdrawn bool
	next      *envelope.Envelope
}

// do works on a request until it is answered.
func (a *Agent) do(life context.Context, j *job) {
	id := j.work.key()
	known, err := a.opts.Cache.Begin(id)
	if err != nil {
		a.log.Error("what is known of a request cannot be read", "request_id", id.Request, "task_id", id.Task, "error", err)
		a.acknowledge(j)
		a.reply(life, j, answer{Error: new(envelope.Unavailable(j.work.agentID, nil))})
		return
	}
	a.acknowledge(j)
	switch before, ok := remembered(known.Answer); {
	case ok:
		a.reply(life, j, before)
	case known.Interrupted && a.opts.NoRerun:
		out := answer{Outcome: envelope.OutcomeFailed, ExitCode: 1, Output: "the work was interrupted when its agent ended, and is not begun again"}
		a.keep(id, out)
		a.reply(life, j, out)
	default:
		out := a.perform(j)
		a.keep(id, out)
		a.reply(life, j, out)
	}
}

// acknowledge lets the server forget the messages that brought a request.
func (a *Agent) acknowledge(j *job) {
	a.mu.Lock()
	ids := j.messages
	j.messages, j.noted = nil, true
	a.mu.Unlock()
	a.acks.add(ids...)
}

func remembered(data []byte) (out answer, ok bool) {
	return out, data != nil && json.Unmarshal(data, &out) == nil
}

// keep remembers an answer before it is sent. One whose work an end of the agent cut
// short stays noted as begun.
func (a *Agent) keep(id Key, out answer) {
	var err error
	switch {
	case out.final():
		var data []byte
		if data, err = json.Marshal(out); err == nil {
			err = a.opts.Cache.End(id, data)
		}
	case out.unbegun || out.Error == nil || out.Error.Code != envelope.CodeUnavailable:
		err = a.opts.Cache.Forget(id)
	}
	if err != nil {
		a.log.Error("an answer cannot be kept; the request would run again", "request_id", id.Request, "task_id", id.Task, "error", err)
	}
}

// perform waits for a place and runs the function there.
func (a *Agent) perform(j *job) answer {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	case <-j.ctx.Done():
		out := answerOf(j.ctx, j.work, Result{}, context.Cause(j.ctx), 0)
		out.unbegun = true
		return out
	}
	a.count(1)
	defer a.count(-1)
	ctx := j.ctx
	if d := j.work.Hints().MaxDuration; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, ErrDuration)
		defer cancel()
	}
	j.work.sendBy(func(s envelope.WorkStatus) error { return a.status(ctx, j, s) })
	began := time.Now()
	ended, kept := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(kept)
		a.attend(j, ended)
	}()
	r, err := a.call(ctx, j.work)
	out := answerOf(ctx, j.work, r, err, time.Since(began))
	close(ended)
	<-kept
	return out
}

func (a *Agent) count(n int) {
	a.mu.Lock()
	before := a.running >= a.opts.Concurrency
	a.running += n
	now := a.running >= a.opts.Concurrency
	a.mu.Unlock()
	if before != now {
		a.nudge()
	}
}

// call runs the function. A panic is the failure of this work and not of the agent.
func (a *Agent) call(ctx context.Context, w *Work) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("a function panicked", "work", w.String(), "panic", p, "stack", string(debug.Stack()))
			r, err = Result{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return a.handlers[bare(w.Type())](ctx, w)
}

// attend sends what gathers while the function runs.
func (a *Agent) attend(j *job, ended <-chan struct{}) {
	flush := time.NewTicker(a.opts.Flush)
	defer flush.Stop()
	begun := time.NewTimer(quick)
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
			err = j.work.tick()
		case <-begun.C:
			err = j.work.begun()
		case <-j.again:
			err = j.work.remind()
		case <-silent:
			if a.outbox.idle() { // else there is something to be heard of it anyway
				err = j.work.remind()
			}
		}
		if err != nil {
			a.log.Debug("a status cannot be sent", "work", j.work.String(), "error", err)
		}
	}
}
