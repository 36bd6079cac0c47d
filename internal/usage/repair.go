package usage

import (
	"context"
	"maps"
	"slices"
	"strings"

	"comet/internal/events"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
)

const (
	// maxRepaired is the maximum number of agents that one repair corrects; a repair can be repeated.
	maxRepaired = 1000
	// maxPasses is the maximum number of comparisons of an agent's sums in one transaction.
	maxPasses = 10
	// maxCorrections is the maximum number of corrections in a result, an audit log entry or an event.
	maxCorrections = 100
)

// Repair corrects the differences that Verify finds, except those that it names as not repairable, for up
// to 1,000 agents, each in its own transaction. It compares the sums again in that transaction, during
// which the ledger makes no other decision. The agents' audit logs and events record each correction.
// Existing facts do not change.
func (l *Ledger) Repair(ctx context.Context, by models.Principal) (ledgercheck.Verification, error) {
	found, err := l.Verify(ctx)
	agents, all := found.Repairable(), []ledgercheck.Difference{}
	for _, id := range agents[:min(len(agents), maxRepaired)] {
		var done []ledgercheck.Difference
		err := l.store.Write(ctx, func(tx *store.Tx) (err error) {
			done, err = correct(ctx, tx, by, id)
			return err
		})
		if err != nil {
			return found, err
		}
		all = append(all, done...)
	}
	if err == nil {
		found, err = l.Verify(ctx)
	}
	found.Corrected, found.Corrections = len(all), all[:min(len(all), maxCorrections)]
	return found, err
}

// correct corrects the sums of an agent and those of its ancestors, which contain them.
func correct(ctx context.Context, tx *store.Tx, by models.Principal, agentID string) (done []ledgercheck.Difference, err error) {
	if err := tx.Agents().LockChains(); err != nil {
		return nil, err
	}
	agents := []string{agentID}
	for range maxPasses {
		chain, err := tx.Ledger().Spenders(agents)
		if err != nil || len(chain) == 0 {
			return nil, err
		}
		found, err := ledgercheck.Find(tx, slices.Collect(maps.Keys(chain)))
		if err != nil || len(found) == 0 {
			return done, err
		}
		byAgent := map[string][]ledgercheck.Difference{}
		for _, d := range found {
			if _, err := tx.Ledger().CreateAccounts([]store.Spender{chain[d.AgentID]}); err != nil {
				return nil, err
			}
			if err := ledgercheck.Correct(tx, d, store.Path(chain, d.AgentID)); err != nil {
				return nil, err
			}
			if _, path, ok := strings.Cut(d.Where, " "); ok { // of a window, whose agent may have moved
				agents = append(agents, strings.Split(path, "/")...)
			}
			byAgent[d.AgentID] = append(byAgent[d.AgentID], d)
		}
		for _, id := range slices.Sorted(maps.Keys(byAgent)) {
			if err := logCorrections(ctx, tx, by, chain[id], byAgent[id]); err != nil {
				return nil, err
			}
		}
		done = append(done, found...)
	}
	return done, nil
}

// logCorrections writes corrections to the audit log of their agent and emits their events.
func logCorrections(ctx context.Context, tx *store.Tx, by models.Principal, of store.Spender, all []ledgercheck.Difference) error {
	for some := range slices.Chunk(all, maxCorrections) {
		entry := models.AuditEntry{
			AgentID: of.ID, Actor: by.Name, ActorID: by.TokenID, Action: models.AuditLedgerCorrected, RequestID: requestid.From(ctx), Version: of.Version,
		}
		for _, d := range some {
			entry.Changes = append(entry.Changes, models.Change{Field: strings.TrimSpace(d.What + " " + d.Where), From: d.Stored, To: d.Computed})
		}
		data := map[string]any{"agent_id": of.ID, "actor": by.Name, "corrections": some}
		if err := tx.Agents().Audit(entry); err != nil {
			return err
		}
		if err := tx.Events().Emit(events.LedgerCorrected, of.ID, data); err != nil {
			return err
		}
	}
	return nil
}
