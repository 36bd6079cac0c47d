package models

import "time"

// BudgetScope says what an agent's budget is held against.
type BudgetScope string

// The budget scopes.
const (
	// ScopeOwn holds the budget against what the agent itself uses.
	ScopeOwn BudgetScope = "own"
	// ScopeSubtree holds it against what the agent and every agent below it use.
	ScopeSubtree BudgetScope = "subtree"
)

// Limits of the ledger.
const (
	// MaxTokens is the most one fact, reservation or addition may name.
	MaxTokens = 1_000_000_000_000
	// MaxTokensADay is where an agent's day is full; it keeps sums of many agents
	// within a 64-bit number.
	MaxTokensADay = 1_000_000_000_000_000
	// MaxDayAhead is how many days the ledger's day may be ahead of the clock before
	// the clock that made it so is taken for a wrong one.
	MaxDayAhead = 1
	// MaxFacts is how many facts one request may record.
	MaxFacts = 1000
	// DefaultReservationTTL and MaxReservationTTL bound how long a reservation
	// holds tokens, in seconds.
	DefaultReservationTTL = 300
	MaxReservationTTL     = 86_400
)

// Outcome says how a piece of work ended.
type Outcome string // @name WorkOutcome

// The outcomes. A cancelled piece of work counts neither way in a success rate.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimeout   Outcome = "timeout"
	OutcomeCancelled Outcome = "cancelled"
)

// FactLabels say what tokens were used for. Empty ones are left out of a breakdown.
type FactLabels struct {
	// TaskID is the piece of work.
	TaskID string `json:"task_id,omitempty" validate:"omitempty,notblank,printable,max=128" example:"task-7f3a" maxLength:"128"`
	// Model is the language model that was asked.
	Model string `json:"model,omitempty" validate:"omitempty,notblank,printable,max=128" example:"gpt-5-mini" maxLength:"128"`
	// Kind is the kind of use, a word of the caller's own.
	Kind string `json:"kind,omitempty" validate:"omitempty,notblank,printable,max=64" example:"completion" maxLength:"64"`
}

// FactOutcome says how the piece of work behind a fact ended; it feeds the
// agent's statistics (CHE·NU §2.5).
type FactOutcome struct {
	Outcome Outcome `json:"outcome,omitempty" validate:"omitempty,oneof=success failed timeout cancelled" example:"success" enums:"success,failed,timeout,cancelled"`
	// DurationMS is how long the work took, in milliseconds, at most 30 days.
	// It needs an outcome.
	DurationMS *int64 `json:"duration_ms,omitempty" validate:"omitnil,min=0,max=2592000000" example:"234" minimum:"0" maximum:"2592000000"`
	// SessionID groups work and needs an outcome; without it the task counts as the session, without
	// both every fact is one of its own.
	SessionID string `json:"session_id,omitempty" validate:"omitempty,notblank,printable,max=128" example:"session-42" maxLength:"128"`
}

// FactDraft is one use of tokens as a caller reports it.
type FactDraft struct {
	Tokens *int64 `json:"tokens" validate:"required,min=1,max=1000000000000" example:"1250" minimum:"1" maximum:"1000000000000"`
	FactLabels
	FactOutcome
	// RequestID makes the fact count once however often it is sent.
	RequestID *string `json:"request_id,omitempty" validate:"omitnil,notblank,printable,max=128" example:"req-01J9" minLength:"1" maxLength:"128" extensions:"x-nullable"`
} // @name UsageFactDraft

