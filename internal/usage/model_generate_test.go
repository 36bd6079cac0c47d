package usage_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// scaled returns a smaller number of operations for short runs and under the race detector.
func scaled(n int) int {
	if testing.Short() {
		n /= 8
	}
	return n / costly
}

// step is one random operation, on the ledger and on the model.
type step struct {
	verb string
	text string
	real func() observed
	want func(*model) observed
}

// generator returns operations that often conflict: it has few agents with small budgets and few
// request ids, and mostly refers to existing rows.
type generator struct {
	*rand.Rand
	*modelRun
	named map[string]usage.FactDraft // by agent and request_id
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) agent() string {
	if g.chance(1) {
		return "no-such-agent"
	}
	return g.ids[g.IntN(len(g.ids))]
}

func (g *generator) key() string {
	if g.chance(88) {
		return ""
	}
	return "k-" + strconv.Itoa(g.IntN(40))
}

// next returns a random operation.
func (g *generator) next() step {
	switch n := g.IntN(100); {
	case n < 28:
		return g.record()
	case n < 56:
		return g.reserve()
	case n < 74:
		return g.settle()
	case n < 80:
		return g.release()
	case n < 88:
		return g.operate()
	default:
		return g.change()
	}
}

func (g *generator) record() step {
	id, key := g.agent(), g.key()
	drafts := make([]usage.FactDraft, 1+g.IntN(1+g.IntN(4)))
	for i := range drafts {
		drafts[i] = g.draft(id)
	}
	return step{
		"record", fmt.Sprintf("%s records %s %q", id, show(drafts), key),
		func() observed { return g.doRecord(id, drafts, key) },
		func(m *model) observed {
			return m.once(key, func(m *model) observed { return m.record(id, drafts) })
		},
	}
}

// draft returns a random fact. Half of those with a request_id were sent before.
func (g *generator) draft(id string) usage.FactDraft {
	d := fact(1 + g.Int64N(400))
	if g.chance(30) {
		d.Model = []string{"big", "small"}[g.IntN(2)]
	}
	if g.chance(70) {
		return d
	}
	name := "r-" + strconv.Itoa(g.IntN(12))
	d.RequestID = &name
	earlier, sent := g.named[id+" "+name]
	if sent && !g.chance(15) {
		return earlier
	}
	g.named[id+" "+name] = d
	return d
}

func show(drafts []usage.FactDraft) string {
	text := ""
	for _, d := range drafts {
		text += fmt.Sprintf("[%d %s %s]", *d.Tokens, d.Model, nameOf(d))
	}
	return text
}

// nameOf returns the request_id of a fact, "" for none.
func nameOf(d usage.FactDraft) string {
	if d.RequestID == nil {
		return ""
	}
	return *d.RequestID
}

func (g *generator) reserve() step {
	id, key := g.agent(), g.key()
	tokens, ttl := 1+g.Int64N(700), 1+g.Int64N(900)
	if g.chance(10) {
		tokens *= 10
	}
	return step{
		"reserve", fmt.Sprintf("%s reserves %d for %d s %q", id, tokens, ttl, key),
		func() observed { return g.doReserve(id, tokens, ttl, key) },
		func(m *model) observed {
			return m.once(key, func(m *model) observed { return m.reserve(id, tokens, time.Duration(ttl)*time.Second) })
		},
	}
}

// reservation returns the agent and the index of a granted reservation, usually a recent one.
func (g *generator) reservation() (id string, n int) {
	all := len(g.m.reservations)
	if all == 0 || g.chance(2) {
		return g.agent(), -1
	}
	n = g.IntN(all)
	if last := min(all, 12); g.chance(80) {
		n = all - 1 - g.IntN(last)
	}
	if g.chance(2) {
		return g.agent(), n
	}
	return g.m.reservations[n].agent, n
}

func (g *generator) settle() step {
	id, n := g.reservation()
	key, tokens, labels := g.key(), int64(g.IntN(3))*g.Int64N(350), models.FactLabels{}
	if n >= 0 && g.chance(30) {
		tokens = g.m.reservations[n].tokens
	}
	if g.chance(20) {
		labels.Kind = "chat"
	}
	return step{
		"settle", fmt.Sprintf("%s settles %d with %d %s %q", id, n, tokens, labels.Kind, key),
		func() observed { return g.doSettle(id, n, tokens, labels, key) },
		func(m *model) observed {
			return m.once(key, func(m *model) observed { return m.settle(id, n, tokens, labels) })
		},
	}
}

