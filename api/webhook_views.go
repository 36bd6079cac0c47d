package api

import (
	"slices"
	"time"

	"comet/models"
	"comet/webhooks"
)

// webhookView is a webhook without its secret.
type webhookView struct {
	ID          string             `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	URL         string             `json:"url" example:"https://your-server.com/webhook"`
	Description string             `json:"description" example:"budget alerts to the on-call channel"`
	Events      []models.EventType `json:"events" swaggertype:"array,string" enums:"agent.created,agent.updated,agent.deactivated,agent.budget_warning,agent.budget_exceeded,webhook.disabled" example:"agent.created,agent.updated,agent.budget_warning"`
	// The agent whose events it hears of; null hears of every agent.
	AgentID *string `json:"agent_id" example:"finance-personal"`
	// Whether it hears of the agents below that one too.
	Subtree  bool            `json:"subtree" example:"false"`
	Ordering models.Ordering `json:"ordering" example:"none"`
	Enabled  bool            `json:"enabled" example:"true"`
	// Why comet disabled it; null unless it did.
	DisabledReason *string    `json:"disabled_reason" example:"no delivery succeeded for 5 days"`
	DisabledAt     *time.Time `json:"disabled_at" example:"2026-01-10T15:30:00Z"`
	// The first failure after the last success; null while it works.
	FailingSince *time.Time `json:"failing_since" example:"2026-01-05T15:30:00Z"`
	// The Ed25519 keys that verify v1a signatures now, the newest first; empty
	// unless it signs with one.
	PublicKeys []string `json:"public_keys" example:"whpk_Y3JlYXRlZCBmb3IgdGhlIGRvY3VtZW50YXRpb24u"`
	// How long deliveries are signed with the keys from before the last rotation
	// too; null unless they are.
	PreviousSecretExpiresAt *time.Time `json:"previous_secret_expires_at" example:"2026-01-11T15:30:00Z"`
	CreatedBy               string     `json:"created_by" example:"ops"`
	CreatedAt               time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt               time.Time  `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// webhookIssued is a webhook with its secret, which is shown this once.
type webhookIssued struct {
	webhookView
	// What deliveries are signed with. It is shown this once; the answer to a
	// repeated Idempotency-Key leaves it out.
	Secret string `json:"secret,omitempty" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

// webhookList is one page of webhooks.
type webhookList struct {
	Webhooks   []webhookView `json:"webhooks"`
	NextCursor string        `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func (s *Server) newWebhookView(w models.Webhook) webhookView {
	now := s.now()
	v := webhookView{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Events, AgentID: w.AgentID, Subtree: w.Subtree,
		Ordering: w.Ordering, Enabled: w.Enabled, DisabledAt: w.DisabledAt, FailingSince: w.FailingSince,
		PublicKeys: slices.Concat([]string{}, webhooks.PublicKeys(w.Keys, now)), // never null
		CreatedBy:  w.CreatedBy, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
	if w.DisabledReason != "" {
		v.DisabledReason = &w.DisabledReason
	}
	if now.Before(w.Keys.OldUntil) {
		v.PreviousSecretExpiresAt = &w.Keys.OldUntil
	}
	return v
}
