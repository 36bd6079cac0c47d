package models

import "time"

// BudgetScope is whose usage counts against an agent's budget.
type BudgetScope string

// The budget scopes.
const (
	// ScopeOwn limits the agent's own usage.
	ScopeOwn BudgetScope = "own"
	// ScopeSubtree limits the usage of the agent and all agents below it.
	ScopeSubtree BudgetScope = "subtree"
)

// FactLabels describe what tokens were used for. Empty ones are left out of a breakdown.
type FactLabels struct {
	// The task for which the tokens were used.
	TaskID string `json:"task_id,omitempty" validate:"omitempty,notblank,printable,max=128" example:"task-7f3a" maxLength:"128"`
	// The language model.
	Model string `json:"model,omitempty" validate:"omitempty,notblank,printable,max=128" example:"gpt-5-mini" maxLength:"128"`
	// The kind of use, a word of your choice.
	Kind string `json:"kind,omitempty" validate:"omitempty,notblank,printable,max=64" example:"completion" maxLength:"64"`
}

// Fact is one recorded use of tokens. It never changes.
type Fact struct {
	ID      string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The fact's id.
	AgentID string    `json:"agent_id" example:"finance-personal"`
	At      time.Time `json:"at" example:"2026-01-10T15:30:00Z"` // When the tokens were used.
	Tokens  int64     `json:"tokens" example:"1250"`             // Number of used tokens.
	FactLabels
	RequestID string `json:"request_id,omitempty" example:"req-01J9"` // The id that makes the fact unique for its agent; absent without one.
	// The reservation that the fact settled.
	ReservationID string `json:"reservation_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	// True if the request_id had been recorded before.
	Replayed bool `json:"replayed,omitempty" example:"true" gorm:"-"`

	// Path is the chain of ancestors the fact counts on, from nova down to the
	// agent, joined with "/".
	Path string `json:"-"`
	// Digest is the SHA-256 of the request.
	Digest [32]byte `json:"-"`
} // @name UsageFact

// ReservationState is the state of a reservation.
type ReservationState string

// The states of a reservation; all but the first are final, but what expired may still be settled.
const (
	ReservationHeld     ReservationState = "held"
	ReservationSettled  ReservationState = "settled"
	ReservationReleased ReservationState = "released"
	ReservationExpired  ReservationState = "expired"
)

// Reservation holds tokens of a budget until it is settled, released or expires.
type Reservation struct {
	ID        string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057" gorm:"primaryKey"` // The reservation's id.
	AgentID   string           `json:"agent_id" example:"finance-personal" gorm:"primaryKey"`
	Tokens    int64            `json:"tokens" example:"2000"`                                      // Number of reserved tokens.
	State     ReservationState `json:"state" example:"held" enums:"held,settled,released,expired"` // The state of the reservation.
	CreatedAt time.Time        `json:"created_at" example:"2026-01-10T15:30:00Z"`
	ExpiresAt time.Time        `json:"expires_at" example:"2026-01-10T15:35:00Z"` // When the reservation expires.
	// Number of tokens that it was settled with; absent unless it was settled.
	SettledTokens *int64 `json:"settled_tokens,omitempty" example:"1730" gorm:"-"`
	// EndedAt is when it was settled, released or freed; nil while it is held.
	EndedAt *time.Time `json:"-" gorm:"-"`

	// Path is the chain of ancestors that granted it.
	Path string `json:"-"`
	// Digest is the SHA-256 of the settlement.
	Digest [32]byte `json:"-" gorm:"-"`
}

// BudgetAddition is a temporary budget: it raises an agent's daily budget until it expires.
type BudgetAddition struct {
	ID        string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057" gorm:"primaryKey"` // The id of the temporary budget.
	AgentID   string    `json:"agent_id" example:"finance-personal" gorm:"primaryKey"`
	Tokens    int64     `json:"tokens" example:"50000"`                    // Tokens per UTC day that it adds to the budget.
	Reason    string    `json:"reason" example:"month-end closing"`        // The reason.
	ExpiresAt time.Time `json:"expires_at" example:"2026-01-11T00:00:00Z"` // When it ends.
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	CreatedBy string    `json:"created_by" example:"ops"`
	// Whether it is in effect.
	Active bool `json:"active" example:"true" gorm:"-"`
}
