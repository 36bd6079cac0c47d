package transport

import (
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

// negotiated is the version of the dialect that is spoken with an agent on its line, how many
// tasks it takes at a time in it, and how deep they may be. It may say another one without hanging up, while the
// line is looked after.
type negotiated struct {
	version     string
	concurrency int
	maxDepth    int
}

// setNegotiated notes the version in which an agent has come. A line keeps the places that it
// began with, but in another version than the newest it may have fewer.
func (h *connection) setNegotiated(a protocol.Reply) {
	out := &negotiated{version: a.Version, concurrency: h.concurrency, maxDepth: a.MaxDepth}
	if a.Version != "" && a.Concurrency > 0 {
		out.concurrency = min(out.concurrency, a.Concurrency)
	}
	h.negotiated.Store(out)
}

// joinRequest is what the agent of a line says when it comes on it. line names the
// connection, "" where it is gone and the agent is left to other processes.
func (h *connection) joinRequest(line string) orchestrator.JoinRequest {
	j := orchestrator.JoinRequest{Dialect: h.protocol.Name(), Link: h.transport, Line: line, Places: h.concurrency}
	if a := h.negotiated.Load(); a != nil {
		j.Version, j.Places, j.MaxDepth = a.version, a.concurrency, a.maxDepth
	}
	return j
}
