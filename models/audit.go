package models

import "time"

// AuditAction is the kind of a change of an agent.
type AuditAction string

// The audit actions.
const (
	AuditCreated     AuditAction = "created"
	AuditUpdated     AuditAction = "updated"
	AuditDeactivated AuditAction = "deactivated"
	AuditRestored    AuditAction = "restored"
	// The operator actions of the ledger; they change no row of the registry, so the version stays.
	AuditBudgetAdded     AuditAction = "budget_added"
	AuditBudgetRemoved   AuditAction = "budget_removed"
	AuditUsageReset      AuditAction = "usage_reset"
	AuditLedgerCorrected AuditAction = "ledger_corrected"
	// What was done to the key that the agent signs with; the version stays.
	AuditKeyIssued  AuditAction = "key_issued"
	AuditKeyChanged AuditAction = "key_changed"
	AuditKeyRevoked AuditAction = "key_revoked"
)

// AuditEntry is an entry of an agent's audit log.
type AuditEntry struct {
	ID      int64       `json:"id" example:"42" gorm:"->"` // The id of the entry.
	AgentID string      `json:"agent_id" example:"finance-personal"`
	At      time.Time   `json:"at" example:"2026-01-10T15:30:00Z"`                                                                                                                                 // When the change was made.
	Actor   string      `json:"actor" example:"ci-importer"`                                                                                                                                       // Name of the token that made the change.
	ActorID string      `json:"actor_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                                                                                                           // Id of the token that made the change.
	Action  AuditAction `json:"action" example:"updated" enums:"created,updated,deactivated,restored,budget_added,budget_removed,usage_reset,ledger_corrected,key_issued,key_changed,key_revoked"` // What was done.
	// The X-Request-Id of the request.
	RequestID string   `json:"request_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Changes   []Change `json:"changes" gorm:"serializer:json"` // The changed fields.
	// The reason that the caller gave, for actions that require one.
	Reason string `json:"reason,omitempty" example:"month-end closing"`
	// The agent's version after the change.
	Version int64 `json:"version" example:"3"`
}

// Change is the change of one field.
type Change struct {
	Field string `json:"field" example:"token_budget"` // The name of the field.
	From  any    `json:"from"`                         // The previous value; null for a new agent.
	To    any    `json:"to"`                           // The new value.
} // @name FieldChange
