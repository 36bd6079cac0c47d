package usage_test

import (
	"fmt"
	"time"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// observed is the predictable part of what a caller receives from an operation.
type observed struct {
	code     errs.Code
	whose    string // budget refused
	scope    models.BudgetScope
	balance  *usage.Balance
	replayed []bool
	at       []time.Time // of facts
	late     bool
	expires  time.Time
	stored   bool // the result is the stored response of an earlier request
}

func (m *model) find(id string) errs.Code {
	if _, known := m.agents[id]; !known {
		return errs.NotFound
	}
	return ""
}

func contentOf(d usage.FactDraft) string { return fmt.Sprint(*d.Tokens, d.FactLabels) }

// record is Ledger.Record.
func (m *model) record(id string, drafts []usage.FactDraft) observed {
	m.open(id, nil)
	if code := m.find(id); code != "" {
		return observed{code: code}
	}
	out := observed{}
	var fresh []modelFact
	for _, d := range drafts {
		f := modelFact{agent: id, path: m.chain(id), tokens: *d.Tokens, name: nameOf(d), content: contentOf(d)}
		earlier, replayed, code := m.named(f, fresh)
		if code != "" {
			return observed{code: code}
		}
		out.replayed = append(out.replayed, replayed)
		out.at = append(out.at, earlier.at) // unless it is of this request
		if !replayed {
			fresh = append(fresh, f)
		}
	}
	at := m.charge(id, m.chain(id), fresh)
	for i := range out.at {
		if out.at[i].IsZero() {
			out.at[i] = at
		}
	}
	out.balance = new(m.balance(id))
	return out
}

// named returns the fact with the same request_id among the recorded facts and those of this
// request.
func (m *model) named(f modelFact, fresh []modelFact) (earlier modelFact, found bool, code errs.Code) {
	if f.name == "" {
		return modelFact{}, false, ""
	}
	for _, list := range [][]modelFact{m.facts, fresh} {
		for _, e := range list {
			if e.agent == f.agent && e.name == f.name {
				if e.content != f.content {
					return e, true, errs.RequestIDReused
				}
				return e, true, ""
			}
		}
	}
	return modelFact{}, false, ""
}

// charge records facts on a path and returns when they count.
func (m *model) charge(id string, path []string, facts []modelFact) time.Time {
	at := m.now
	if today := m.together(id, path); dayOf(at) < today {
		at = startOf(today)
	}
	for _, f := range facts {
		f.at, f.path = at, path
		m.facts = append(m.facts, f)
	}
	m.warn(id, 0)
	for _, c := range m.counters(path) {
		m.warn(c, 0)
	}
	return at
}

// reserve is Ledger.Reserve.
func (m *model) reserve(id string, tokens int64, ttl time.Duration) observed {
	m.open(id, nil)
	if code := m.find(id); code != "" {
		return observed{code: code}
	}
	if !m.agents[id].IsActive {
		return observed{code: errs.AgentDeactivated}
	}
	path := m.chain(id)
	m.together(id, path)
	m.warn(id, tokens)
	if budget := m.budget(id); budget != nil && *budget-m.own(id).used-m.own(id).reserved < tokens {
		m.refuse(id, m.own(id), tokens)
		return observed{code: errs.BudgetExceeded, whose: id, scope: models.ScopeOwn}
	}
	for _, c := range m.counters(path) {
		if budget := m.budget(c); budget != nil && *budget-m.subtree(c).used-m.subtree(c).reserved < tokens {
			m.refuse(c, m.subtree(c), tokens)
			return observed{code: errs.BudgetExceeded, whose: c, scope: models.ScopeSubtree}
		}
	}
	expires := m.now.Add(ttl)
	m.reservations = append(m.reservations, modelReservation{agent: id, path: path, tokens: tokens, state: models.ReservationHeld, expires: expires})
	return observed{expires: expires}
}

// settle is Ledger.Settle of the reservation n, which may not exist or belong to another agent.
func (m *model) settle(id string, n int, tokens int64, labels models.FactLabels) observed {
	r, known := m.reservation(id, n)
	if m.open(id, r.path); !known {
		return observed{code: errs.NotFound}
	}
	r = m.reservations[n] // its lease may have ended
	content := fmt.Sprint(tokens, labels)
	switch r.state {
	case models.ReservationReleased:
		return observed{code: errs.ReservationEnded}
	case models.ReservationSettled:
		if r.content != content {
			return observed{code: errs.ReservationEnded}
		}
		return observed{late: r.late, replayed: []bool{true}, balance: new(m.balance(id))}
	}
	m.reservations[n].state, m.reservations[n].content = models.ReservationSettled, content
	m.reservations[n].late = r.state == models.ReservationExpired
	var facts []modelFact
	if tokens > 0 {
		facts = append(facts, modelFact{agent: id, tokens: tokens})
	}
	m.charge(id, r.path, facts)
	return observed{late: r.state == models.ReservationExpired, replayed: []bool{false}, balance: new(m.balance(id))}
}

// reservation returns the reservation n of an agent.
func (m *model) reservation(id string, n int) (modelReservation, bool) {
	if n < 0 || n >= len(m.reservations) || m.reservations[n].agent != id {
		return modelReservation{}, false
	}
	return m.reservations[n], true
}

// release is Ledger.Release.
func (m *model) release(id string, n int) observed {
	r, known := m.reservation(id, n)
	if m.open(id, r.path); !known {
		return observed{code: errs.NotFound}
	}
	switch m.reservations[n].state {
	case models.ReservationSettled:
		return observed{code: errs.ReservationEnded}
	case models.ReservationHeld:
		m.reservations[n].state = models.ReservationReleased
	}
	return observed{}
}

// add is Ledger.AddBudget.
func (m *model) add(id string, tokens int64, term time.Duration) observed {
	if code := m.find(id); code != "" {
		return observed{code: code}
	}
	if m.agents[id].TokenBudget == nil {
		return observed{code: errs.InvalidRequest}
	}
	m.open(id, nil)
	m.additions = append(m.additions, modelAddition{id, tokens, m.now.Add(term)})
	m.warned[id], m.exceeded[id] = m.days[id]-1, m.days[id]-1
	return observed{}
}

// remove is Ledger.RemoveBudget of the addition n.
func (m *model) remove(id string, n int) observed {
	if n < 0 || n >= len(m.additions) || m.additions[n].agent != id || !m.additions[n].expires.After(m.now) {
		return observed{code: errs.NotFound}
	}
	m.open(id, nil)
	m.additions[n].expires = m.now
	return observed{}
}

// reset is Ledger.Reset.
func (m *model) reset(id string) observed {
	if code := m.find(id); code != "" {
		return observed{code: code}
	}
	m.open(id, nil)
	r := modelReset{agent: id, day: m.days[id], own: m.own(id).used}
	if m.counts(id) {
		r.subtree = m.subtree(id).used
	}
	if r.own > 0 || r.subtree > 0 {
		m.warned[id], m.exceeded[id] = m.days[id]-1, m.days[id]-1
	}
	m.resets = append(m.resets, r)
	return observed{balance: new(m.balance(id))}
}

// once runs an operation with an Idempotency-Key: it has one result, and an operation that fails
// has no effect, unless a budget refused it.
func (m *model) once(key string, act func(*model) observed) observed {
	if key == "" {
		return act(m)
	}
	if at, known := m.keys[key]; known && !at.Before(m.now.Add(-store.IdempotencyRetention)) {
		return observed{stored: true}
	}
	attempt := m.clone()
	delete(attempt.keys, key) // its response is no longer stored, also if the clock goes back later
	out := act(attempt)
	switch out.code {
	case "":
		attempt.keys[key] = m.now
		*m = *attempt
	case errs.BudgetExceeded:
		*m = *attempt
	}
	return out
}