func (g *generator) release() step {
	id, n := g.reservation()
	return step{
		"release", fmt.Sprintf("%s releases %d", id, n),
		func() observed { return g.doRelease(id, n) },
		func(m *model) observed { return m.release(id, n) },
	}
}

// operate returns a random operation of an operator.
func (g *generator) operate() step {
	id, key := g.agent(), g.key()
	switch g.IntN(3) {
	case 0:
		tokens, term := 1+g.Int64N(1_500), time.Duration(1+g.IntN(30*60))*time.Minute
		return step{
			"add", fmt.Sprintf("%s gets %d for %s %q", id, tokens, term, key),
			func() observed { return g.doAdd(id, tokens, term, key) },
			func(m *model) observed {
				return m.once(key, func(m *model) observed { return m.add(id, tokens, term) })
			},
		}
	case 1:
		n := g.IntN(len(g.m.additions)+1) - 1
		if n >= 0 && g.chance(95) {
			id = g.m.additions[n].agent
		}
		return step{
			"remove", fmt.Sprintf("%s loses addition %d", id, n),
			func() observed { return g.doRemove(id, n) },
			func(m *model) observed { return m.remove(id, n) },
		}
	default:
		return step{
			"reset", fmt.Sprintf("%s is reset %q", id, key),
			func() observed { return g.doReset(id, key) },
			func(m *model) observed { return m.once(key, func(m *model) observed { return m.reset(id) }) },
		}
	}
}

// change returns a random change of the registry: of a budget, a scope, a parent or an activity.
func (g *generator) change() step {
	s := g.m.agents[g.ids[1+g.IntN(len(g.ids)-1)]]
	switch g.IntN(5) {
	case 0:
		budget := *s.TokenBudget/2 + g.Int64N(*s.TokenBudget)
		s.TokenBudget = new(max(1_000, min(budget, 20_000)))
	case 1, 2:
		if s.BudgetScope = models.ScopeSubtree; g.m.counts(s.ID) {
			s.BudgetScope = models.ScopeOwn
		}
	case 3:
		if s.Level > models.LevelOrchestrator {
			s.ParentID = g.above(s.Level)
		}
	case 4:
		s.IsActive = !s.IsActive || g.chance(50)
	}
	return step{
		"change", fmt.Sprintf("%s becomes %d %s under %s, active: %t", s.ID, *s.TokenBudget, s.BudgetScope, s.ParentID, s.IsActive),
		func() observed { return g.doChange(s) },
		func(m *model) observed {
			if m.agents[s.ID].BudgetScope != s.BudgetScope {
				delete(m.counting, s.ID)
			}
			m.agents[s.ID] = s
			return observed{}
		},
	}
}

// above returns a possible parent of an agent of the level.
func (g *generator) above(level models.Level) string {
	for {
		if id := g.ids[g.IntN(len(g.ids))]; g.m.agents[id].Level == level-1 {
			return id
		}
	}
}

// tick returns how far the clock moves before an operation. Sometimes it goes back, also by days,
// but not to before the end of an additional budget, which does not become active again.
func (g *generator) tick() time.Duration {
	now := g.m.now
	toMidnight := startOf(dayOf(now) + 1).Sub(now)
	switch n := g.IntN(200); {
	case n < 160:
		return time.Duration(1+g.IntN(int(4*time.Second/time.Microsecond))) * time.Microsecond
	case n < 188:
		return time.Duration(g.IntN(400)) * time.Second
	case n < 192:
		return time.Duration(g.IntN(int(3*time.Hour/time.Microsecond))) * time.Microsecond
	case n < 194:
		return toMidnight - time.Microsecond
	case n < 195:
		return toMidnight
	case n < 196:
		return time.Duration(g.IntN(4)) * 24 * time.Hour
	}
	back := time.Duration(g.IntN(6 * int(time.Hour))).Truncate(time.Microsecond)
	if g.chance(20) {
		back *= 20
	}
	for _, a := range g.m.additions {
		if !a.expires.After(now) && a.expires.After(now.Add(-back)) {
			back = now.Sub(a.expires)
		}
	}
	return -back
}

// observe returns the error code of an operation and the budget that refused it.
func observe(err error) observed {
	h := observed{code: errs.CodeOf(err)}
	if h.code == errs.BudgetExceeded {
		meta := errs.From(err).Meta
		h.whose, h.scope = meta["agent_id"].(string), meta["scope"].(models.BudgetScope)
	}
	return h
}
