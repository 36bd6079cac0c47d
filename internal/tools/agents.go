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
	// agentPrefix is what the ids of upstreams' agents begin with.
	agentPrefix = "mcp-"
	// workerProtocol is what their workers speak.
	workerProtocol = "mcp"
	// workerConcurrency is how many tasks one takes at a time.
	workerConcurrency = 16
)

// upstreamAgents are the upstreams as agents: each is one of the registry, with its tools as
// capabilities, and takes work like any other worker while it is up.
type upstreamAgents struct {
	*lifecycle.Loop
	svc *Service

	mu            sync.Mutex
	workers       map[string]*upstreamWorker // of the servers that are up
	workerContext context.Context            // of the workers; nil until it is started
	running       sync.WaitGroup
}

func newUpstreamAgents(h *Service) *upstreamAgents {
	a := &upstreamAgents{svc: h, workers: map[string]*upstreamWorker{}}
	a.Loop = lifecycle.NewLoop(a.run)
	return a
}

// run has the workers work until ctx ends, and takes them off the line then.
func (a *upstreamAgents) run(ctx context.Context) {
	a.mu.Lock()
	a.workerContext = ctx
	for _, w := range a.workers {
		a.startWorker(w)
	}
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.workerContext = nil
	a.mu.Unlock()
	a.running.Wait()
}

// startWorker starts a worker. The caller holds the lock.
func (a *upstreamAgents) startWorker(w *upstreamWorker) {
	ctx, cancel := context.WithCancel(a.workerContext)
	w.stop = cancel
	a.running.Go(func() { w.run(ctx) })
}

// update has the registry know a server's tools, and its agent take work, or no longer.
func (a *upstreamAgents) update(ctx context.Context, server string, up bool, tools []*tool) error {
	if up {
		if err := a.register(ctx, server, tools); err != nil {
			return fmt.Errorf("register the agent of %s: %w", server, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.workers[server]
	switch {
	case up && w == nil:
		w = &upstreamWorker{svc: a.svc, server: server, agentID: agentIDOf(server), connectionID: server + "@" + rand.Text()}
		a.workers[server] = w
		if a.workerContext != nil {
			a.startWorker(w)
		}
	case !up && w != nil:
		delete(a.workers, server)
		if w.stop != nil {
			w.stop()
		}
	}
	return nil
}

// agentIDOf is the id of an upstream's agent: small letters, digits and single hyphens.
func agentIDOf(server string) string {
	parts := strings.FieldsFunc(strings.ToLower(server), func(r rune) bool { return r == '-' })
	id := agentPrefix + strings.Join(parts, "-")
	if strings.TrimPrefix(id, agentPrefix) != server { // two that differ only in that must not meet
		id = truncate(id, models.MaxIDLength-7) + "-" + shortDigest(server)
	}
	return truncate(id, models.MaxIDLength)
}

// agentDescription is the description of an upstream's agent. An agent of that id with another one
// is somebody else's.
func agentDescription(server string) string { return "the MCP server " + server }

// register makes the agent of a server, or changes what it offers.
func (a *upstreamAgents) register(ctx context.Context, server string, tools []*tool) error {
	id, capabilities := agentIDOf(server), capabilitiesOf(tools)
	known, err := a.svc.registry.Get(ctx, id)
	if errs.Is(err, errs.NotFound) {
		level, sphere, frequency, parent := models.LevelSpecialist, a.svc.opts.Sphere, 555, a.svc.opts.ParentAgent
		_, err = a.svc.registry.Create(ctx, models.System(), models.AgentDraft{
			ID: &id, Name: &server, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent,
			Description: agentDescription(server), Capabilities: capabilities,
		}, nil)
		if !errs.Is(err, errs.AgentExists) {
			return err
		}
		known, err = a.svc.registry.Get(ctx, id) // another replica was quicker
	}
	if err != nil {
		return err
	}
	if known.Description != agentDescription(server) {
		return errs.New(errs.AgentExists, "the agent %q is not the one of the MCP server %s; rename the server or the agent", id, server)
	}
	if slices.Equal(known.Capabilities, capabilities) {
		return nil
	}
	_, err = a.svc.orchestrator.UpdateCapabilities(ctx, models.System(), id, capabilities)
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
func (h *Service) AgentOf(upstreamID string) string { return agentIDOf(upstreamID) }
