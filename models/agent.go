// Package models holds the nouns of comet's domain with their field-level rules.
// It does no I/O and imports no other room.
package models

import "time"

// Limits on an agent's fields, in runes or entries.
const (
	MaxIDLength          = 64
	MaxNameLength        = 120
	MaxDescriptionLength = 2000
	MaxTypeLength        = 64
	MaxCapabilities      = 256
	MaxCapabilityLength  = 128
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
	Capabilities []string
	Description  string
	// Type is the agent's type in the envelope protocol (infra, desktop, code,
	// research, or another word); "" where it has none.
	Type     string
	ParentID *string // nil only for L0
	// TokenBudget is in tokens a UTC day; nil is unlimited, only for L0.
	TokenBudget *int64
	// BudgetScope is what TokenBudget is held against; "" is stored as own, and
	// L0's is always own.
	BudgetScope BudgetScope
	IsActive    bool
	// Version counts the committed changes of the row, from 1.
	Version   int64
	CreatedAt time.Time // UTC, microseconds
	UpdatedAt time.Time // UTC, microseconds
}

// AgentRef names an agent and its level.
type AgentRef struct {
	ID    string `json:"id" example:"budget-assistant"`
	Level Level  `json:"level" example:"3" enums:"0,1,2,3"`
}

// AgentStats is what an agent did in the current UTC day. It comes from outcome
// rows; an agent that did nothing has zeros and no success rate (CHE·NU §2.5).
// The average is over what has a duration; what was cancelled counts neither way
// in the rate.
type AgentStats struct {
	SessionsToday     int64    `json:"sessions_today" example:"15"`
	AvgResponseTimeMS int64    `json:"avg_response_time_ms" example:"234"`
	SuccessRate       *float64 `json:"success_rate" example:"0.97" extensions:"x-nullable"`
}

// AgentDetail is an agent with what is known of its surroundings (CHE·NU §2.5).
type AgentDetail struct {
	Agent
	// TokensUsedToday is the ledger's used_today: the day's facts less what resets
	// wrote off.
	TokensUsedToday int64
	// Children are the active agents directly below, by id, at most 1,000.
	Children []AgentRef
	// ChildrenTruncated is set where there are more.
	ChildrenTruncated bool
	Stats             AgentStats
}

// AgentDraft is the body of a create request (CHE·NU §2.2). The rules that one
// field can be judged by alone are its tags; those that need the level, the
// parent or the rest of the tree are registry's.
type AgentDraft struct {
	ID           *string  `json:"id" validate:"required,agentid" example:"custom-assistant" minLength:"1" maxLength:"64"`
	Name         *string  `json:"name" validate:"required,notblank,printable,max=120" example:"Custom Assistant" minLength:"1" maxLength:"120"`
	Level        *Level   `json:"level" validate:"required,min=0,max=3" example:"3" enums:"0,1,2,3"`
	SphereID     *int     `json:"sphere_id" validate:"omitnil,min=1,max=9" example:"1" minimum:"1" maximum:"9"`
	FrequencyHz  *int     `json:"frequency_hz" validate:"required" example:"444"`
	Capabilities []string `json:"capabilities" validate:"max=256,unique,dive,capability" example:"custom_task_1,custom_task_2"`
	Description  string   `json:"description" validate:"text,max=2000" example:"A custom L3 assistant for personal tasks" maxLength:"2000"`
	Type         string   `json:"type" validate:"omitempty,word" example:"research" maxLength:"64"`
	ParentID     *string  `json:"parent_id" validate:"omitnil,agentid" example:"finance-personal" maxLength:"64"`
	// TokenBudget is the level's default where it is left out (CHE·NU §5.1).
	TokenBudget Optional[int64] `json:"token_budget" validate:"omitnil,min=1000" swaggertype:"integer" example:"15000" minimum:"1000" maximum:"500000"`
	// BudgetScope says what token_budget is held against: the agent's own use, or
	// also what it and all below it use together.
	BudgetScope Optional[BudgetScope] `json:"budget_scope" validate:"omitnil,oneof=own subtree" swaggertype:"string" example:"subtree" enums:"own,subtree" default:"own"`
}

// AgentPatch is the body of an update (CHE·NU §2.3): only members that are
// present change anything. Immutable members are accepted with the value they
// already have.
type AgentPatch struct {
	Name         Optional[string]   `json:"name" validate:"omitnil,notblank,printable,max=120" swaggertype:"string" example:"Updated Assistant Name" minLength:"1" maxLength:"120"`
	Description  Optional[string]   `json:"description" validate:"omitnil,text,max=2000" swaggertype:"string" example:"Helps organise daily stand-ups" maxLength:"2000" extensions:"x-nullable"`
	Type         Optional[string]   `json:"type" validate:"omitempty,word" swaggertype:"string" example:"research" maxLength:"64" extensions:"x-nullable"`
	Capabilities Optional[[]string] `json:"capabilities" validate:"omitnil,max=256,unique,dive,capability" swaggertype:"array,string" example:"scheduling,reminders"`
	SphereID     Optional[int]      `json:"sphere_id" validate:"omitnil,min=1,max=9" swaggertype:"integer" example:"2" minimum:"1" maximum:"9" extensions:"x-nullable"`
	ParentID     Optional[string]   `json:"parent_id" validate:"omitnil,agentid" swaggertype:"string" example:"project-business" maxLength:"64" extensions:"x-nullable"`
	TokenBudget  Optional[int64]    `json:"token_budget" validate:"omitnil,min=1000" swaggertype:"integer" example:"25000" minimum:"1000" maximum:"500000" extensions:"x-nullable"`
	// BudgetScope says what token_budget is held against: the agent's own use, or
	// also what it and all below it use together.
	BudgetScope Optional[BudgetScope] `json:"budget_scope" validate:"omitnil,oneof=own subtree" swaggertype:"string" example:"subtree" enums:"own,subtree"`
	IsActive    Optional[bool]        `json:"is_active" swaggertype:"boolean" example:"false"`

	ID          Optional[string] `json:"id" swaggertype:"string" example:"custom-assistant" maxLength:"64"`
	Level       Optional[Level]  `json:"level" swaggertype:"integer" example:"3" minimum:"0" maximum:"3"`
	FrequencyHz Optional[int]    `json:"frequency_hz" swaggertype:"integer" example:"444"`
}
