package workflow

import (
	"cmp"
	"context"
	"errors"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// errUnchanged ends a transition that changes nothing.
var errUnchanged = errors.New("the workflow is unchanged")

// settled is the state of a workflow after a transition: the newest checkpoint, and the one that has become stale.
type settled struct {
	row                   workflows.Workflow
	checkpointID, staleID string
}

// transition changes a workflow that this process does not hold, and holds it if it runs afterwards, unless the change leaves
// it to its holder. check receives the
// row or the error of its read. change returns the steps that already run. Both are called again if the workflow has changed
// meanwhile. If change returns errUnchanged, nothing is stored.
func (e *Engine) transition(ctx context.Context, id string, check func(workflows.Workflow, error) error, change func(*execution) ([]dispatch, error)) (now settled, err error) {
	for {
		from := e.Store.Reads(ctx)
		row, err := workflows.Get(from, id)
		if err = check(row, err); err != nil {
			return now, err
		}
		x, err := e.load(from, row, maxCached)
		if err != nil {
			return now, err
		}
		first, err := change(x)
		if errors.Is(err, errUnchanged) {
			return settled{row: row}, nil
		}
		if err == nil && x.row.State == workflows.Running && !x.elsewhere {
			first, err = x.take(ctx, row, first)
		}
		switch {
		case err != nil:
		case x.elsewhere:
			err, now = e.Store.Write(ctx, x.extendStored), settled{row: x.row}
		default:
			err = e.commit(ctx, x, first, x.save, func() bool {
				now = settled{row: x.row, staleID: x.staleID}
				if c := cmp.Or(x.asked, x.decided, x.checkpoint); c != nil {
					now.checkpointID = c.ID
				}
				return true
			})
		}
		if !errors.Is(err, workflows.ErrFenced) {
			return now, err
		}
	}
}

// commit stores an execution with write, and executes the steps that begin. stored is called after the commit and reports
// whether write has stored the execution.
func (e *Engine) commit(ctx context.Context, x *execution, first []dispatch, write func(*store.Tx) error, stored func() bool) error {
	r, earlier, err := e.reserve(x)
	if err != nil {
		return err
	}
	err = e.Ledger.Write(ctx, write)
	written := err == nil && stored()
	if written {
		x.observe()
	}
	if !written || len(first) == 0 {
		if err == nil && earlier != nil { // this process was taken for dead
			earlier.cancel()
		}
		e.drop(r, earlier, errs.Is(err, errs.Unavailable) || ctx.Err() != nil) // the outcome of the commit may be unknown
		return err
	}
	x.saved()
	e.launch(r, earlier, first)
	return nil
}

// take makes this process the holder, and returns the steps that run.
func (x *execution) take(ctx context.Context, before workflows.Workflow, running []dispatch) ([]dispatch, error) {
	x.row.Holder = x.env.Store.Process()
	if before.State == workflows.Paused {
		x.emit(EventResumed, EventData{})
	}
	next, err := x.advance(ctx, x.env.Store.Now())
	return append(running, next...), err
}

// transitionOf calls transition if the principal sees the workflow; change checks what else the principal needs. If its pause has lasted too long, it is aborted
// instead.
func (e *Engine) transitionOf(ctx context.Context, by models.Principal, id string, change func(*execution) error) (settled, error) {
	check := func(row workflows.Workflow, err error) error { return e.present(ctx, row, err, by, id) }
	now, err := e.transition(ctx, id, check, func(x *execution) ([]dispatch, error) {
		if x.expired() {
			x.expire()
			return nil, nil
		}
		if x.by.TokenID == by.TokenID {
			x.by = by
		}
		if err := x.checkStanding(ctx); err != nil {
			return nil, err
		}
		return nil, change(x)
	})
	if err == nil {
		err = e.present(ctx, now.row, nil, by, id)
	}
	return now, err
}

// expired reports whether the pause of a workflow has lasted too long.
func (x *execution) expired() bool {
	return x.row.State == workflows.Paused && !x.checkpoint.ExpiresAt.After(x.env.Store.Now())
}

// expire aborts a paused workflow.
func (x *execution) expire() {
	x.settle(workflows.Expired, "", "")
	x.stop(codeExpired, "no decision was made in time", x.env.Store.Now())
}
