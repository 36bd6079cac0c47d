package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/store"
)

// Agents have numbers for protocols with short messages. A number is assigned at the first use and
// never changes.

// AgentNumber returns the number of an agent, or errs.NotFound.
func (o *Orchestrator) AgentNumber(ctx context.Context, agentID string) (n int64, err error) {
	n, err = o.store.Agents(ctx).Number(agentID)
	if !errs.Is(err, errs.NotFound) {
		return n, err
	}
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		n, err = tx.Agents().AssignNumber(agentID)
		return err
	})
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.NotFound, "there is no agent %q", agentID)
	}
	return n, err
}

// AgentNumbers returns the numbers of agents, without the agents that have none yet.
func (o *Orchestrator) AgentNumbers(ctx context.Context, agentIDs []string) (map[string]int64, error) {
	return o.store.Agents(ctx).Numbers(agentIDs)
}

// AgentByNumber returns the id of the agent with a number, or errs.NotFound.
func (o *Orchestrator) AgentByNumber(ctx context.Context, n int64) (agentID string, err error) {
	return o.store.Agents(ctx).OfNumber(n)
}
