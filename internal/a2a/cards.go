package a2a

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// card is an agent card of version 1.0. The SDK's type has another form of security requirements than the specification.
type card struct {
	Name            string                    `json:"name"`
	Description     string                    `json:"description"`
	Version         string                    `json:"version"`
	Documentation   string                    `json:"documentationUrl,omitempty"`
	Interfaces      []a2a.AgentInterface      `json:"supportedInterfaces"`
	Capabilities    a2a.AgentCapabilities     `json:"capabilities"`
	SecuritySchemes map[string]map[string]any `json:"securitySchemes"`
	InputModes      []string                  `json:"defaultInputModes"`
	OutputModes     []string                  `json:"defaultOutputModes"`
	Skills          []a2a.AgentSkill          `json:"skills"`
}

const bearerText = "A token of comet: POST /api/v1/tokens with the scope messages:send"

// newCard returns a card of the server, or of an agent as the tenant.
func (h *Handler) newCard(baseURL, tenant string) *card {
	return &card{
		Name: "comet", Description: "A control plane for AI agents. It assigns each task to the best agent for it.", Version: h.opts.Version, Documentation: baseURL + "/docs",
		Interfaces: []a2a.AgentInterface{
			{URL: baseURL + rpcPath, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2a.Version, Tenant: tenant},
			{URL: baseURL + restPath, ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: a2a.Version, Tenant: tenant},
			{URL: baseURL + rpcPath, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: legacyVersion, Tenant: tenant},
		},
		Capabilities:    a2a.AgentCapabilities{Streaming: true, PushNotifications: true, ExtendedAgentCard: true},
		SecuritySchemes: map[string]map[string]any{"bearer": {"httpAuthSecurityScheme": map[string]string{"scheme": "Bearer", "description": bearerText}}},
		InputModes:      inputModes(), OutputModes: []string{"text/plain", "application/json", "application/octet-stream"},
	}
}

// legacyVersion is the older supported version.
const legacyVersion a2a.ProtocolVersion = "0.3"

// legacy returns the card as 0.3 has it.
func (c *card) legacy() any {
	return map[string]any{
		"protocolVersion": "0.3.0", "name": c.Name, "description": c.Description, "version": c.Version, "documentationUrl": c.Documentation,
		"url": c.Interfaces[0].URL, "preferredTransport": a2a.TransportProtocolJSONRPC,
		"capabilities":    map[string]bool{"streaming": c.Capabilities.Streaming, "pushNotifications": c.Capabilities.PushNotifications, "stateTransitionHistory": false},
		"securitySchemes": map[string]any{"bearer": map[string]string{"type": "http", "scheme": "bearer", "description": bearerText}},
		"security":        []map[string][]string{{"bearer": {}}}, "supportsAuthenticatedExtendedCard": c.Capabilities.ExtendedAgentCard,
		"defaultInputModes": c.InputModes, "defaultOutputModes": c.OutputModes, "skills": c.Skills,
	}
}

// in returns the card in a version.
func (c *card) in(legacy bool) any {
	if legacy {
		return c.legacy()
	}
	return c
}

// signCard returns a card as JSON with a signature of the current key (A2A 1.0 §8.4): a JWS over the canonical form
// (RFC 8785) of the card without signatures. The same card has the same signature until the key is rotated.
func (h *Handler) signCard(ctx context.Context, baseURL string, card any) (json.RawMessage, error) {
	text, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	payload := jsontext.Value(bytes.Clone(text))
	if err := payload.Canonicalize(); err != nil {
		return nil, err
	}
	key, err := h.Keys.Current(ctx)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(map[string]string{"alg": "EdDSA", "typ": "JOSE", "kid": key.ID, "jku": baseURL + "/.well-known/jwks.json"})
	if err != nil {
		return nil, err
	}
	protected := base64.RawURLEncoding.EncodeToString(header)
	signature := ed25519.Sign(key.Private, []byte(protected+"."+base64.RawURLEncoding.EncodeToString(payload)))
	signatures, err := json.Marshal([]a2a.AgentCardSignature{{Protected: protected, Signature: base64.RawURLEncoding.EncodeToString(signature)}})
	return slices.Concat(text[:len(text)-1], []byte(`,"signatures":`), signatures, []byte("}")), err
}

// publicCard returns the card for clients without a token. The names of capabilities are not public.
func (h *Handler) publicCard(baseURL string) *card {
	c := h.newCard(baseURL, "")
	c.Skills = []a2a.AgentSkill{{
		ID: "tasks", Name: "Tasks", Tags: []string{"tasks", "agents"},
		Description: "Assigns a task to an agent with the required capability: that in metadata.capability, or the one that the message names. The extended card lists the capabilities.",
	}}
	return c
}

