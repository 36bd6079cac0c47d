package models

import "slices"

// Level is an agent's rank in the hierarchy (CHE·NU §1, §3.2).
type Level int // @name AgentLevel

// The four levels.
const (
	LevelSystem       Level = 0 // L0, NOVA
	LevelOrchestrator Level = 1 // L1, one per sphere
	LevelSpecialist   Level = 2 // L2
	LevelAssistant    Level = 3 // L3
)

// Valid reports whether l is one of the four levels.
func (l Level) Valid() bool { return l >= LevelSystem && l <= LevelAssistant }

// Frequencies returns the frequencies in Hz that the level allows (CHE·NU §4.2);
// nil for an unknown level.
func (l Level) Frequencies() []int {
	switch l {
	case LevelSystem:
		return []int{999}
	case LevelOrchestrator:
		return []int{888}
	case LevelSpecialist:
		return []int{555, 666}
	case LevelAssistant:
		return []int{444}
	}
	return nil
}

// AllowsFrequency is the document's validate_frequency (CHE·NU §4.2).
func (l Level) AllowsFrequency(hz int) bool { return slices.Contains(l.Frequencies(), hz) }

// DefaultBudget returns the daily token budget of an agent created without one;
// nil is unlimited (CHE·NU §5.1).
func (l Level) DefaultBudget() *int64 {
	switch l {
	case LevelOrchestrator:
		return new(int64(100_000))
	case LevelSpecialist:
		return new(int64(25_000))
	case LevelAssistant:
		return new(int64(10_000))
	}
	return nil
}

// MaxBudget returns the largest daily token budget of the level; nil is unlimited (CHE·NU §5.1).
func (l Level) MaxBudget() *int64 {
	switch l {
	case LevelOrchestrator:
		return new(int64(500_000))
	case LevelSpecialist:
		return new(int64(100_000))
	case LevelAssistant:
		return new(int64(50_000))
	}
	return nil
}
