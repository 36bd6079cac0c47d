package tools

import (
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/models"
)

// ChangeKind is what a change is of.
type ChangeKind int

// What changes. Of the first three a client's list may be another than it was.
const (
	ToolsChanged ChangeKind = iota
	PromptsChanged
	ResourcesChanged
	// ResourceUpdated is one resource, of which Change.URI says which.
	ResourceUpdated
)

// Change is news for the doors whose clients have lists.
type Change struct {
	Kind ChangeKind
	URI  string // of ResourceUpdated
}

// OnUpstreamChange hears from the upstreams what changed; it does not block.
func (h *Service) OnUpstreamChange(c upstream.Change) {
	switch c.Kind {
	case upstream.ResourceUpdated:
		h.opts.OnChange(Change{ResourceUpdated, c.URI})
		return
	case upstream.Up:
		h.publishUpstreamEvent(models.EventUpstreamUp, models.UpstreamChanged{ID: c.Server, Tools: len(h.upstreams.Tools(c.Server))})
	case upstream.Down:
		h.publishUpstreamEvent(models.EventUpstreamDown, models.UpstreamChanged{ID: c.Server, Reason: h.downReason(c.Server)})
	case upstream.Prompts:
		h.opts.OnChange(Change{Kind: PromptsChanged})
	case upstream.Resources:
		h.opts.OnChange(Change{Kind: ResourcesChanged})
	}
	h.refreshSoon(c.Server)
}

func (h *Service) publishUpstreamEvent(kind models.EventType, data models.UpstreamChanged) {
	h.auditLog.addEvent(models.EventDraft{Type: kind, Key: data.ID, Data: data})
}

func (h *Service) downReason(server string) string {
	s, _ := h.status(server)
	return s.Error
}

// OnGraphChange hears from the index what became of the usage graph; it does not block.
func (h *Service) OnGraphChange(c toolsearch.Change) {
	kinds := map[toolsearch.ChangeKind]models.EventType{
		toolsearch.EdgeCreated: models.EventEdgeCreated, toolsearch.EdgeUpdated: models.EventEdgeUpdated,
		toolsearch.GraphSynced: models.EventGraphSynced, toolsearch.MetricsUpdated: models.EventMetricsUpdated,
	}
	h.auditLog.addEvent(models.EventDraft{Type: kinds[c.Kind], Key: "tools", Data: models.GraphChanged{
		From: c.From, To: c.To, Runs: c.Runs, Nodes: c.Nodes, Edges: c.Edges, Communities: c.Communities, Density: c.Density,
	}})
}
