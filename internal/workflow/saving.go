package workflow

import (
	"cmp"

	"comet/store"
	"comet/store/workflows"
)

// save stores the changes. It returns workflows.ErrFenced if another process has changed the workflow. It may be called
// again with the same changes if the transaction is repeated.
func (x *execution) save(tx *store.Tx) error {
	if err := workflows.Save(tx, x.row); err != nil {
		return err
	}
	for i := range x.steps {
		if x.changed[i] {
			if err := workflows.SaveStep(tx, x.steps[i]); err != nil {
				return err
			}
		}
	}
	if x.decided != nil {
		if err := workflows.Decide(tx, *x.decided); err != nil {
			return err
		}
		if err := tx.Jobs().Delete(expireJob, x.row.ID); err != nil {
			return err
		}
	}
	return x.saveNew(tx)
}

// saveNew stores the new checkpoint and the events.
func (x *execution) saveNew(tx *store.Tx) error {
	if c := x.asked; c != nil {
		if err := workflows.AddCheckpoint(tx, *c); err != nil {
			return err
		}
		if _, err := tx.Jobs().Enqueue(store.Job{Kind: expireJob, Key: c.WorkflowID, RunAt: c.ExpiresAt}); err != nil {
			return err
		}
	}
	return tx.Events().EmitAll(x.events)
}

// saved forgets what was stored.
func (x *execution) saved() {
	x.row.Version++
	clear(x.changed)
	x.checkpoint = cmp.Or(x.asked, x.decided, x.checkpoint)
	x.events, x.decided, x.asked = nil, nil, nil
	for i := range x.steps {
		if len(x.steps[i].Result) > maxCached {
			x.steps[i].Result = nil
		}
	}
}
