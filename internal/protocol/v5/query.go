package v5

import (
	"context"
	"math"
	"slices"

	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	// workerBatch is the number of workers read from the database at a time.
	workerBatch = 500
	// workersPerPage is the number of names that fit into DATA beside the other pairs.
	workersPerPage = 15
)

// handleQuery handles Q: the list of workers (PROTOCOL_V5 §12.4), a page of what a reference
// refers to, or the status of a task.
func (p *Protocol) handleQuery(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if text, ok := m.Data.Get("ref"); ok {
		return p.readReference(ctx, s, m, text)
	}
	if !has(m.Data, "filter") {
		if tid, ok := m.Task.Number(); ok && tid > 0 {
			return p.taskStatus(ctx, s, m)
		}
	}
	return p.listWorkers(ctx, m)
}

// listWorkers lists workers by filter=W*, W3 or G8 (the agents of sphere 8) and status=, 15 on a
// page. For one worker it adds the description that it has declared.
func (p *Protocol) listWorkers(ctx context.Context, m wire.Message) (protocol.Reply, error) {
	page, err := intPair(m.Data, "page", 1, math.MaxInt32, 1)
	if err != nil {
		return protocol.Reply{}, err
	}
	match, err := parseWorkerFilter(m.Data)
	if err != nil {
		return protocol.Reply{}, err
	}
	var found []int64
	desc := ""
	for after := ""; ; {
		workers, err := p.orchestrator.Workers(ctx, "", after, workerBatch)
		if err != nil {
			return protocol.Reply{}, err
		}
		for _, w := range workers {
			after = w.AgentID
			n, err := p.shortIDs.AgentNumber(ctx, w.AgentID)
			if err != nil {
				return protocol.Reply{}, err
			}
			agent, err := p.orchestrator.Agent(ctx, w.AgentID)
			if err != nil {
				return protocol.Reply{}, err
			}
			if agent.IsActive && match(n, w, agent) {
				found, desc = append(found, n), agent.Description
			}
		}
		if len(workers) < workerBatch {
			break
		}
	}
	slices.Sort(found)
	pages := max((len(found)+workersPerPage-1)/workersPerPage, 1)
	if page > pages {
		return protocol.Reply{}, errorf(codes.E10, "", "page %d is beyond the last one, %d", page, pages)
	}
	w := new(wire.Writer)
	var names []string
	for _, n := range found[(page-1)*workersPerPage : min(page*workersPerPage, len(found))] {
		names = append(names, wire.WorkerAddress(int(n)).String())
	}
	if len(names) > 0 {
		w.List("agents", names...)
	}
	if w.Number("count", int64(len(found))); pages > 1 {
		w.Number("page", int64(page)).Number("of", int64(pages))
	}
	if filter, _ := m.Data.Get("filter"); len(names) == 1 && names[0] == filter && desc != "" {
		w.Text("desc", desc)
	}
	return p.reply(m, wire.Success, wire.Done, w, true)
}

// parseWorkerFilter reads filter= and status=.
func parseWorkerFilter(data wire.Data) (match func(n int64, w models.Worker, a models.Agent) bool, err error) {
	filter := wire.Address{Role: wire.AllWorkers}
	if text, ok := data.Get("filter"); ok {
		if filter, err = wire.ParseAddress(text); err != nil {
			return nil, err
		}
	}
	status, err := wordPair(data, "status", "active", "online", "busy", "offline", "all")
	if err != nil {
		return nil, err
	}
	return func(n int64, w models.Worker, a models.Agent) bool {
		switch filter.Role {
		case wire.AllAgents, wire.AllWorkers:
		case wire.Worker:
			if wire.WorkerAddress(int(n)) != filter {
				return false
			}
		case wire.Group:
			if a.SphereID == nil || *a.SphereID != int(filter.Number) {
				return false
			}
		default:
			return false
		}
		switch status {
		case "active":
			return w.State != models.WorkerOffline
		case "online", "busy", "offline":
			return string(w.State) == status
		}
		return true
	}, nil
}

// taskStatus replies with the status of a task: the message that its requester would receive or
// received last. A DEPTH above 0 asks for a subtask.
func (p *Protocol) taskStatus(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.queriedTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if m.Depth == 0 && !s.owns(t) && (s.agentID == "" || t.AgentID != s.agentID) {
		return protocol.Reply{}, errorf(codes.E40, "", "there is no task %s in %s", m.Task, m.Context)
	}
	return p.statusReply(ctx, s, t)
}
