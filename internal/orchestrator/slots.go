package orchestrator

import (
	"maps"
	"slices"
	"time"

	"comet/models"
)

// takeSlot takes a slot of an agent in the index for an attempt at a task; ok is false if it has none. A process that
// is alone reads here whether the agent is online and active; with replicas, changeSlots finds out.
func (op *operation) takeSlot(t *models.Task, agentID string) (ok bool, err error) {
	at := time.Time{} // its row has the time
	if op.opts.Alone {
		at = op.tx.Now()
		if ok, err = op.tx.Workers().Available(agentID); err != nil || !ok {
			return false, err
		}
	}
	if slices.Contains(op.known.unavailable, agentID) || !op.index.Claim(agentID, at) {
		return false, nil
	}
	t.AgentID = agentID
	op.changeSlot(slotChange{agentID: agentID, begun: new(*t)})
	return true, nil
}

// releaseSlot releases the slot of an attempt that has ended.
func (op *operation) releaseSlot(ended slotChange) {
	op.wakeAfterCommit(WakeQueue, "")
	if op.opts.Alone {
		op.tx.After(func() { op.index.Release(ended.agentID) })
		if !ended.failure.countsForBreaker() && op.index.Worker(ended.agentID).Failures == 0 {
			return // nothing changes in its row
		}
	}
	op.changeSlot(ended)
}

func (op *operation) changeSlot(c slotChange) {
	op.slots, op.beforeCommit = append(op.slots, c), op.changeSlots
}

// changeSlots writes the rows of the workers whose attempts have begun or ended, in the order in which all operations
// lock several workers. It runs last, so that the rows are locked only briefly. An unavailableError makes transact run
// the operation again.
func (op *operation) changeSlots() error {
	changes := map[string][]slotChange{}
	for _, c := range op.slots {
		if c.begun == nil || !op.opts.Alone { // the index of a process that is alone counts the others
			changes[c.agentID] = append(changes[c.agentID], c)
		}
	}
	for _, agentID := range slices.Sorted(maps.Keys(changes)) {
		if err := op.changeSlotsOf(agentID, changes[agentID]); err != nil {
			return err
		}
	}
	return nil
}

func (op *operation) changeSlotsOf(agentID string, changes []slotChange) error {
	begun, answered := 0, false
	var failed []slotChange
	for _, c := range changes {
		switch {
		case c.begun != nil:
			begun++
		case c.failure.countsForBreaker():
			failed = append(failed, c)
		default: // a cancellation says nothing about the connection
			answered = answered || !c.cancelled
		}
	}
	w, ok, err := op.tx.Workers().ChangeSlots(agentID, begun, len(changes)-begun, answered && len(failed) == 0)
	for range begun {
		op.tx.After(func() { op.index.Release(agentID) }) // the row counts it
	}
	for _, c := range changes {
		if err == nil && ok && c.begun != nil { // with the lock: another replica may have assigned another subtask to the agent
			siblings, e := op.siblingAgents(*c.begun)
			ok, err = !slices.Contains(siblings, agentID), e
		}
	}
	if err == nil && !ok {
		err = unavailableError{agentID}
	}
	for _, c := range failed {
		if w.Failures++; err == nil && w.Failures >= c.policy.BreakerFailures && w.BreakerUntil.IsZero() {
			err = op.openBreaker(&w, c.policy)
		}
	}
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		return op.saveWorker(&w, w)
	}
	op.indexAfterCommit(w)
	return nil
}
