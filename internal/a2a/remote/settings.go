package remote

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"comet/internal/a2a/client"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
	"comet/store/remotes"
)

const (
	maxSecret  = 4096 // bytes
	maxAtATime = 1000 // concurrent attempts
	// defaultConcurrency is how many attempts a remote agent executes at a time.
	defaultConcurrency = 8
)

// AuthDraft is how comet authenticates to a remote agent.
type AuthDraft struct {
	Type   string `json:"type" enums:"none,bearer,header" example:"bearer"` // `bearer` sends the secret as a bearer token, `header` as the value of a header.
	Header string `json:"header,omitzero" example:"X-API-Key"`              // The name of the header; only with the type `header`.
	Secret string `json:"secret,omitzero" example:"3f2b8c1d"`               // The token, or the value of the header, at most 4,096 bytes. It is never returned.
}

// Draft is the request body of PUT …/a2a.
type Draft struct {
	CardURL     string    `json:"card_url" validate:"required" format:"uri" example:"https://agent.example/.well-known/agent-card.json"` // The address of the agent card, at most 2,048 bytes.
	Auth        AuthDraft `json:"auth,omitzero"`                                                                                         // How comet authenticates to the agent, also when it reads the card; `none` by default.
	Concurrency *int      `json:"concurrency,omitzero" minimum:"1" maximum:"1000" example:"8"`                                           // How many attempts the agent executes at a time, 8 by default.
}

// CardView is the summary of an agent card.
type CardView struct {
	Name        string   `json:"name" example:"Recipe agent"`                          // The name of the remote agent.
	Description string   `json:"description" example:"Finds recipes."`                 // Its description.
	Version     string   `json:"version" example:"2.1.0"`                              // Its version.
	Skills      []string `json:"skills" example:"find-recipe"`                         // The ids of its skills.
	Signature   string   `json:"signature" example:"verified"`                         // `verified`, `none`, or `unverified: ` and why, such as a key that cannot be read. A card with a wrong signature is refused.
	Streaming   bool     `json:"streaming" example:"true"`                             // Whether it streams the progress of tasks.
	URL         string   `json:"url" format:"uri" example:"https://agent.example/a2a"` // The address to which comet sends tasks.
	Binding     string   `json:"binding" enums:"JSONRPC,HTTP+JSON" example:"JSONRPC"`  // The protocol binding.
	Protocol    string   `json:"protocol_version" enums:"1.0,0.3" example:"1.0"`       // The version of A2A.
	Tenant      string   `json:"tenant,omitempty" example:"recipes"`                   // The tenant, if the interface has one.
}

// AuthView is how comet authenticates to a remote agent, without the secret.
type AuthView struct {
	Type   string `json:"type" enums:"none,bearer,header" example:"bearer"` // The kind of authentication.
	Header string `json:"header,omitempty" example:"Authorization"`         // The header with the secret.
}

// View is the remote A2A agent of an agent.
type View struct {
	AgentID     string     `json:"agent_id" example:"recipes-1"`
	CardURL     string     `json:"card_url" format:"uri" example:"https://agent.example/.well-known/agent-card.json"` // The address of the agent card.
	Auth        AuthView   `json:"auth"`
	Concurrency int        `json:"concurrency" example:"8"`                                       // How many attempts the agent executes at a time.
	Card        *CardView  `json:"card"`                                                          // What comet uses of the card; null before the first check that succeeded.
	CheckedAt   *time.Time `json:"checked_at" example:"2026-01-10T15:30:00Z"`                     // When the card was last read; null before the first time.
	Error       string     `json:"error,omitempty" example:"the remote agent responded with 404"` // Why the last check failed; absent if it succeeded.
	CreatedBy   string     `json:"created_by" example:"ops"`
	CreatedAt   time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt   time.Time  `json:"updated_at" example:"2026-01-10T15:30:00Z"`
	// Version is that of the settings.
	Version int64 `json:"version" example:"1"`
}

func (r *Remotes) view(a remotes.Agent) View {
	out := View{
		AgentID: a.AgentID, CardURL: a.CardURL, Auth: AuthView{a.AuthType, a.AuthHeader}, Concurrency: a.Concurrency, Error: a.Error, CreatedBy: a.CreatedBy,
		CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt, Version: a.Version,
	}
	if !a.CheckedAt.IsZero() {
		out.CheckedAt = &a.CheckedAt
	}
	if len(a.Card) == 0 {
		return out
	}
	card, e, err := r.usable(a)
	if err != nil { // such as after a change of the permitted networks
		out.Error = cmp.Or(out.Error, describe(err))
	}
	clip := func(text string) string { return input.ClipTo(text, 500) }
	out.Card = &CardView{
		Name: clip(card.Name), Description: clip(card.Description), Version: clip(card.Version), Skills: []string{}, Streaming: card.Capabilities.Streaming, Signature: cmp.Or(card.Signature, client.Unsigned),
		URL: e.URL, Binding: string(e.ProtocolBinding), Protocol: string(e.ProtocolVersion), Tenant: e.Tenant,
	}
	for _, s := range card.Skills {
		out.Card.Skills = append(out.Card.Skills, clip(s.ID))
	}
	return out
}

// Get returns the remote agent of an agent, or errs.NotFound.
func (r *Remotes) Get(ctx context.Context, agentID string) (View, error) {
	a, err := remotes.Get(r.store.Reads(ctx), agentID)
	if err != nil {
		return View{}, err
	}
	return r.view(a), nil
}

