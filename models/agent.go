// Package models declares the nouns of comet's domain and the rules of their fields. It does no I/O
// and imports no other package of the module.
package models

import (
	"slices"
	"strings"
	"time"
)

// RootAgentID is the id of the single L0 agent (CHE·NU §1).
const RootAgentID = "nova"

// Agent is one row of the registry.
type Agent struct {
	ID           string
	Name         string
	Level        Level
	SphereID     *int // nil only for L0
	FrequencyHz  int
	Capabilities []string `gorm:"serializer:json"`
	Description  string
	// Type is the agent's type in the envelope protocol (infra, desktop, code,
	// research, or another word); "" where it has none.
	Type     string
	ParentID *string // nil only for L0
	// TokenBudget is in tokens a UTC day; nil is unlimited, only for L0.
	TokenBudget *int64
	// BudgetScope is the usage that TokenBudget limits; "" is stored as own, and that of
	// L0 is always own.
	BudgetScope BudgetScope
	IsActive    bool
	// SelfRegistered is set for an agent that registered itself without a token or other proof. It
	// cannot call tools, and gets only tasks that name it or whose requirements no other agent meets.
	SelfRegistered bool
	// Version counts the committed changes of the row, from 1.
	Version   int64
	CreatedAt time.Time // UTC, microseconds
	UpdatedAt time.Time // UTC, microseconds
}

// AgentRef is the id and the level of an agent.
type AgentRef struct {
	ID    string `json:"id" example:"budget-assistant"`     // The agent's id.
	Level Level  `json:"level" example:"3" enums:"0,1,2,3"` // The level, 0 to 3.
}

// AgentStats is the work of an agent in the current UTC day (CHE·NU §2.5). Work without a duration
// does not count in the average, cancelled work not in the success rate.
type AgentStats struct {
	SessionsToday     int64    `json:"sessions_today" example:"15"`                         // Number of sessions today.
	AvgResponseTimeMS *int64   `json:"avg_response_time_ms" example:"234"`                  // Average duration of today's work in milliseconds, null if none was measured.
	SuccessRate       *float64 `json:"success_rate" example:"0.97" extensions:"x-nullable"` // Share of today's work that succeeded, 0 to 1; null without work.
}

// AgentDetail is an agent with its children, usage and statistics (CHE·NU §2.5).
type AgentDetail struct {
	Agent
	// TokensUsedToday is the ledger's used_today: the day's facts less what resets wrote off.
	TokensUsedToday int64
	// Children are the active agents directly below, by id, at most 1,000.
	Children []AgentRef
	// ChildrenTruncated is set where there are more.
	ChildrenTruncated bool
	Stats             AgentStats
}

// AgentDraft is the body of a request to create an agent (CHE·NU §2.2).
//
// The tags are the rules of single fields; package registry has those that need the level, the
// parent or the rest of the tree.
type AgentDraft struct {
	ID           *string  `json:"id" validate:"required,agentid" example:"custom-assistant" minLength:"1" maxLength:"64"`                       // The agent's id: lowercase letters, digits and hyphens.
	Name         *string  `json:"name" validate:"required,notblank,printable,max=120" example:"Custom Assistant" minLength:"1" maxLength:"120"` // The display name.
	Level        *Level   `json:"level" validate:"required,min=0,max=3" example:"3" enums:"0,1,2,3"`                                            // The level, 0 to 3.
	SphereID     *int     `json:"sphere_id" validate:"omitnil,min=1,max=9" example:"1" minimum:"1" maximum:"9"`                                 // The sphere; that of the parent if it is omitted. Required for L1 and in rosters.
	FrequencyHz  *int     `json:"frequency_hz" example:"444"`                                                                                   // The frequency in Hz, one of the level's: 888 for L1, 555 (the default) or 666 for L2, 444 for L3.
	Capabilities []string `json:"capabilities" validate:"max=256,unique,dive,capability" example:"custom_task_1,custom_task_2"`                 // What the agent can do: predefined names, or others with the prefix `custom:`.
	Description  string   `json:"description" validate:"text,max=2000" example:"A custom L3 assistant for personal tasks" maxLength:"2000"`     // A text about the agent.
	Type         string   `json:"type" validate:"omitempty,word" example:"research" maxLength:"64"`                                             // The agent type of the envelope protocol.
	ParentID     *string  `json:"parent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64"`                               // The agent directly above; required for L2 and L3, `nova` for L1.
	// Tokens per UTC day; the default of the level if it is omitted (CHE·NU §5.1).
	TokenBudget Optional[int64] `json:"token_budget" validate:"omitnil,min=1000" swaggertype:"integer" example:"15000" minimum:"1000" maximum:"500000"`
	// What token_budget limits: the agent's own use (`own`), or the use of the agent and all
	// agents below it (`subtree`).
	BudgetScope Optional[BudgetScope] `json:"budget_scope" validate:"omitnil,oneof=own subtree" swaggertype:"string" example:"subtree" enums:"own,subtree" default:"own"`
	// SelfRegistered is Agent.SelfRegistered. Requests cannot set it.
	SelfRegistered bool `json:"-"`
}

// customPrefix is the prefix of capabilities that are not predefined (CHE·NU §6.2).
const customPrefix = "custom:"

// CapabilityKey returns the name without the prefix custom:. Names with equal keys are the same
// capability.
func CapabilityKey(name string) string { return strings.TrimPrefix(name, customPrefix) }

// CapabilityKeys returns the keys of names, sorted and without duplicates.
func CapabilityKeys(names []string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = CapabilityKey(name)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

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
