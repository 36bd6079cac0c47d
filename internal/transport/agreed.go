package transport

import (
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

// agreed is the version of the dialect that is spoken with an agent on its line, how many
// tasks it takes at a time in it, and how deep they may be. It may say another one without hanging up, while the
// line is looked after.
type agreed struct {
	version string
	places  int
	depth   int
}

// agrees notes the version in which an agent has come. A line keeps the places that it
// began with, but in another version than the newest it may have fewer.
func (h *held) agrees(a protocol.Reply) {
	out := &agreed{version: a.Version, places: h.places, depth: a.MaxDepth}
	if a.Version != "" && a.Concurrency > 0 {
		out.places = min(out.places, a.Concurrency)
	}
	h.agreed.Store(out)
}

// joining is what the agent of a line says when it comes on it. line names the
// connection, "" where it is gone and the agent is left to other processes.
func (h *held) joining(line string) orchestrator.JoinRequest {
	j := orchestrator.JoinRequest{Dialect: h.speech.Name(), Link: h.link, Line: line, Places: h.places}
	if a := h.agreed.Load(); a != nil {
		j.Version, j.Places, j.MaxDepth = a.version, a.places, a.depth
	}
	return j
}
