package tools

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/internal/validate"
	"comet/models"
)

const (
	// upstreamAgent is what the ids of upstreams' agents begin with.
	upstreamAgent = "mcp-"
	// upstreamDialect is what their workers speak.
	upstreamDialect = "mcp"
	// upstreamPlaces is how many tasks one takes at a time.
	upstreamPlaces = 16
)

// agents are the upstreams as agents: each is one of the registry, with its tools as
// capabilities, and takes work like any other worker while it is up.
type agents struct {
	*lifecycle.Loop
	h *Service

	mu   sync.Mutex
	work map[string]*worker // of the servers that are up
	life context.Context    // of the workers; nil until it is started
	ends sync.WaitGroup
}

func newAgents(h *Service) *agents {
	a := &agents{h: h, work: map[string]*worker{}}
	a.Loop = lifecycle.NewLoop(a.run)
	return a
}

// run has the workers work until ctx ends, and takes them off the line then.
func (a *agents) run(ctx context.Context) {
	a.mu.Lock()
	a.life = ctx
	for _, w := range a.work {
		a.begin(w)
	}
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.life = nil
	a.mu.Unlock()
	a.ends.Wait()
}

// begin starts a worker. The caller holds the lock.
func (a *agents) begin(w *worker) {
	ctx, cancel := context.WithCancel(a.life)
	w.stop = cancel
	a.ends.Go(func() { w.run(ctx) })
}

// settle has the registry know a server's tools, and its agent take work, or no longer.
func (a *agents) settle(ctx context.Context, server string, up bool, tools []*tool) error {
	if up {
		if err := a.register(ctx, server, tools); err != nil {
			return fmt.Errorf("register the agent of %s: %w", server, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.work[server]
	switch {
	case up && w == nil:
		w = &worker{h: a.h, server: server, agentID: agentOf(server), line: server + "@" + rand.Text()}
		a.work[server] = w
		if a.life != nil {
			a.begin(w)
		}
	case !up && w != nil:
		delete(a.work, server)
		if w.stop != nil {
			w.stop()
		}
	}
	return nil
}

// agentOf is the id of an upstream's agent: small letters, digits and single hyphens.
func agentOf(server string) string {
	parts := strings.FieldsFunc(strings.ToLower(server), func(r rune) bool { return r == '-' })
	id := upstreamAgent + strings.Join(parts, "-")
	if strings.TrimPrefix(id, upstreamAgent) != server { // two that differ only in that must not meet
		id = textTo(id, models.MaxIDLength-7) + "-" + shortDigest(server)
	}
	return textTo(id, models.MaxIDLength)
}

// describes is the description of an upstream's agent. An agent of that id with another one
// is somebody else's.
func describes(server string) string { return "the MCP server " + server }

// register makes the agent of a server, or changes what it offers.
func (a *agents) register(ctx context.Context, server string, tools []*tool) error {
	id, capabilities := agentOf(server), capabilitiesOf(tools)
	known, err := a.h.registry.Get(ctx, id)
	if errs.Is(err, errs.NotFound) {
		level, sphere, frequency, parent := models.LevelSpecialist, a.h.opts.Sphere, 555, a.h.opts.Parent
		_, err = a.h.registry.Create(ctx, models.System(), models.AgentDraft{
			ID: &id, Name: &server, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent,
			Description: describes(server), Capabilities: capabilities,
		}, nil)
		if !errs.Is(err, errs.AgentExists) {
			return err
		}
		known, err = a.h.registry.Get(ctx, id) // another replica was quicker
	}
	if err != nil {
		return err
	}
	if known.Description != describes(server) {
		return errs.New(errs.AgentExists, "the agent %q is not the one of the MCP server %s; rename the server or the agent", id, server)
	}
	if slices.Equal(known.Capabilities, capabilities) {
		return nil
	}
	_, err = a.h.work.UpdateCapabilities(ctx, models.System(), id, capabilities)
	return err
}

// capabilitiesOf are the tools as an agent offers them: custom:serverId:toolName (decisions,
// “MCP gateway”). Those that no capability can be called by, and those beyond what an agent
// may offer, are called by MCP only.
func capabilitiesOf(tools []*tool) []string {
	out := []string{}
	for _, t := range tools {
		name := models.CustomPrefix + t.id
		if !t.quarantined && len(out) < models.MaxCapabilities && validate.Capability(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// AgentOf is the id of the agent that an upstream is in the registry.
func (h *Service) AgentOf(upstreamID string) string { return agentOf(upstreamID) }
