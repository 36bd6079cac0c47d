package usage

import (
	"cmp"
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
	// maxRepaired is how many agents one repair corrects; a repair can be repeated.
	maxRepaired = 1000
	// maxPasses is how many times the sums of an agent are compared in one transaction.
	maxPasses = 10
	// maxCorrections is how many corrections a result, an entry of the audit log and an event name.
	maxCorrections = 100
)

// Repaired is the result of a repair: what was corrected, and what still differs.
type Repaired struct {
	ledgercheck.Verification
	// The corrections, at most 100; total_corrections counts all.
	Corrections []ledgercheck.Difference `json:"corrections"`
	Corrected   int                      `json:"total_corrections" example:"3"` // Number of corrections.
} // @name LedgerRepair

// Corrections is the data of ledger.corrected.
type Corrections struct {
	AgentID     string                   `json:"agent_id"`
	Actor       string                   `json:"actor"`
	Corrections []ledgercheck.Difference `json:"corrections"`
}

// Repair corrects the differences that Verify finds, except those that it names as not repairable, for up
// to 1,000 agents, each in its own transaction. It compares the sums again in that transaction, in which
// the ledger makes no other decision. The agents' audit logs and events record each correction.
// Existing facts do not change.
func (l *Ledger) Repair(ctx context.Context, by models.Principal) (Repaired, error) {
	out := Repaired{Corrections: []ledgercheck.Difference{}}
	found, err := l.Verify(ctx)
	if err != nil {
		return out, err
	}
	agents := found.Repairable()
	for _, id := range agents[:min(len(agents), maxRepaired)] {
		var done []ledgercheck.Difference
		err := l.store.Write(ctx, func(tx *store.Tx) (err error) {
			done, err = correct(ctx, tx, by, id)
			return err
		})
		if err != nil {
			return out, err
		}
		out.Corrected += len(done)
		out.Corrections = append(out.Corrections, done[:min(len(done), maxCorrections-len(out.Corrections))]...)
	}
	out.Verification, err = l.Verify(ctx)
	return out, err
}

// correct corrects the sums of an agent and those of its ancestors, which contain them.
func correct(ctx context.Context, tx *store.Tx, by models.Principal, agentID string) (done []ledgercheck.Difference, err error) {
	if err := tx.Agents().LockChains(); err != nil {
		return nil, err
	}
	var chain map[string]store.Spender
	agents := []string{agentID}
	for range maxPasses {
		if chain, err = tx.Ledger().Spenders(agents); err != nil {
			return nil, err
		}
		if len(chain) == 0 {
			break // there is no such agent
		}
		found, err := ledgercheck.Find(tx, slices.Collect(maps.Keys(chain)))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			break
		}
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
		}
		done = append(done, found...)
	}
	return done, logCorrections(ctx, tx, by, chain, done)
}

// logCorrections writes the corrections to the audit logs of their agents and emits their events.
func logCorrections(ctx context.Context, tx *store.Tx, by models.Principal, chain map[string]store.Spender, all []ledgercheck.Difference) error {
	byAgent := map[string][]ledgercheck.Difference{}
	for _, d := range all {
		byAgent[d.AgentID] = append(byAgent[d.AgentID], d)
	}
	for _, id := range slices.Sorted(maps.Keys(byAgent)) {
		for some := range slices.Chunk(byAgent[id], maxCorrections) {
			entry := models.AuditEntry{
				AgentID: id, Actor: by.Name, ActorID: by.TokenID, Action: models.AuditLedgerCorrected, RequestID: requestid.From(ctx), Version: chain[id].Version,
			}
			for _, d := range some {
				entry.Changes = append(entry.Changes, models.Change{Field: strings.TrimSpace(d.What + " " + d.Where), From: d.Stored, To: d.Computed})
			}
			err := cmp.Or(tx.Agents().Audit(entry), tx.Events().Emit(events.LedgerCorrected, id, Corrections{id, by.Name, some}))
			if err != nil {
				return err
			}
		}
	}
	return nil
}