// extendedCard returns the card with the capabilities of the active agents, or of the tenant.
func (h *Handler) extendedCard(c *call, tenant string) (*card, error) {
	if err := auth.Require(c.Principal, models.ScopeMessagesSend); err != nil {
		return nil, err
	}
	if tenant != "" {
		return h.agentCard(c.r.Context(), c, tenant)
	}
	out := h.newCard(c.baseURL, "")
	out.Skills = skills(h.Orchestrator.CapabilitiesOf(""))
	if !c.Has(models.ScopeToolsCall) {
		return out, nil
	}
	stored, err := h.Workflows.Definitions(c.r.Context(), "", maxSkills)
	for _, d := range stored {
		out.Skills = append(out.Skills, a2a.AgentSkill{
			ID: "workflow:" + d.Name, Name: d.Name, Tags: append([]string{"workflow"}, slices.Compact(words(d.Name))...),
			Description: cmp.Or(d.Description, "A stored workflow.") + " Send " + d.Name + " as metadata.workflow, and the input as a data part.",
		})
	}
	return out, err
}

// agentCard returns the card of an agent to which the caller may send tasks.
func (h *Handler) agentCard(ctx context.Context, c *call, id string) (*card, error) {
	agent, err := h.tenant(ctx, c.Principal, id)
	if err != nil {
		return nil, err
	}
	out := h.newCard(c.baseURL, id)
	out.Name, out.Description = agent.Name, "The agent "+id+" of comet."
	out.Skills = skills(models.CapabilityKeys(agent.Capabilities))
	return out, nil
}

// tenant returns an agent whose card the principal may read.
func (s *service) tenant(ctx context.Context, by models.Principal, id string) (agent models.Agent, err error) {
	missing := fail(a2a.ErrTaskNotFound, "there is no agent %q", id)
	if !isPrintable(id) {
		return agent, missing
	}
	agents := s.Store.Agents(ctx)
	agent, err = agents.Get(id)
	if err == nil && by.AgentID != nil {
		err = agents.Confine(by, id)
	}
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.ForeignAgent) || err == nil && !agent.IsActive {
		return models.Agent{}, missing
	}
	return agent, err
}

// maxSkills limits the skills of a card.
const maxSkills = 1000

func skills(capabilities []string) []a2a.AgentSkill {
	out := make([]a2a.AgentSkill, 0, len(capabilities))
	for _, name := range capabilities[:min(len(capabilities), maxSkills)] {
		out = append(out, a2a.AgentSkill{
			ID: name, Name: strings.Join(words(name), " "), Description: "Tasks for agents with the capability " + name + ". Send it as metadata.capability.", Tags: slices.Compact(words(name)),
		})
	}
	return out
}

// servePublicCard serves the card of the server.
func (h *Handler) servePublicCard(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	h.writeCard(w, r, h.publicCard(h.baseURL(r)), "public, max-age=300")
}

// serveAgentCard serves the cards of agents, to clients with a token.
func (h *Handler) serveAgentCard(w http.ResponseWriter, r *http.Request) {
	c, err := h.enter(w, r)
	var out *card
	if err == nil {
		id, isCard := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, agentsPath), "/agent-card.json")
		if err = fail(a2a.ErrMethodNotFound, "there is no %s", r.URL.Path); isCard && id != "" {
			out, err = h.extendedCard(c, id)
		}
	}
	if err != nil {
		h.writeError(w, err)
		return
	}
	h.writeCard(w, r, out, "private, max-age=60")
}

// writeCard writes a card, or 304 if the client has it.
func (h *Handler) writeCard(w http.ResponseWriter, r *http.Request, c *card, caching string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		h.writeError(w, fail(errMethodNotAllowed, "%s does not accept %s; use GET", r.URL.Path, r.Method))
		return
	}
	text, err := h.signCard(r.Context(), h.baseURL(r), c.in(r.URL.Path == oldCardPath || sentVersion(r) == string(legacyVersion)))
	if err != nil {
		h.writeError(w, err)
		return
	}
	sum := sha256.Sum256(text)
	etag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", caching)
	w.Header().Set("Last-Modified", h.started.UTC().Format(http.TimeFormat))
	w.Header().Set("Vary", "A2A-Version, Authorization, Host")
	w.Header().Set("Content-Type", "application/json")
	if slices.Contains(strings.FieldsFunc(r.Header.Get("If-None-Match"), func(c rune) bool { return c == ',' || c == ' ' }), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(text) // the client is gone otherwise
}
