package workflow

import (
	"context"
	"errors"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/tools"
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
	extended chan struct{} // signals that steps may have been added
	done     chan struct{} // closed when this process no longer holds the workflow
	ended    bool          // as done; guarded by Engine.mu
}

// abort is a request to abort a workflow that runs.
type abort struct{ reason string }

func newRun(x *execution) *run {
	if x.row.Budget > 0 {
		x.allowance = tools.NewAllowance(x.row.Reserved)
	}
	r := &run{execution: x, outcomes: make(chan outcome, max(len(x.steps), x.env.opts.MaxRunning)), aborts: make(chan abort), extended: make(chan struct{}, 1), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(x.env.work)
	return r
}

// execute runs steps until the workflow is paused or has ended, or the engine stops. It returns the error of a state that
// could not be stored, workflows.ErrFenced if another process has changed the workflow.
func (r *run) execute(first []dispatch) error {
	defer r.settleBills()
	defer r.steps.Wait()
	defer r.cancel()
	r.dispatch(first)
	for r.inFlight > 0 {
		var ended []outcome
		select {
		case o := <-r.outcomes:
			ended = append(ended, o)
			for len(r.outcomes) > 0 { // outcomes that have arrived meanwhile share the transaction
				ended = append(ended, <-r.outcomes)
			}
			r.inFlight -= len(ended)
		case <-r.extended:
			if err := r.retry(r.reload); errors.Is(err, errSame) {
				continue
			} else if err != nil {
				return err
			}
		case a := <-r.aborts:
			return r.abort(a)
		}
		next, err := r.commit(ended, r.follow)
		if err != nil {
			return err
		}
		r.dispatch(next)
	}
	return nil
}

// extend signals that steps may have been added.
func (r *run) extend() {
	select {
	case r.extended <- struct{}{}:
	default:
	}
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
	r.charge(o)
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
		r.succeed(o.position, o.value, now)
	}
}

// commit stores outcomes together with the changes that decide makes, and returns the steps that begin. It retries until
// it succeeds; if steps were added in the meantime, it decides again. It returns workflows.ErrFenced if another process has
// changed the workflow in another way, and other errors only when the engine stops.
func (r *run) commit(ended []outcome, decide func() ([]dispatch, error)) ([]dispatch, error) {
	for {
		for _, o := range ended {
			r.apply(o)
		}
		next, err := decide()
		if err == nil && (len(r.changed) > 0 || r.row.State != workflows.Running) {
			if err = r.retry(func() error { return r.env.Ledger.Write(r.env.work, r.save) }); err == nil {
				r.observe()
				r.saved()
			}
		}
		if !errors.Is(err, workflows.ErrFenced) {
			return next, err
		}
		if r.retry(r.reload) != nil {
			return nil, err
		}
	}
}

// follow advances the workflow unless the engine stops.
func (r *run) follow() (next []dispatch, err error) {
	if r.continues() {
		err = r.retry(func() error {
			next, err = r.advance(r.env.work, r.env.Store.Now())
			return err
		})
	}
	return next, err
}

// errSame reports that the workflow has not changed.
var errSame = errors.New("no steps were added")

// reload reads the workflow again after steps were added, and discards changes that were not stored. It returns errSame if no
// steps were added, and workflows.ErrFenced after another change.
func (r *run) reload() error {
	from := r.env.Store.Reads(r.env.work)
	row, err := workflows.Get(from, r.row.ID)
	switch added := int64(row.Revision - r.row.Revision); {
	case err != nil:
		return err
	case row.State != workflows.Running, row.Holder != r.env.Store.Process(), row.Version != r.row.Version+added:
		return workflows.ErrFenced
	case added == 0:
		return errSame
	}
	fresh, err := r.env.load(from, row, maxCached)
	if err == nil {
		fresh.by, fresh.costs, fresh.allowance = r.by, r.costs, r.allowance
		*r.execution = *fresh
	}
	return err
}

// retry calls do until it succeeds, it returns workflows.ErrFenced or errSame, or the engine stops.
func (r *run) retry(do func() error) error {
	backoff := background.NewBackoff(background.MaxBackoff)
	for {
		err := do()
		if err == nil || errors.Is(err, workflows.ErrFenced) || errors.Is(err, errSame) || r.env.work.Err() != nil {
			return err
		}
		r.env.opts.Logger.Warn("the state of a workflow cannot be stored; trying again", "workflow", r.row.ID, "error", err)
		_ = background.Sleep(r.env.work, backoff.NextBackOff())
	}
}

func (r *run) dispatch(list []dispatch) {
	env := r.env // reload replaces the execution
	for _, d := range list {
		r.inFlight++
		s := r.stepOf(d)
		r.steps.Go(func() { r.outcomes <- env.runStep(r.ctx, s) })
	}
}

// abort cancels the steps that run, waits for them up to AbortGrace, and ends the workflow.
func (r *run) abort(a abort) error {
	r.cancel()
	grace := time.NewTimer(r.env.opts.AbortGrace)
	defer grace.Stop()
	var ended []outcome
	for waiting := true; waiting && r.inFlight > 0; {
		select {
		case o := <-r.outcomes:
			ended = append(ended, o)
			r.inFlight--
		case <-grace.C:
			waiting = false
		}
	}
	_, err := r.commit(ended, func() ([]dispatch, error) {
		r.stop("", a.reason, r.env.Store.Now())
		return nil, nil
	})
	return err
}
