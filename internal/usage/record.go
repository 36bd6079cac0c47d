package usage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// Record records what an agent used, all of the facts or none (CHE·NU §5). Facts are always
// recorded, even over the budget and for a deactivated agent, because the tokens are spent. A
// fact whose request_id was recorded before with the same content adds nothing and is returned as
// recorded, marked as replayed.
//
// It returns errs.InvalidRequest with pointers such as /facts/3/tokens, errs.RequestIDReused for
// a request_id that was recorded with other content, errs.LimitReached if the agent's day is full, and
// errs.NotFound.
func (l *Ledger) Record(ctx context.Context, agentID string, drafts []FactDraft, once *models.Idempotency) (Recorded, error) {
	op, err := newRecord(agentID, drafts)
	if err != nil {
		return Recorded{}, err
	}
	return do(ctx, l, op, &op.recorded, once)
}

type record struct {
	request
	drafts   []FactDraft
	facts    []models.Fact // without time and path
	recorded Recorded
}

func newRecord(agentID string, drafts []FactDraft) (*record, error) {
	var v errs.Violations
	if len(drafts) == 0 || len(drafts) > MaxFacts {
		v.Add(errs.InvalidRequest, "/facts", "count", "facts must hold 1 to %d facts, not %d", MaxFacts, len(drafts))
		return nil, v.Err()
	}
	op := &record{request: request{agentID: agentID}, drafts: drafts, facts: make([]models.Fact, len(drafts))}
	for i, d := range drafts {
		fields := input.Validate(d)
		d.check(&fields)
		for _, f := range fields {
			f.Pointer = fmt.Sprintf("/facts/%d", i) + f.Pointer
			v = append(v, f)
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	for i, d := range drafts {
		var err error
		if op.facts[i], err = newFact(agentID, *d.Tokens, d.FactLabels, d); err != nil {
			return nil, err
		}
		if d.RequestID != nil {
			op.facts[i].RequestID = *d.RequestID
			op.requestIDs = append(op.requestIDs, *d.RequestID)
		}
	}
	return op, nil
}

// check requires an outcome if one of its details is set.
func (o FactOutcome) check(v *errs.Violations) {
	if o.DurationMS != nil && o.Outcome == "" {
		v.Add(errs.InvalidRequest, "/duration_ms", "outcome", "duration_ms needs an outcome")
	}
	if o.SessionID != "" && o.Outcome == "" {
		v.Add(errs.InvalidRequest, "/session_id", "outcome", "session_id needs an outcome")
	}
}

// newFact returns a fact without its time and path; content is what the request contained, to
// tell a repeated request from a different one.
func newFact(agentID string, tokens int64, labels models.FactLabels, said any) (models.Fact, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return models.Fact{}, err
	}
	text, err := json.Marshal(said)
	return models.Fact{ID: id.String(), AgentID: agentID, Tokens: tokens, FactLabels: labels, Digest: sha256.Sum256(text)}, err
}

func (op *record) decide(b *batch) {
	op.recorded, op.err = Recorded{}, nil
	a, err := b.find(op.agentID)
	if err == nil {
		op.recorded.Facts, err = op.enter(b, a)
	}
	if op.err = err; err == nil {
		op.recorded.Balance = a.balance()
	}
}

// enter charges the new facts and returns all of them as recorded.
func (op *record) enter(b *batch, a *account) ([]models.Fact, error) {
	var fresh []models.Fact
	var places []int // of the new facts among all
	first := map[string]models.Fact{}
	for i, f := range op.facts {
		earlier, known := b.recorded[store.LedgerKey{AgentID: a.AgentID, ID: f.RequestID}]
		if !known {
			earlier, known = first[f.RequestID]
		}
		switch {
		case f.RequestID == "" || !known:
			first[f.RequestID] = f
			fresh, places = append(fresh, f), append(places, i)
		case earlier.Digest != f.Digest:
			return nil, reused(i, f.RequestID)
		}
	}
	if err := b.charge(a, b.path(a.AgentID), fresh, 0); err != nil {
		return nil, err
	}
	out := make([]models.Fact, len(op.facts))
	for n, i := range places {
		out[i] = fresh[n]
		b.outcome(fresh[n], fresh[n].At, op.drafts[i].FactOutcome)
	}
	for i, f := range op.facts {
		if out[i].ID == "" {
			out[i] = b.recorded[store.LedgerKey{AgentID: a.AgentID, ID: f.RequestID}]
			out[i].Replayed = true
		}
	}
	return out, nil
}

func reused(i int, requestID string) error {
	e := errs.New(errs.RequestIDReused, "the request_id %s was already recorded with different content", input.Quote(requestID))
	e.Fields = []errs.Field{{Pointer: fmt.Sprintf("/facts/%d/request_id", i), Rule: "unique", Detail: e.Detail}}
	return e
}

// outcome adds the outcome of the work behind a fact, if the caller stated one. The task id is
// used if there is no session id, and the fact's id if there is no task id.
func (b *batch) outcome(f models.Fact, at time.Time, o FactOutcome) {
	if o.Outcome == "" {
		return
	}
	b.outcomes = append(b.outcomes, store.OutcomeRow{
		AgentID: f.AgentID, SessionID: cmp.Or(o.SessionID, f.TaskID, f.ID), Status: string(o.Outcome), DurationMS: o.DurationMS, At: at,
	})
}
