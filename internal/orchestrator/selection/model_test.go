package selection_test

import (
	"math/big"
	"slices"
	"sort"
	"strings"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// model is a simple implementation of the index: it checks all agents and sorts all results.
type model map[string]selection.Agent

func bare(name string) string { return strings.TrimPrefix(name, "custom:") }

func set(names []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[bare(n)] = true
	}
	return out
}

// entry is a considered agent.
type entry struct {
	agent             selection.Agent
	matched, required int
	reason            selection.Reason // "" for a candidate
}

func (e entry) load() int {
	if e.agent.Worker.InFlight >= e.agent.Worker.Concurrency {
		return 100
	}
	return max(e.agent.Worker.Load, e.agent.Worker.InFlight*100/e.agent.Worker.Concurrency)
}

func (e entry) ranked() selection.Ranked {
	r := selection.Ranked{AgentID: e.agent.ID, Score: 1, Load: e.load(), LastAssignedAt: e.agent.Worker.LastAssignedAt}
	if e.required > 0 {
		r.Score = float64(e.matched) / float64(e.required)
	}
	return r
}

// score is the exact score.
func (e entry) score() *big.Rat {
	if e.required == 0 {
		return big.NewRat(1, 1)
	}
	return big.NewRat(int64(e.matched), int64(e.required))
}

// request is a request with the name of its ranking.
type request struct {
	selection.Request

	loadFirst bool
}

func (r request) real() selection.Request {
	if r.loadFirst {
		r.Rank = byLoad
	}
	return r.Request
}

// considered returns the agents that a request considers.
func (m model) considered(r request) (out []entry) {
	required := set(r.Capabilities)
	for _, a := range m {
		matched, held := 0, set(a.Capabilities)
		for name := range required {
			if held[name] {
				matched++
			}
		}
		switch {
		case len(required) > 0 && matched > 0,
			len(required) == 0 && r.AgentID != "" && a.ID == r.AgentID,
			len(required) == 0 && r.AgentID == "" && r.AgentType != "" && a.Type == r.AgentType:
			out = append(out, entry{agent: a, matched: matched, required: len(required)})
		}
	}
	return out
}

// order is the order of the reasons; a candidate has none of them.
const order = "inactive wrong_type wrong_sphere not_wanted below_threshold self_registered offline breaker_open excluded busy saturated"

func (r request) reason(e entry) selection.Reason {
	threshold := r.Threshold
	if threshold == 0 {
		threshold = 0.5
	}
	a := e.agent
	broken := map[string]bool{
		"inactive":        !a.Active,
		"wrong_type":      r.AgentType != "" && r.AgentType != a.Type,
		"wrong_sphere":    r.SphereID != 0 && r.SphereID != a.SphereID,
		"not_wanted":      r.AgentID != "" && r.AgentID != a.ID,
		"below_threshold": e.score().Cmp(new(big.Rat).SetFloat64(threshold)) < 0,
		"offline":         a.Worker.State == models.WorkerOffline,
		"breaker_open":    !a.Worker.BreakerUntil.IsZero(),
		"excluded":        slices.Contains(r.Exclude, a.ID),
		"busy":            a.Worker.State == models.WorkerBusy,
		"saturated":       a.Worker.InFlight >= a.Worker.Concurrency,
	}
	for _, reason := range strings.Fields(order) {
		if broken[reason] {
			return selection.Reason(reason)
		}
	}
	return ""
}

// sorted returns the best, or the nearest miss, first.
func (r request) sorted(entries []entry) []entry {
	sort.Slice(entries, func(i, j int) bool {
		a, b := entries[i], entries[j]
		if a.reason != b.reason {
			return strings.Index(order, string(a.reason)) > strings.Index(order, string(b.reason))
		}
		if r.loadFirst && a.load() != b.load() {
			return a.load() < b.load()
		}
		if a.matched != b.matched {
			return a.matched > b.matched
		}
		if a.load() != b.load() {
			return a.load() < b.load()
		}
		if !a.agent.Worker.LastAssignedAt.Equal(b.agent.Worker.LastAssignedAt) {
			return a.agent.Worker.LastAssignedAt.Before(b.agent.Worker.LastAssignedAt)
		}
		return a.agent.ID < b.agent.ID
	})
	return entries
}

func (m model) Select(r request) selection.Decision {
	d := selection.Decision{Verdict: selection.Unsupported, Candidates: []selection.Ranked{}, Rejected: []selection.Ranked{}}
	var candidates, rejected []entry
	ended := map[selection.Reason]bool{}
	considered, othersOffer := m.considered(r), false
	for i, e := range considered {
		considered[i].reason = r.reason(e)
		othersOffer = othersOffer || !e.agent.SelfRegistered && !slices.Contains(strings.Fields(order)[:5], string(considered[i].reason))
	}
	for _, e := range considered {
		if e.agent.SelfRegistered && othersOffer && !slices.Contains(strings.Fields(order)[:5], string(e.reason)) {
			e.reason = "self_registered"
		}
		ended[e.reason] = true
		if d.Considered++; e.reason == "" {
			candidates = append(candidates, e)
		} else {
			rejected = append(rejected, e)
		}
	}
	for i, e := range r.sorted(candidates) {
		if d.Eligible++; i < 10 {
			d.Candidates = append(d.Candidates, e.ranked())
		}
	}
	for i, e := range r.sorted(rejected) {
		if i < 10 {
			r := e.ranked()
			r.Reason = e.reason
			d.Rejected = append(d.Rejected, r)
		}
	}
	switch {
	case ended[""]:
		d.Verdict = selection.Chosen
	case ended["busy"] || ended["saturated"]:
		d.Verdict = selection.Saturated
	case ended["excluded"]:
		d.Verdict = selection.Excluded
	case ended["offline"] || ended["breaker_open"]:
		d.Verdict = selection.Unavailable
	}
	return d
}

func (m model) CapabilitiesOf(agentType string) []string {
	out := []string{}
	for _, a := range m {
		if a.Active && (agentType == "" || a.Type == agentType) {
			for name := range set(a.Capabilities) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
