package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"comet/internal/jobs"
	"comet/internal/workflow/plan"
	"comet/store/workflows"
)

const (
	// adoptAtOnce is the number of workflows that one query returns.
	adoptAtOnce = 50
	// upstreamsWait is how long decisions and an attempt to adopt workflows wait until the upstreams have started.
	upstreamsWait = 20 * time.Second
)

// adopt continues the running workflows whose holders have ended.
func (e *Engine) adopt(ctx context.Context, _ *jobs.Job) error {
	select {
	case <-e.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !e.Tools.WaitForUpstreams(ctx, upstreamsWait) {
		return errors.New("the upstreams have not started yet")
	}
	var failed error
	for after := ""; ; {
		ids, err := workflows.Orphans(e.Store.Reads(ctx), after, adoptAtOnce)
		if err != nil || len(ids) == 0 {
			return cmp.Or(err, failed)
		}
		for _, id := range ids { // a workflow that cannot be continued does not block the others
			if err := e.adoptOne(ctx, id); err != nil {
				failed = fmt.Errorf("continue the workflow %s: %w", id, err)
			}
			after = id
		}
	}
}

// adoptOne continues a workflow that has no holder. It does nothing if another process was faster.
func (e *Engine) adoptOne(ctx context.Context, id string) error {
	orphaned := func(row workflows.Workflow, err error) error {
		if err == nil && (row.State != workflows.Running || row.Holder != "") {
			err = errAdopted
		}
		return err
	}
	_, err := e.transition(ctx, id, orphaned, func(x *execution) ([]dispatch, error) {
		if err := x.checkStanding(ctx); err != nil {
			return nil, err
		}
		return x.recoverSteps(ctx, e.Store.Now())
	})
	if errors.Is(err, errAdopted) {
		return nil
	}
	return err
}

// errAdopted says that the workflow no longer waits for a holder.
var errAdopted = errors.New("another process continues the workflow")

// recoverSteps decides about the steps that ran when the holder ended: repeatable ones become pending, others uncertain. It
// returns the agent steps, which continue as the same attempts.
func (x *execution) recoverSteps(ctx context.Context, now time.Time) (again []dispatch, err error) {
	for i := range x.steps {
		s := &x.steps[i]
		switch {
		case x.state(i) != plan.Running:
		case x.halted != nil && x.plan.Steps[i].Type == plan.KindAgent && s.TaskID == "":
			x.fail(i, x.halted, now)
		case x.plan.Steps[i].Type == plan.KindAgent:
			arguments, err := x.plan.Resolve(i, x.result(ctx))
			if err != nil {
				return nil, err
			}
			again = append(again, dispatch{position: i, attempt: s.Attempt, arguments: arguments})
		case s.Repeatable:
			s.State, x.changed[i] = int(plan.Pending), true
		default:
			x.lose(i, "the process that executed the step has ended; the step may have acted", now)
		}
	}
	return again, nil
}

// expire aborts a workflow whose pause has lasted too long.
func (e *Engine) expire(ctx context.Context, job *jobs.Job) error {
	exists := func(_ workflows.Workflow, err error) error { return err }
	_, err := e.transition(ctx, job.Key, exists, func(x *execution) ([]dispatch, error) {
		if !x.expired() {
			return nil, errUnchanged
		}
		x.expire()
		return nil, nil
	})
	return err
}
