package usage_test

import (
	"maps"
	"slices"
	"time"

	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// model is a simple ledger: lists of all operations, from which every read computes its numbers. It
// also stores the day of each account, which does not go back with the clock, and the day of each
// agent's last events.
type model struct {
	now          time.Time
	agents       map[string]store.Spender
	days         map[string]int64
	counting     map[string]bool // whose roll-up counts since its scope became subtree
	facts        []modelFact
	reservations []modelReservation
	additions    []modelAddition
	resets       []modelReset
	warned       map[string]int64
	exceeded     map[string]int64
	alerts       []alert
	keys         map[string]time.Time // Idempotency-Keys
}

type modelFact struct {
	agent   string
	path    []string
	at      time.Time
	tokens  int64
	name    string // request_id
	content string
}

type modelReservation struct {
	agent   string
	path    []string
	tokens  int64
	state   models.ReservationState
	expires time.Time
	late    bool
	content string // of the settlement
}

type modelAddition struct {
	agent   string
	tokens  int64
	expires time.Time
}

type modelReset struct {
	agent        string
	day          int64
	own, subtree int64
}

const aDay = 86_400

func dayOf(t time.Time) int64 { return t.Unix() / aDay }

func startOf(day int64) time.Time { return time.Unix(day*aDay, 0).UTC() }

// clone returns a copy, for operations that may be rolled back.
func (m *model) clone() *model {
	c := *m
	c.agents, c.days, c.keys = maps.Clone(m.agents), maps.Clone(m.days), maps.Clone(m.keys)
	c.counting = maps.Clone(m.counting)
	c.warned, c.exceeded = maps.Clone(m.warned), maps.Clone(m.exceeded)
	c.facts, c.reservations, c.additions = slices.Clone(m.facts), slices.Clone(m.reservations), slices.Clone(m.additions)
	c.resets, c.alerts = slices.Clone(m.resets), slices.Clone(m.alerts)
	return &c
}

// chain returns the agents from nova down to the agent, nil for an unknown agent.
func (m *model) chain(id string) []string {
	s, known := m.agents[id]
	if !known {
		return nil
	}
	return append(m.chain(s.ParentID), id)
}

func (m *model) counts(id string) bool { return m.agents[id].BudgetScope == models.ScopeSubtree }

// counters returns the agents of a path whose budget limits their subtree, the nearest to the agent
// first.
func (m *model) counters(path []string) []string {
	var out []string
	for _, id := range slices.Backward(path) {
		if m.counts(id) {
			out = append(out, id)
		}
	}
	return out
}

func (m *model) used(id string, day int64) (tokens int64) {
	for _, f := range m.facts {
		if f.agent == id && dayOf(f.at) == day {
			tokens += f.tokens
		}
	}
	for _, r := range m.resets {
		if r.agent == id && r.day == day {
			tokens -= r.own
		}
	}
	return tokens
}

// rollUp returns the tokens that were used on the paths through an agent.
func (m *model) rollUp(id string, day int64) (tokens int64) {
	for _, f := range m.facts {
		if slices.Contains(f.path, id) && dayOf(f.at) == day {
			tokens += f.tokens
		}
	}
	return tokens
}

// owed returns the part of the roll-up that no reset wrote off.
func (m *model) owed(id string, day int64) int64 {
	tokens := m.rollUp(id, day)
	for _, r := range m.resets {
		if r.agent == id && r.day == day {
			tokens -= r.subtree
		}
	}
	return tokens
}

// running returns the reservations that hold tokens now.
func (m *model) running(counts func(modelReservation) bool) (tokens int64) {
	for _, r := range m.reservations {
		if r.state == models.ReservationHeld && r.expires.After(m.now) && counts(r) {
			tokens += r.tokens
		}
	}
	return tokens
}

func (m *model) reserved(id string) int64 {
	return m.running(func(r modelReservation) bool { return r.agent == id })
}

func (m *model) reservedBelow(id string) int64 {
	return m.running(func(r modelReservation) bool { return slices.Contains(r.path, id) })
}

func (m *model) extra(id string) (tokens int64) {
	for _, a := range m.additions {
		if a.agent == id && a.expires.After(m.now) {
			tokens += a.tokens
		}
	}
	return tokens
}

// budget returns the number of tokens that an agent may use today, nil for no limit.
func (m *model) budget(id string) *int64 {
	own := m.agents[id].TokenBudget
	if own == nil {
		return nil
	}
	return new(*own + m.extra(id))
}

// modelUse is a sum that is compared with a budget.
type modelUse struct {
	scope          models.BudgetScope
	used, reserved int64
}

func (m *model) own(id string) modelUse {
	return modelUse{models.ScopeOwn, m.used(id, m.days[id]), m.reserved(id)}
}

func (m *model) subtree(id string) modelUse {
	return modelUse{models.ScopeSubtree, m.owed(id, m.days[id]), m.reservedBelow(id)}
}

func left(budget *int64, u modelUse) *int64 {
	if budget == nil {
		return nil
	}
	return new(max(0, *budget-u.used-u.reserved))
}

// open begins a decision about an agent: it releases expired reservations and moves all accounts of
// the decision to the current day.
func (m *model) open(id string, path []string) {
	looked, accounts := [][]string{m.chain(id)}, []string{id}
	for _, link := range path {
		looked = append(looked, m.chain(link))
	}
	for i, r := range m.reservations {
		if r.state == models.ReservationHeld && !r.expires.After(m.now) {
			m.reservations[i].state = models.ReservationExpired
			accounts = append(accounts, r.agent)
			for _, link := range r.path {
				looked = append(looked, m.chain(link))
			}
		}
	}
	for _, chain := range looked {
		accounts = append(accounts, m.counters(chain)...)
	}
	for _, account := range accounts {
		m.enter(account)
	}
}

// enter moves an account to the current day, also back from a day that only a wrong clock can have
// begun. An account that begins to count its subtree is moved to the latest day on which tokens
// were used in the subtree.
func (m *model) enter(id string) {
	if _, known := m.agents[id]; !known {
		return
	}
	today := dayOf(m.now)
	if m.days[id] > today+store.MaxDayAhead {
		m.days[id] = today
		m.warned[id], m.exceeded[id] = min(m.warned[id], today-1), min(m.exceeded[id], today-1)
	}
	m.days[id] = max(m.days[id], today)
	if m.counts(id) && !m.counting[id] {
		m.counting[id] = true
		for _, f := range m.facts {
			if day := dayOf(f.at); slices.Contains(f.path, id) && day <= today+store.MaxDayAhead {
				m.days[id] = max(m.days[id], day)
			}
		}
	}
}

// day returns the day on which an account is shown.
func (m *model) day(id string) int64 {
	today := dayOf(m.now)
	if day := m.days[id]; day > today && day <= today+store.MaxDayAhead {
		return day
	}
	return today
}

// together moves the account of an agent and the counters of a path to the latest of their days.
func (m *model) together(id string, path []string) int64 {
	all := append([]string{id}, m.counters(path)...)
	var day int64
	for _, one := range all {
		day = max(day, m.days[one])
	}
	for _, one := range all {
		m.days[one] = day
	}
	return day
}

// warn records the events that follow from the state of an account. requested is the number of
// tokens that it refuses, 0 for none.
func (m *model) warn(id string, requested int64) {
	budget := m.budget(id)
	if budget == nil {
		return
	}
	uses := []modelUse{m.own(id)}
	if m.counts(id) {
		uses = append(uses, m.subtree(id))
	}
	for _, u := range uses {
		if u.used*100 >= *budget*80 && m.warned[id] < m.days[id] {
			m.warned[id] = m.days[id]
			m.tell(events.BudgetWarning, id, u, 0)
		}
		if u.used > *budget {
			m.exceed(id, u, requested)
		}
	}
}

// refuse records the event of a refused reservation, unless the amount is larger than the budget while
// the budget is not exceeded.
func (m *model) refuse(id string, u modelUse, requested int64) {
	if budget := *m.budget(id); requested <= budget || u.used+u.reserved > budget {
		m.exceed(id, u, requested)
	}
}

func (m *model) exceed(id string, u modelUse, requested int64) {
	if m.exceeded[id] < m.days[id] {
		m.exceeded[id] = m.days[id]
		m.tell(events.BudgetExceeded, id, u, requested)
	}
}

func (m *model) tell(kind models.EventType, id string, u modelUse, requested int64) {
	budget, counted := *m.budget(id), u.used
	if kind == events.BudgetExceeded {
		counted += u.reserved
	}
	m.alerts = append(m.alerts, alert{kind, usage.BudgetAlert{
		AgentID: id, Day: startOf(m.days[id]).Format(time.DateOnly), Budget: budget, Scope: u.scope, Used: u.used, Reserved: u.reserved,
		Remaining: *left(&budget, u), Percent: counted * 100 / budget, Requested: requested, ResetAt: startOf(m.days[id] + 1),
	}})
}

func (m *model) balance(id string) usage.Balance {
	u, budget := m.own(id), m.budget(id)
	return usage.Balance{Budget: budget, UsedToday: u.used, Reserved: u.reserved, Remaining: left(budget, u), ResetAt: startOf(m.days[id] + 1)}
}

// usage returns the usage of an agent that the ledger must return.
func (m *model) usage(id string) usage.AgentUsage {
	s, budget, day := m.agents[id], m.budget(id), m.day(id)
	hour := max(m.now.Unix()/3600, day*24)
	u := usage.AgentUsage{
		AgentID: id, Budget: budget, UsedToday: m.used(id, day), ResetAt: startOf(day + 1), Reserved: m.reserved(id),
		AdditionalBudget: m.extra(id), BudgetScope: s.BudgetScope, SubtreeUsedToday: m.rollUp(id, day),
	}
	for _, f := range m.facts {
		if f.agent == id && f.at.Unix()/3600 == hour {
			u.UsedThisHour += f.tokens
		}
	}
	for _, r := range m.resets {
		if r.agent == id && r.day == day {
			u.ForgivenToday += r.own
		}
	}
	u.Remaining = left(budget, modelUse{used: u.UsedToday, reserved: u.Reserved})
	if m.counts(id) {
		reserved, forgiven := m.reservedBelow(id), m.rollUp(id, day)-m.owed(id, day)
		u.SubtreeReserved, u.SubtreeForgivenToday = &reserved, &forgiven
		u.SubtreeRemaining = left(budget, modelUse{used: m.owed(id, day), reserved: m.reservedBelow(id)})
		u.Remaining = new(min(*u.Remaining, *u.SubtreeRemaining))
	}
	return u
}
