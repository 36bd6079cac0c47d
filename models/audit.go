package models

import "time"

// AuditAction names what was done to an agent.
type AuditAction string

// The audit actions.
const (
	AuditCreated     AuditAction = "created"
	AuditUpdated     AuditAction = "updated"
	AuditDeactivated AuditAction = "deactivated"
	AuditRestored    AuditAction = "restored"
	// The operator actions of the ledger; they change no row of the registry, so the
	// version stays.
	AuditBudgetAdded   AuditAction = "budget_added"
	AuditBudgetRemoved AuditAction = "budget_removed"
	AuditUsageReset    AuditAction = "usage_reset"
	// What was done to the key that the agent signs with; the version stays.
	AuditKeyIssued  AuditAction = "key_issued"
	AuditKeyChanged AuditAction = "key_changed"
	AuditKeyRevoked AuditAction = "key_revoked"
)

// AuditEntry is one line of an agent's history: who, when, what changed, from
// what to what.
type AuditEntry struct {
	ID      int64       `json:"id" example:"42"`
	AgentID string      `json:"agent_id" example:"finance-personal"`
	At      time.Time   `json:"at" example:"2026-01-10T15:30:00Z"`
	Actor   string      `json:"actor" example:"ci-importer"`
	ActorID string      `json:"actor_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Action  AuditAction `json:"action" example:"updated" enums:"created,updated,deactivated,restored,budget_added,budget_removed,usage_reset,key_issued,key_changed,key_revoked"`
	// RequestID is the X-Request-Id of the request that did it.
	RequestID string   `json:"request_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Changes   []Change `json:"changes"`
	// Reason is why, as the actor put it, where the action asks for one.
	Reason string `json:"reason,omitempty" example:"month-end closing"`
	// Version is the agent's version after the change.
	Version int64 `json:"version" example:"3"`
}

// Change is one field's value before and after; From is null for a creation.
type Change struct {
	Field string `json:"field" example:"token_budget"`
	From  any    `json:"from"`
	To    any    `json:"to"`
} // @name FieldChange