// Fact is one recorded use of tokens. It never changes.
type Fact struct {
	ID      string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	AgentID string    `json:"agent_id" example:"finance-personal"`
	At      time.Time `json:"at" example:"2026-01-10T15:30:00Z"`
	Tokens  int64     `json:"tokens" example:"1250"`
	FactLabels
	RequestID string `json:"request_id,omitempty" example:"req-01J9"`
	// ReservationID is the reservation that the fact settled.
	ReservationID string `json:"reservation_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	// Replayed is set where the request_id was recorded before; nothing was added.
	Replayed bool `json:"replayed,omitempty" example:"true"`

	// Path is the chain of ancestors the fact counts on, from nova down to the
	// agent, joined with "/".
	Path string `json:"-"`
	// Digest is the SHA-256 of what the request said.
	Digest [32]byte `json:"-"`
} // @name UsageFact

// Usage is what an agent used and may still use in a UTC day (CHE·NU §5.2).
type Usage struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	// Budget is what the agent may use today: its token_budget and its additional
	// budgets. Null is unlimited, only for L0.
	Budget *int64 `json:"budget" example:"25000" extensions:"x-nullable"`
	// UsedToday is what the agent itself used today, less what a reset wrote off.
	UsedToday    int64 `json:"used_today" example:"12500"`
	UsedThisHour int64 `json:"used_this_hour" example:"2100"`
	// Remaining is max(0, budget − used_today − reserved); null is unlimited.
	Remaining *int64 `json:"remaining" example:"12500" extensions:"x-nullable"`
	// ResetAt is the next midnight UTC.
	ResetAt time.Time `json:"reset_at" example:"2026-01-11T00:00:00Z"`

	// Reserved is what is held and not yet settled.
	Reserved int64 `json:"reserved" example:"0"`
	// AdditionalBudget is the part of budget that is temporary.
	AdditionalBudget int64 `json:"additional_budget" example:"0"`
	// ForgivenToday is what resets wrote off today.
	ForgivenToday int64       `json:"forgiven_today" example:"0"`
	BudgetScope   BudgetScope `json:"budget_scope" example:"own" enums:"own,subtree"`
	// SubtreeUsedToday is the sum of today's facts of the agent and of those that
	// stood below it when they spent; no reset changes it.
	SubtreeUsedToday int64 `json:"subtree_used_today" example:"19400"`
	// SubtreeReserved is what is held by the agent and by those below it, and
	// SubtreeForgivenToday what resets wrote off of the roll-up today, both with
	// budget_scope subtree.
	SubtreeReserved      *int64 `json:"subtree_reserved,omitempty" example:"1500"`
	SubtreeForgivenToday *int64 `json:"subtree_forgiven_today,omitempty" example:"0"`
	// SubtreeRemaining is what the agent and all below it may still use together,
	// with budget_scope subtree; null otherwise.
	SubtreeRemaining *int64 `json:"subtree_remaining" example:"5600" extensions:"x-nullable"`
} // @name AgentUsage

// Balance is the part of a Usage that a charge changes; it is known without
// another read.
type Balance struct {
	// Budget is what the agent may use today; null is unlimited, only for L0.
	Budget    *int64 `json:"budget" example:"25000" extensions:"x-nullable"`
	UsedToday int64  `json:"used_today" example:"12500"`
	Reserved  int64  `json:"reserved" example:"0"`
	// Remaining is max(0, budget − used_today − reserved); null is unlimited.
	Remaining *int64    `json:"remaining" example:"12500" extensions:"x-nullable"`
	ResetAt   time.Time `json:"reset_at" example:"2026-01-11T00:00:00Z"`
} // @name BudgetBalance

// Recorded is the answer to recorded facts, in the order of the request.
type Recorded struct {
	Facts []Fact
	// Balance is the agent's after them.
	Balance Balance
}

// ReservationDraft asks for permission to spend.
type ReservationDraft struct {
	Tokens *int64 `json:"tokens" validate:"required,min=1,max=1000000000000" example:"2000" minimum:"1" maximum:"1000000000000"`
	// TTLSeconds is how long the tokens are held, default 300.
	TTLSeconds *int64 `json:"ttl_seconds" validate:"omitnil,min=1,max=86400" example:"300" minimum:"1" maximum:"86400" extensions:"x-nullable"`
}

// ReservationState is where a reservation stands.
type ReservationState string

// The states of a reservation; all but the first are final, but what expired may
// still be settled.
const (
	ReservationHeld     ReservationState = "held"
	ReservationSettled  ReservationState = "settled"
	ReservationReleased ReservationState = "released"
	ReservationExpired  ReservationState = "expired"
)

// Reservation holds tokens of a budget until it is settled, released or expires.
type Reservation struct {
	ID        string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	AgentID   string           `json:"agent_id" example:"finance-personal"`
	Tokens    int64            `json:"tokens" example:"2000"`
	State     ReservationState `json:"state" example:"held" enums:"held,settled,released,expired"`
	CreatedAt time.Time        `json:"created_at" example:"2026-01-10T15:30:00Z"`
	ExpiresAt time.Time        `json:"expires_at" example:"2026-01-10T15:35:00Z"`
	// SettledTokens is what it was settled with.
	SettledTokens *int64 `json:"settled_tokens,omitempty" example:"1730"`
	// EndedAt is when it was settled, released or freed; nil while it is held.
	EndedAt *time.Time `json:"-"`

	// Path is the chain of ancestors that granted it.
	Path string `json:"-"`
	// Digest is the SHA-256 of the settlement.
	Digest [32]byte `json:"-"`
}

// Settlement turns a reservation into usage.
type Settlement struct {
	// Tokens is what was really used; 0 records no fact.
	Tokens *int64 `json:"tokens" validate:"required,min=0,max=1000000000000" example:"1730" minimum:"0" maximum:"1000000000000"`
	FactLabels
	FactOutcome
} // @name ReservationSettlement

// Settled is a settled reservation and the agent's balance after it.
type Settled struct {
	Reservation Reservation
	// Late is set where the reservation had expired before it was settled.
	Late bool
	// Replayed is set where it was settled before with the same body.
	Replayed bool
	Balance  Balance
}

// Account is the row of an agent that spends: the sums a decision rests on. The
// Subtree sums count only while Subtree is set.
type Account struct {
	AgentID string
	Level   Level
	// Day is the UTC day the sums belong to, in days since 1970. It does not follow a
	// clock that goes back.
	Day             int64
	Used            int64 // tokens of the day's facts
	Forgiven        int64 // the part of them that resets wrote off
	Reserved        int64 // held tokens, whatever the day
	Subtree         bool
	SubtreeUsed     int64
	SubtreeForgiven int64
	SubtreeReserved int64
	Extra           int64     // additional budgets, until ExtraUntil
	ExtraUntil      time.Time // when Extra has to be summed up again
	WarnedDay       int64     // the last day of an agent.budget_warning, -1 for none
	ExceededDay     int64     // the last day of an agent.budget_exceeded, -1 for none
}

// Spender is what the ledger must know of an agent: a link of a chain of ancestors.
type Spender struct {
	ID          string
	Level       Level
	ParentID    string // "" for nova
	TokenBudget *int64
	BudgetScope BudgetScope
	IsActive    bool
	Version     int64 // of the agent's row
}

// OutcomeRow is how one piece of an agent's work ended.
type OutcomeRow struct {
	AgentID   string
	SessionID string
	Status    Outcome
	// DurationMS is nil where nobody measured it.
	DurationMS *int64
	At         time.Time
}

// BudgetAdditionDraft asks for a temporary additional budget.
type BudgetAdditionDraft struct {
	Tokens    *int64     `json:"tokens" validate:"required,min=1,max=1000000000000" example:"50000" minimum:"1" maximum:"1000000000000"`
	ExpiresAt *time.Time `json:"expires_at" validate:"required" example:"2026-01-11T00:00:00Z"`
	Reason    *string    `json:"reason" validate:"required,notblank,printable,max=500" example:"month-end closing" minLength:"1" maxLength:"500"`
}

// BudgetAddition raises an agent's daily budget until it expires.
type BudgetAddition struct {
	ID        string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	AgentID   string    `json:"agent_id" example:"finance-personal"`
	Tokens    int64     `json:"tokens" example:"50000"`
	Reason    string    `json:"reason" example:"month-end closing"`
	ExpiresAt time.Time `json:"expires_at" example:"2026-01-11T00:00:00Z"`
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	CreatedBy string    `json:"created_by" example:"ops"`
	// Active tells whether it counts now.
	Active bool `json:"active" example:"true"`
}

// UsageReset asks for today's spend to be written off.
type UsageReset struct {
	Reason *string `json:"reason" validate:"required,notblank,printable,max=500" example:"runaway loop, fixed" minLength:"1" maxLength:"500"`
}

// HistoryWindow is the width of a bucket of history.
type HistoryWindow string

// HistoryBy is what a history is broken down by.
type HistoryBy string

// The windows and the breakdowns.
const (
	WindowHour HistoryWindow = "hour"
	WindowDay  HistoryWindow = "day"

	ByNothing HistoryBy = ""
	ByModel   HistoryBy = "model"
	ByKind    HistoryBy = "kind"
	ByTask    HistoryBy = "task"
)

// HistoryQuery selects a history: the windows that begin in [From, To).
type HistoryQuery struct {
	Window   HistoryWindow
	By       HistoryBy
	From, To time.Time
	// Top is how many groups a window names, 1-100; the others are summed up.
	Top int
}

// HistoryBucket is what was used in one window.
type HistoryBucket struct {
	// Start is the first moment of the window, UTC.
	Start  time.Time `json:"start" example:"2026-01-10T15:00:00Z"`
	Tokens int64     `json:"tokens" example:"2100"`
	// Breakdown is the largest groups first; what has no label has the value "".
	Breakdown []HistoryGroup `json:"breakdown,omitempty"`
	// OtherTokens is what the groups that are not named used.
	OtherTokens int64 `json:"other_tokens,omitempty" example:"120"`
} // @name UsageBucket

// HistoryGroup is the part of a window with one label.
type HistoryGroup struct {
	Value  string `json:"value" example:"gpt-5-mini"`
	Tokens int64  `json:"tokens" example:"1980"`
	Facts  int64  `json:"facts" example:"7"`
} // @name UsageGroup

// BudgetAlert is the data of agent.budget_warning and agent.budget_exceeded.
type BudgetAlert struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	// Day is the UTC day, as YYYY-MM-DD.
	Day    string `json:"day" example:"2026-01-10"`
	Budget int64  `json:"budget" example:"25000"`
	// Scope is what the budget was held against: the agent's own use or its subtree's.
	Scope     BudgetScope `json:"scope" example:"own" enums:"own,subtree"`
	Used      int64       `json:"used" example:"20250"`
	Reserved  int64       `json:"reserved" example:"0"`
	Remaining int64       `json:"remaining" example:"4750"`
	// Percent is used in whole percents of budget, rounded down.
	Percent int64 `json:"percent" example:"81"`
	// Requested is the reservation that was refused, 0 where a fact passed the budget.
	Requested int64     `json:"requested,omitempty" example:"6000"`
	ResetAt   time.Time `json:"reset_at" example:"2026-01-11T00:00:00Z"`
}

// Verification is what a comparison of the ledger's sums with its facts found.
type Verification struct {
	// CheckedAt is the moment the ledger is described at.
	CheckedAt time.Time `json:"checked_at" example:"2026-01-10T15:30:00Z"`
	// FromDay is the first UTC day whose facts are still kept, as YYYY-MM-DD.
	FromDay      string `json:"from_day" example:"2025-11-01"`
	Facts        int64  `json:"facts" example:"128044"`
	Windows      int64  `json:"windows" example:"5210"`
	Accounts     int64  `json:"accounts" example:"287"`
	Reservations int64  `json:"reservations" example:"12"` // Those that are held.
	// Differences are at most 100; Total counts all.
	Differences []Difference `json:"differences"`
	Total       int64        `json:"total_differences" example:"0"`
} // @name LedgerVerification

// Difference is a sum that is not what the rows under it add up to.
type Difference struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	// What names the sum: window, used, forgiven, reserved, settled, extra,
	// subtree_used, subtree_forgiven or subtree_reserved.
	What string `json:"sum" example:"window"`
	// Where narrows it down: the hour and the path of a window, the id of a reservation.
	Where    string `json:"key,omitempty" example:"2026-01-10T15:00:00Z nova/orch-personnel/finance-personal"`
	Stored   int64  `json:"stored" example:"2100"`
	Computed int64  `json:"computed" example:"2050"`
} // @name LedgerDifference
