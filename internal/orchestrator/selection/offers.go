package selection

import (
	"maps"
	"slices"
)

// offerCounts counts the active holders of a capability by their type, and under "" all
// of them, whatever their type.
type offerCounts map[string]map[string]int

// add counts an active agent's capability in (1) or out (-1).
func (o offerCounts) add(a *Agent, capability string, n int) {
	if !a.Active {
		return
	}
	o.count("", capability, n)
	if a.Type != "" {
		o.count(a.Type, capability, n)
	}
}

func (o offerCounts) count(agentType, capability string, n int) {
	held := o[agentType]
	if held == nil {
		held = map[string]int{}
		o[agentType] = held
	}
	held[capability] += n
	if held[capability] == 0 {
		delete(held, capability)
	}
	if len(held) == 0 {
		delete(o, agentType)
	}
}

// of returns what a type offers, sorted, never nil.
func (o offerCounts) of(agentType string) []string {
	names := slices.AppendSeq(make([]string, 0, len(o[agentType])), maps.Keys(o[agentType]))
	slices.Sort(names)
	return names
}
