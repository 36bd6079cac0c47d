package usage

import (
	"time"

	"comet/models"
)

// Limits of the ledger.
const (
	// MaxTokensADay limits the tokens of an agent a day, so that sums of many fit into 64 bits.
	MaxTokensADay = 1_000_000_000_000_000
	// MaxFacts is how many facts one request may record.
	MaxFacts = 1000
	// DefaultReservationTTL is how long a reservation holds tokens by default, in seconds.
	DefaultReservationTTL = 300
)

// Outcome is how a piece of work ended.
type Outcome string // @name WorkOutcome

// The outcomes. A cancelled piece of work counts neither way in a success rate.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimeout   Outcome = "timeout"
	OutcomeCancelled Outcome = "cancelled"
)

// FactOutcome is how the work that used the tokens ended; it feeds the agent's statistics (CHE·NU
// §2.5).
type FactOutcome struct {
	Outcome Outcome `json:"outcome,omitempty" validate:"omitempty,oneof=success failed timeout cancelled" example:"success" enums:"success,failed,timeout,cancelled"` // How the work ended.
	// How long the work took, in milliseconds, at most 30 days. It needs an outcome.
	DurationMS *int64 `json:"duration_ms,omitempty" validate:"omitnil,min=0,max=2592000000" example:"234" minimum:"0" maximum:"2592000000"`
	// Groups work and needs an outcome. Without it the task counts as the session; without both, each
	// fact is its own session.
	SessionID string `json:"session_id,omitempty" validate:"omitempty,notblank,printable,max=128" example:"session-42" maxLength:"128"`
}

// FactDraft is a report of used tokens.
type FactDraft struct {
	Tokens *int64 `json:"tokens" validate:"required,min=1,max=1000000000000" example:"1250" minimum:"1" maximum:"1000000000000"` // The number of used tokens.
	models.FactLabels
	FactOutcome
	// Makes the fact count once, however often it is sent.
	RequestID *string `json:"request_id,omitempty" validate:"omitnil,notblank,printable,max=128" example:"req-01J9" minLength:"1" maxLength:"128" extensions:"x-nullable"`
} // @name UsageFactDraft

// AgentUsage is what an agent has used and may still use in a UTC day (CHE·NU §5.2).
type AgentUsage struct {
	AgentID string `json:"agent_id" example:"finance-personal"` // The agent's id.
	// What the agent may use today: its token_budget and its additional budgets. Null is unlimited,
	// only for L0.
	Budget *int64 `json:"budget" example:"25000" extensions:"x-nullable"`
	// What the agent itself has used today, less what resets wrote off.
	UsedToday    int64     `json:"used_today" example:"12500"`
	UsedThisHour int64     `json:"used_this_hour" example:"2100"`                     // What the agent itself has used in this hour.
	Remaining    *int64    `json:"remaining" example:"12500" extensions:"x-nullable"` // max(0, budget − used_today − reserved); null is unlimited.
	ResetAt      time.Time `json:"reset_at" example:"2026-01-11T00:00:00Z"`           // The next midnight UTC.

	Reserved         int64              `json:"reserved" example:"0"`                           // Tokens of reservations that are held.
	AdditionalBudget int64              `json:"additional_budget" example:"0"`                  // The temporary part of budget.
	ForgivenToday    int64              `json:"forgiven_today" example:"0"`                     // What resets wrote off today.
	BudgetScope      models.BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"` // Whose use counts against the budget.
	// The sum of today's facts of the agent and of its descendants at the time; resets do not change
	// it.
	SubtreeUsedToday int64 `json:"subtree_used_today" example:"19400"`
	// What the agent and its descendants have reserved; only with budget_scope subtree.
	SubtreeReserved *int64 `json:"subtree_reserved,omitempty" example:"1500"`
	// What resets wrote off of the subtree's use today; only with budget_scope subtree.
	SubtreeForgivenToday *int64 `json:"subtree_forgiven_today,omitempty" example:"0"`
	// What the agent and its descendants may still use together; null unless budget_scope is subtree.
	SubtreeRemaining *int64 `json:"subtree_remaining" example:"5600" extensions:"x-nullable"`
}

// Balance is the part of an agent's usage that a charge changes.
type Balance struct {
	Budget    *int64    `json:"budget" example:"25000" extensions:"x-nullable"`    // What the agent may use today; null is unlimited, only for L0.
	UsedToday int64     `json:"used_today" example:"12500"`                        // What the agent itself has used today, less what resets wrote off.
	Reserved  int64     `json:"reserved" example:"0"`                              // Tokens of reservations that are held.
	Remaining *int64    `json:"remaining" example:"12500" extensions:"x-nullable"` // max(0, budget − used_today − reserved); null is unlimited.
	ResetAt   time.Time `json:"reset_at" example:"2026-01-11T00:00:00Z"`           // The next midnight UTC.
} // @name BudgetBalance

// Recorded is the result of recording facts, in order, with the balance after them.
type Recorded struct {
	Facts   []models.Fact
	Balance Balance
}

