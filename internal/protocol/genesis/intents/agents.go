package intents

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/protocol/genesis"
	"comet/internal/pubsub"
	"comet/internal/registry"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// registration is the payload of register_agent.
type registration struct {
	ID           *string  `json:"id"`
	Name         *string  `json:"name"`
	Type         string   `json:"type"`
	Capabilities []string `json:"capabilities"`
	Description  string   `json:"description"`
	// Level is 2 by default. Parent is by default the agent of the token, or orch-my-team without one.
	Level  *models.Level `json:"level"`
	Parent *string       `json:"parentId"`
	// PublicKey is pinned to the agent. With it, SignatureOnly lets a signature replace a token.
	PublicKey     string   `json:"publicKey"`
	SignatureOnly bool     `json:"signatureOnly"`
	Subscriptions []string `json:"subscriptions"`
}

// registered is the response to register_agent.
type registered struct {
	AgentID  string   `json:"agentId"`
	KeyID    string   `json:"keyId,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// defaultParent is the parent of agents that register themselves (docs/genesis.md “Intents”).
const defaultParent = "orch-my-team"

func (s *Service) registerAgent(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	if err := auth.Require(by, models.ScopeAgentsWrite); err != nil {
		return nil, err
	}
	var d registration
	if err := read(q, &d); err != nil {
		return nil, err
	}
	if d.SignatureOnly && d.PublicKey == "" {
		return nil, input.Violated("/payload/publicKey", "required", "payload.publicKey is required with signatureOnly, because signatures replace tokens")
	}
	if d.Level != nil && *d.Level < models.LevelSpecialist {
		return nil, input.Violated("/payload/level", "range", "payload.level must be 2 or 3; agents of other levels are created over the REST API")
	}
	if d.SignatureOnly && by.AgentID != nil && !by.Administers() {
		return nil, errs.New(errs.MissingScope, "the token %q is bound to an agent and cannot pin a key that replaces a token, because the key would outlive it; leave signatureOnly out", by.Name)
	}
	key := auth.PublicKeyDraft{SignatureOnly: d.SignatureOnly}
	if d.PublicKey != "" {
		var err error
		if key.PublicKey, err = wire.ParsePublicKey(d.PublicKey); err != nil {
			return nil, input.Violated("/payload/publicKey", "public_key", "payload.publicKey cannot be used: %s", err)
		}
	}
	list, names := make([]pubsub.Pattern, len(d.Subscriptions)), map[string]string{}
	for i, text := range d.Subscriptions {
		list[i].Pattern = text
		names["/patterns/"+strconv.Itoa(i)+"/pattern"] = "/subscriptions/" + strconv.Itoa(i)
	}
	if len(list) > pubsub.MaxPatterns {
		names = map[string]string{"/patterns": "/subscriptions"}
	}
	if err := pubsub.Check(list); err != nil {
		return nil, input.Respell(err, "/payload", names)
	}
	if d.Name == nil {
		d.Name = d.ID
	}
	if d.Level == nil {
		d.Level = new(models.Level(2))
	}
	if d.Parent == nil {
		d.Parent = new(defaultParent)
		if by.AgentID != nil {
			d.Parent = by.AgentID
		}
	}
	draft := models.AgentDraft{ID: d.ID, Name: d.Name, Level: d.Level, ParentID: d.Parent, Type: d.Type, Capabilities: d.Capabilities, Description: d.Description}
	if pinned, err := s.isForeignKey(ctx, d, key.PublicKey); err != nil || pinned {
		return nil, cmp.Or(err, error(errs.New(errs.Conflict, "another agent has or had this public key; generate a key pair for each agent")))
	}
	o := once(by, q, func(result any) any {
		return registeredAs(result.(registry.Created)) //nolint:forcetypeassert // of Registry.Create
	})
	created, err := s.Registry.Create(ctx, by, draft, o)
	out := registeredAs(created)
	if err == nil && o.Replay != nil { // the first time may have ended before the key and the subscriptions
		err = json.Unmarshal(o.Replay.Body, &out)
	}
	if err != nil {
		return nil, inPayload(err)
	}
	if d.PublicKey != "" {
		if out.KeyID, err = s.pin(ctx, by, out.AgentID, key, o.Replay != nil); err != nil {
			return nil, errs.Wrap(errs.CodeOf(err), err, "the agent %q is registered, but without a key: %s", out.AgentID, errs.From(err).Detail)
		}
	}
	return out, inPayload(s.subscribe(ctx, by, out.AgentID, list))
}

func registeredAs(created registry.Created) registered {
	out := registered{AgentID: created.Agent.ID}
	for _, w := range created.Warnings {
		out.Warnings = append(out.Warnings, w.Detail)
	}
	return out
}

// pin pins a key to an agent, which may have it already if the message is repeated, and returns its id.
func (s *Service) pin(ctx context.Context, by models.Principal, agentID string, key auth.PublicKeyDraft, repeated bool) (string, error) {
	pinned, err := s.Keys.Pin(ctx, by, agentID, key, nil)
	if !repeated || !errs.Is(err, errs.Conflict) {
		return pinned.KeyID, err
	}
	keys, listErr := s.Keys.List(ctx, agentID)
	if listErr != nil {
		return "", listErr
	}
	text := base64.StdEncoding.EncodeToString(key.PublicKey)
	if i := slices.IndexFunc(keys, func(k models.AgentKey) bool { return k.PublicKey == text && k.RevokedAt == nil }); i >= 0 {
		return keys[i].KeyID, nil
	}
	return "", err
}

// subscribe sets the subscriptions of a new agent, unless it has chosen others since.
func (s *Service) subscribe(ctx context.Context, by models.Principal, agentID string, list []pubsub.Pattern) error {
	if len(list) == 0 {
		return nil
	}
	if _, chosen, err := s.Events.Subscriptions(ctx, agentID); err != nil || chosen {
		return err
	}
	return s.Events.Subscribe(ctx, by, agentID, list)
}

func (s *Service) unregisterAgent(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	if err := auth.Require(by, models.ScopeAgentsWrite); err != nil {
		return nil, err
	}
	id, err := agentOf(q)
	if err != nil {
		return nil, err
	}
	if id = cmp.Or(id, q.Entities["agent_name"], q.Agent); id == "" {
		return nil, input.Violated("/payload/agentId", "required", "payload must have agentId, the id of an agent")
	}
	if by.AgentID != nil && *by.AgentID == id && !by.Administers() {
		return nil, errs.New(errs.ForeignAgent, "an agent cannot unregister itself; send the request with the token of an agent above %q", id)
	}
	return map[string]string{"agentId": id}, inPayload(s.Registry.Deactivate(ctx, by, id, nil))
}

// agentOf returns the agent that the payload names, "" for none.
func agentOf(q genesis.Query) (string, error) {
	var of struct {
		AgentID string `json:"agentId" validate:"max=64"`
		Agent   string `json:"agent" validate:"max=64"`
	}
	err := read(q, &of)
	return cmp.Or(of.AgentID, of.Agent), err
}

// capability is a capability with the agents that offer it.
type capability struct {
	Name string `json:"name"`
	// Available says that an agent can execute such a task now.
	Available bool `json:"available"`
}

func (s *Service) getCapability(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	id, err := agentOf(q)
	if err != nil {
		return nil, err
	}
	names := s.Work.CapabilitiesOf("")
	out := map[string]any{}
	if id != "" {
		agent, err := s.agent(ctx, by, id)
		if err != nil {
			return nil, err
		}
		names, out["agentId"] = models.CapabilityKeys(agent.Capabilities), id
		out["status"] = statusOf(s.Work.CachedWorker(id))
	}
	all := make([]capability, len(names))
	for i, name := range names {
		all[i] = capability{name, s.Work.Index().Best([]string{name}) != ""}
	}
	out["capabilities"] = all
	return out, nil
}

// agent returns an agent that the principal may read: itself, or with the scope agents:read one in its subtree.
func (s *Service) agent(ctx context.Context, by models.Principal, id string) (models.Agent, error) {
	if by.AgentID == nil || *by.AgentID != id {
		if err := auth.Require(by, models.ScopeAgentsRead); err != nil {
			return models.Agent{}, err
		}
		if err := s.Registry.Confine(ctx, by, id); err != nil {
			return models.Agent{}, err
		}
	}
	return s.Work.Agent(ctx, id)
}

// statusOf returns the status of a worker (Genesis §Routing Tables).
func statusOf(w models.Worker) string {
	switch {
	case w.State != models.WorkerOnline && w.State != models.WorkerBusy:
		return "OFFLINE"
	case w.State == models.WorkerBusy || w.InFlight >= w.Concurrency:
		return "BUSY"
	}
	return "AVAILABLE"
}

// health is the response to health_check.
type health struct {
	AgentID string `json:"agentId,omitempty"`
	Status  string `json:"status"`
	// Load is from 0 to 1.
	Load *float64 `json:"load,omitempty"`
	// Breaker is open while the agent gets no tasks after failures.
	Breaker string            `json:"breaker,omitempty"`
	Checks  map[string]string `json:"checks,omitempty"`
}

func (s *Service) healthCheck(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	id, err := agentOf(q)
	if err != nil {
		return nil, err
	}
	if id == "" || id == models.RootAgentID {
		out := health{Status: "AVAILABLE", Checks: map[string]string{}}
		for name, check := range s.Checks {
			if out.Checks[name] = "ok"; check == nil {
				continue
			}
			if err := check(ctx); err != nil {
				out.Status, out.Checks[name] = "OFFLINE", errs.From(err).Detail
			}
		}
		return out, nil
	}
	if _, err := s.agent(ctx, by, id); err != nil {
		return nil, err
	}
	w := s.Work.CachedWorker(id)
	load := max(float64(w.Load)/100, float64(w.InFlight)/float64(max(w.Concurrency, 1)))
	out := health{AgentID: id, Status: statusOf(w), Load: new(min(load, 1)), Breaker: "closed"}
	if !w.BreakerUntil.IsZero() {
		out.Breaker = "open"
	}
	return out, nil
}

// authenticated is the response to authenticate.
type authenticated struct {
	AgentID   string         `json:"agentId"`
	Scopes    []models.Scope `json:"scopes"`
	Token     string         `json:"token,omitempty"`
	ExpiresAt *time.Time     `json:"expiresAt"`
}

// authenticate returns a token with which the agent can open connections; Auth.Session gives its lifetime. The response to
// a repeated message is the same without the token.
func (s *Service) authenticate(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	if by.AgentID == nil {
		return nil, errs.New(errs.ForeignAgent, "the token %q is bound to no agent, but authenticate is for agents", by.Name)
	}
	o := once(by, q, func(result any) any {
		issued := result.(auth.Issued) //nolint:forcetypeassert // of Auth.Session
		return authenticated{AgentID: *by.AgentID, Scopes: issued.Token.Scopes, ExpiresAt: issued.Token.ExpiresAt}
	})
	issued, err := s.Auth.Session(ctx, by, o)
	return finished(o, authenticated{*by.AgentID, issued.Token.Scopes, issued.Secret, issued.Token.ExpiresAt}, err)
}

// isForeignKey reports whether a key cannot be pinned to a new agent. An agent that exists already is reported later.
func (s *Service) isForeignKey(ctx context.Context, d registration, key ed25519.PublicKey) (bool, error) {
	if d.PublicKey == "" {
		return false, nil
	}
	if _, err := s.Registry.Get(ctx, orEmpty(d.ID)); !errs.Is(err, errs.NotFound) {
		return false, err
	}
	return s.Keys.IsPinned(ctx, key)
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
