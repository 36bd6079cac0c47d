package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/models"
)

const (
	// agentPrefix is the prefix of the ids of upstreams' agents.
	agentPrefix = "mcp-"
	// workerProtocol is the protocol of their workers.
	workerProtocol = "mcp"
	// workerConcurrency is the number of concurrent tasks of a worker.
	workerConcurrency = 16
)

// upstreamAgents makes each upstream an agent with its tools as capabilities, and a worker.
type upstreamAgents struct {
	*background.Loop
	svc *Service

	mu            sync.Mutex
	workers       map[string]*upstreamWorker // by server, of those that are ready
	workerContext context.Context            // nil while stopped
	running       sync.WaitGroup
}

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

// startWorker starts a worker. The caller holds mu.
func (a *upstreamAgents) startWorker(w *upstreamWorker) {
	ctx, cancel := context.WithCancel(a.workerContext)
	w.stop = cancel
	a.running.Go(func() { w.run(ctx) })
}

// update registers the tools of a server with its agent, and starts or stops its worker.
func (a *upstreamAgents) update(ctx context.Context, server string, up bool, tools []*Tool) error {
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
		w = &upstreamWorker{svc: a.svc, server: server, agentID: agentIDOf(server), connectionID: a.svc.orchestrator.NewConnectionID()}
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

// agentIDOf returns the id of an upstream's agent: lower-case letters, digits and single hyphens.
func agentIDOf(server string) string {
	parts := strings.FieldsFunc(strings.ToLower(server), func(r rune) bool { return r == '-' })
	id := agentPrefix + strings.Join(parts, "-")
	if strings.TrimPrefix(id, agentPrefix) != server { // makes ids unique that differ only in other characters
		id = id[:min(len(id), input.MaxID-7)] + "-" + hexDigest([]byte(server))[:6]
	}
	return id[:min(len(id), input.MaxID)]
}

// agentDescription returns the description of an upstream's agent. An agent of the same id with
// another description does not belong to the upstream.
func agentDescription(server string) string { return "the MCP server " + server }

// register creates the agent of a server or updates its capabilities.
func (a *upstreamAgents) register(ctx context.Context, server string, tools []*Tool) error {
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
		known, err = a.svc.registry.Get(ctx, id) // another replica has created it
	}
	if err != nil {
		return err
	}
	if known.Description != agentDescription(server) {
		return errs.New(errs.AgentExists, "the agent %q does not belong to the MCP server %s; rename the server or the agent", id, server)
	}
	if slices.Equal(known.Capabilities, capabilities) {
		return nil
	}
	_, err = a.svc.orchestrator.UpdateAgent(ctx, models.System(), id, registry.AgentPatch{Capabilities: models.Some(capabilities)})
	return err
}

// capabilitiesOf returns the tools as capabilities: custom:serverId:toolName. Tools whose name is
// no valid capability, and tools over the limit of an agent, can be called through MCP only.
func capabilitiesOf(tools []*Tool) []string {
	out := []string{}
	for _, t := range tools {
		name := "custom:" + t.ID
		if !t.quarantined && len(out) < registry.MaxCapabilities && input.ValidCapability(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// AgentOf returns the id of an upstream's agent in the registry.
func (svc *Service) AgentOf(upstreamID string) string { return agentIDOf(upstreamID) }