// ReservationDraft is a request to reserve tokens.
type ReservationDraft struct {
	Tokens     *int64 `json:"tokens" validate:"required,min=1,max=1000000000000" example:"2000" minimum:"1" maximum:"1000000000000"`            // The number of tokens to reserve.
	TTLSeconds *int64 `json:"ttl_seconds" validate:"omitnil,min=1,max=86400" example:"300" minimum:"1" maximum:"86400" extensions:"x-nullable"` // How long the tokens are held, default 300.
}

// Settlement turns a reservation into usage.
type Settlement struct {
	Tokens *int64 `json:"tokens" validate:"required,min=0,max=1000000000000" example:"1730" minimum:"0" maximum:"1000000000000"` // The number of used tokens; 0 records no fact.
	models.FactLabels
	FactOutcome
} // @name ReservationSettlement

// Settled is a settled reservation with the agent's balance after it.
type Settled struct {
	Reservation models.Reservation
	Late        bool // the reservation had expired before
	Replayed    bool // it was settled before with the same body
	Balance     Balance
}

// BudgetAdditionDraft is a request for a temporary additional budget.
type BudgetAdditionDraft struct {
	Tokens     *int64     `json:"tokens" validate:"required,min=1,max=1000000000000" example:"50000" minimum:"1" maximum:"1000000000000"`                   // Tokens per UTC day that it adds to the budget.
	ExpiresAt  *time.Time `json:"expires_at" example:"2026-01-11T00:00:00Z" extensions:"x-nullable"`                                                        // When it ends. Either `expires_at` or `ttl_seconds` is required.
	TTLSeconds *int64     `json:"ttl_seconds" validate:"omitnil,min=1,max=31622400" example:"86400" minimum:"1" maximum:"31622400" extensions:"x-nullable"` // How long it is in effect, in seconds.
	Reason     *string    `json:"reason" validate:"required,notblank,printable,max=500" example:"month-end closing" minLength:"1" maxLength:"500"`          // The reason, for the audit log.
}

// ResetDraft is a request to write off today's use.
type ResetDraft struct {
	Reason *string `json:"reason" validate:"required,notblank,printable,max=500" example:"runaway loop, fixed" minLength:"1" maxLength:"500"` // The reason, for the audit log.
} // @name UsageReset

// HistoryWindow is the length of a window of the history.
type HistoryWindow string

// The windows.
const (
	WindowHour HistoryWindow = "hour"
	WindowDay  HistoryWindow = "day"
)

// HistoryBy is the label by which a history is broken down.
type HistoryBy string

// The labels.
const (
	ByNothing HistoryBy = ""
	ByModel   HistoryBy = "model"
	ByKind    HistoryBy = "kind"
	ByTask    HistoryBy = "task"
)

// HistoryQuery selects the windows that begin in [From, To).
type HistoryQuery struct {
	Window   HistoryWindow
	By       HistoryBy
	From, To time.Time
	// Top is how many groups of a window are named, 1-100; the others are summed up.
	Top int
}

// HistoryBucket is the use in one window.
type HistoryBucket struct {
	Start       time.Time      `json:"start" example:"2026-01-10T15:00:00Z"` // The begin of the window, UTC.
	Tokens      int64          `json:"tokens" example:"2100"`                // The used tokens.
	Breakdown   []HistoryGroup `json:"breakdown,omitempty"`                  // The groups, largest first.
	OtherTokens int64          `json:"other_tokens,omitempty" example:"120"` // The used tokens of the other groups.
} // @name UsageBucket

// HistoryGroup is the part of a window with the same label.
type HistoryGroup struct {
	Value  string `json:"value" example:"gpt-5-mini"` // The label, "" for facts without one.
	Tokens int64  `json:"tokens" example:"1980"`      // The used tokens.
	Facts  int64  `json:"facts" example:"7"`          // The number of facts.
} // @name UsageGroup

// BudgetAlert is the data of agent.budget_warning and agent.budget_exceeded.
type BudgetAlert struct {
	AgentID   string             `json:"agent_id" example:"finance-personal"`     // The agent's id.
	Day       string             `json:"day" example:"2026-01-10"`                // The UTC day, as YYYY-MM-DD.
	Budget    int64              `json:"budget" example:"25000"`                  // What the agent may use on that day.
	Scope     models.BudgetScope `json:"scope" example:"own" enums:"own,subtree"` // Whose use counts against the budget.
	Used      int64              `json:"used" example:"20250"`                    // The used tokens.
	Reserved  int64              `json:"reserved" example:"0"`                    // The reserved tokens.
	Remaining int64              `json:"remaining" example:"4750"`                // The tokens that remain.
	Percent   int64              `json:"percent" example:"81"`                    // The used part of the budget in whole percent, rounded down.
	Requested int64              `json:"requested,omitempty" example:"6000"`      // Tokens of the rejected reservation, absent if a fact exceeded the budget.
	ResetAt   time.Time          `json:"reset_at" example:"2026-01-11T00:00:00Z"` // The next midnight UTC.
}
