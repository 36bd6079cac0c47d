package workflow

import (
	"context"
	"errors"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/workflow/plan"
	"comet/store/workflows"
)

// run executes a workflow that this process holds. One goroutine owns its state.
type run struct {
	*execution
	ctx      context.Context // of the steps
	cancel   context.CancelFunc
	steps    sync.WaitGroup
	inFlight int
	outcomes chan outcome
	aborts   chan abort
	done     chan struct{} // closed when this process no longer holds the workflow
	ended    bool          // as done; guarded by Engine.mu
}

// abort is a request to abort a workflow that runs.
type abort struct{ reason string }

func newRun(x *execution) *run {
	r := &run{execution: x, outcomes: make(chan outcome, len(x.steps)), aborts: make(chan abort), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(x.env.work)
	return r
}

// execute runs steps until the workflow is paused or has ended, or the engine stops. It returns the error of a state that
// could not be stored, workflows.ErrFenced if another process has changed the workflow.
func (r *run) execute(first []dispatch) error {
	defer r.steps.Wait()
	defer r.cancel()
	r.dispatch(first)
	for r.inFlight > 0 {
		select {
		case o := <-r.outcomes:
			r.apply(o)
			for len(r.outcomes) > 0 { // outcomes that have arrived meanwhile share the transaction
				r.apply(<-r.outcomes)
			}
			next, err := r.commit(r.continues())
			if err != nil {
				return err
			}
			r.dispatch(next)
		case a := <-r.aborts:
			return r.abort(a)
		}
	}
	return nil
}

// continues reports whether further steps may begin.
func (r *run) continues() bool {
	select {
	case <-r.env.draining:
		return false
	default:
		return true
	}
}

// apply records the outcome of a step. A step that was cancelled has no outcome.
func (r *run) apply(o outcome) {
	r.inFlight--
	if o.err != nil && r.ctx.Err() != nil && errors.Is(o.err, context.Canceled) {
		return
	}
	now := r.env.Store.Now()
	s := &r.execution.steps[o.position]
	switch {
	case o.again:
		s.State, r.changed[o.position] = int(plan.Pending), true
	case o.lost:
		r.lose(o.position, o.err.Error(), now)
	case o.err != nil:
		r.fail(o.position, o.err, now)
	default:
		s.Result = o.value
		r.end(o.position, plan.Success, now)
	}
}

// commit stores the outcomes together with what follows, and returns the steps that begin. It retries until it succeeds. It
// returns workflows.ErrFenced if another process has changed the workflow, and other errors only when the engine stops.
func (r *run) commit(advance bool) (next []dispatch, err error) {
	if advance {
		if err = r.retry(func() error {
			next, err = r.advance(r.env.work, r.env.Store.Now())
			return err
		}); err != nil {
			return nil, err
		}
	}
	if len(r.changed) == 0 {
		return next, nil
	}
	if err = r.retry(func() error { return r.env.Store.Write(r.env.work, r.save) }); err == nil {
		r.observe()
		r.saved()
	}
	return next, err
}

// retry calls do until it succeeds, it returns workflows.ErrFenced, or the engine stops.
func (r *run) retry(do func() error) error {
	backoff := background.NewBackoff(background.MaxBackoff)
	for {
		err := do()
		if err == nil || errors.Is(err, workflows.ErrFenced) || r.env.work.Err() != nil {
			return err
		}
		r.env.opts.Logger.Warn("the state of a workflow cannot be stored; trying again", "workflow", r.row.ID, "error", err)
		_ = background.Sleep(r.env.work, backoff.NextBackOff())
	}
}

func (r *run) dispatch(list []dispatch) {
	for _, d := range list {
		r.inFlight++
		s := r.stepOf(d)
		r.steps.Go(func() { r.outcomes <- r.env.runStep(r.ctx, s) })
	}
}

// abort cancels the steps that run, waits for them up to AbortGrace, and ends the workflow.
func (r *run) abort(a abort) error {
	r.cancel()
	grace := time.NewTimer(r.env.opts.AbortGrace)
	defer grace.Stop()
	for waiting := true; waiting && r.inFlight > 0; {
		select {
		case o := <-r.outcomes:
			r.apply(o)
		case <-grace.C:
			waiting = false
		}
	}
	r.stop("", a.reason, r.env.Store.Now())
	err := r.retry(func() error { return r.env.Store.Write(r.env.work, r.save) })
	if err == nil {
		r.observe()
	}
	return err
}