// Put sets the remote A2A agent of an agent and reads its card. It returns errs.UpstreamFailed if its server is
// unreachable or fails, errs.InvalidRequest if the card is refused or not usable, and errs.AddressRefused for an address that is
// not permitted. first reports that the agent had no remote agent before.
func (r *Remotes) Put(ctx context.Context, by models.Principal, agentID string, d Draft) (out View, first bool, err error) {
	row := remotes.Agent{AgentID: agentID, CardURL: d.CardURL, AuthType: cmp.Or(d.Auth.Type, AuthNone), AuthHeader: d.Auth.Header, Concurrency: *cmp.Or(d.Concurrency, new(defaultConcurrency)), CreatedBy: by.Name}
	if err := r.validate(&row, d.Auth.Secret); err != nil {
		return out, false, err
	}
	if err := r.authorize(by, agentID, func() (models.Agent, error) { return r.store.Agents(ctx).Get(agentID) }); err != nil {
		return out, false, err
	}
	if d.Auth.Secret != "" {
		row.Secret = r.opts.Keys.Seal(remotes.SealedSecret, []byte(d.Auth.Secret))
	}
	options, err := r.requestOptions(row)
	if err == nil {
		err = r.readCard(ctx, &options, &row)
	}
	if client.Is(err, client.Unreachable) {
		err = errs.New(errs.UpstreamFailed, "the agent card cannot be read: %s", err.Error())
	} else if client.Is(err) {
		err = errs.New(errs.InvalidRequest, "the agent card cannot be read: %s", err.Error())
	}
	if err != nil {
		return out, false, err
	}
	err = r.change(ctx, by, agentID, func(tx *store.Tx, before string) (string, error) {
		row.CheckedAt, first = tx.Now(), before == ""
		return row.CardURL, remotes.Put(tx, &row)
	})
	return r.view(row), first, err
}

// Delete disconnects the remote agent of an agent, or returns errs.NotFound.
func (r *Remotes) Delete(ctx context.Context, by models.Principal, agentID string) error {
	return r.change(ctx, by, agentID, func(tx *store.Tx, _ string) (string, error) { return "", remotes.Delete(tx, agentID) })
}

// change changes the remote agent of an agent and records it in the agent's audit log. do returns the new address.
func (r *Remotes) change(ctx context.Context, by models.Principal, agentID string, do func(tx *store.Tx, before string) (string, error)) error {
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		var agent models.Agent
		err := r.authorize(by, agentID, func() (a models.Agent, err error) {
			agent, err = tx.Agents().Lock(agentID)
			return agent, err
		})
		if err != nil {
			return err
		}
		before, err := remotes.Get(tx, agentID)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		after, err := do(tx, before.CardURL)
		if err != nil {
			return err
		}
		return tx.Agents().Audit(models.AuditEntry{
			AgentID: agentID, Actor: by.Name, ActorID: by.TokenID, Action: models.AuditUpdated, RequestID: requestid.From(ctx), Version: agent.Version,
			Changes: []models.Change{{Field: "a2a", From: before.CardURL, To: after}},
		})
	})
	r.poller.Wake()
	return err
}

// authorize checks that the agent is active, and that the principal may change agents of its level as in the registry.
func (r *Remotes) authorize(by models.Principal, agentID string, read func() (models.Agent, error)) error {
	agent, err := read()
	switch {
	case err != nil:
		return err
	case agent.Level <= models.LevelOrchestrator && !by.Has(models.ScopeAdmin):
		return errs.New(errs.MissingScope, "changing an L%d agent needs the scope %q", agent.Level, models.ScopeAdmin).With("scope", models.ScopeAdmin)
	case !agent.IsActive:
		return errs.New(errs.AgentDeactivated, "the agent %q is deactivated", agentID)
	}
	return nil
}

// validate checks the settings of a remote agent and completes them.
func (r *Remotes) validate(row *remotes.Agent, secret string) error {
	if rule, err := r.opts.Guard.CheckURL(row.CardURL, maxURL, r.opts.HTTPSOnly); err != nil {
		return errs.New(errs.CodeOf(err), "%s", strings.Replace(errs.From(err).Detail, "url must", "card_url must", 1)).With("rule", rule)
	}
	switch {
	case row.Concurrency < 1 || row.Concurrency > maxAtATime:
		return input.Violated("/concurrency", "range", "concurrency must be 1 to %d, not %d", maxAtATime, row.Concurrency)
	case !slices.Contains([]string{AuthNone, AuthBearer, AuthHeader}, row.AuthType):
		return input.Violated("/auth/type", "enum", "auth.type must be none, bearer or header")
	case row.AuthType == AuthNone && (secret != "" || row.AuthHeader != ""):
		return input.Violated("/auth", "unexpected", "auth of the type none has no header and no secret; set auth.type to bearer or header")
	case row.AuthType == AuthNone:
		return nil
	case secret == "" || len(secret) > maxSecret || !httpguts.ValidHeaderFieldValue(secret):
		return input.Violated("/auth/secret", "secret", "auth.secret must have 1 to %d bytes that an HTTP header may have", maxSecret)
	case row.AuthType == AuthBearer && row.AuthHeader != "":
		return input.Violated("/auth/header", "unexpected", "auth.header is only for the type header")
	case row.AuthType == AuthBearer:
		row.AuthHeader = "Authorization"
		return nil
	}
	row.AuthHeader = http.CanonicalHeaderKey(row.AuthHeader)
	reserved := []string{"A2a-Version", "Accept", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "If-None-Match", "Keep-Alive", "Last-Event-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent"}
	if len(row.AuthHeader) > maxStepName || !httpguts.ValidHeaderFieldName(row.AuthHeader) || slices.Contains(reserved, row.AuthHeader) {
		return input.Violated("/auth/header", "header", "auth.header must be the name of an HTTP header that comet does not set itself, such as X-API-Key, not %s", input.Quote(row.AuthHeader))
	}
	return nil
}
