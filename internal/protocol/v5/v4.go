package v5

import (
	"bytes"
	"context"
	"strings"

	wire "comet/internal/wire/v5"
	v4 "comet/internal/wire/v5/v4"
	"comet/models"
)

// PROTOCOL_V4 is spoken in two ways. A worker that joins with version=V4 is told
// everything in eight segments from then on (PROTOCOL_V5 §1.2, §14.3), and whoever sends a
// line of eight is answered with eight (§14.2). Between the two ends everything is V5: a
// line is read as V5, and what comes of it is put into V4 last. Only the task that a line
// is about has to be found differently, because V4 has no CTX.

// VersionV4 is the version in which a worker of V4 joins.
const VersionV4 = "V4"

// concurrencyV4 is how many tasks a worker of V4 takes at a time, so that it cannot take one
// for another.
const concurrencyV4 = 1

// isV4 reports whether the first line of a text has the segments of V4.
func isV4(raw []byte) bool {
	line, _, _ := bytes.Cut(raw, []byte{'\n'})
	return bytes.Count(line, []byte{'|'}) == v4.Segments-1
}

// parse reads a line. From whoever speaks V4 one of fewer segments than V5 has is one of
// V4, and not a broken one of V5.
func parse(line string, old bool) (wire.Message, error) {
	if old && strings.Count(line, "|") < wire.Segments-1 {
		return v4.Parse(line)
	}
	return wire.Parse(line)
}

// repliesInV4 reports whether a line is answered in V4: it is one, or comes from a worker that
// knows nothing else. A join is V5 for everybody, and so is its answer (§14.3).
func (p *Protocol) repliesInV4(from models.Principal, raw []byte) bool {
	if isV4(raw) {
		return true
	}
	if from.AgentID == nil || !p.knowsOnlyV4(*from.AgentID) {
		return false
	}
	segments := bytes.SplitN(raw, []byte{'|'}, wire.Segments)
	return len(segments) < wire.Segments || string(segments[wire.SegmentType-1]) != wire.Join.String()
}

// knowsOnlyV4 reports whether an agent has joined as a worker of V4.
func (p *Protocol) knowsOnlyV4(agentID string) bool {
	w := p.orchestrator.CachedWorker(agentID)
	return w.Protocol == Name && w.ProtocolVersion == VersionV4
}

// joinsAsV4 reports whether a join is that of a worker of V4.
func joinsAsV4(join wire.Message) bool {
	v, _ := join.Data.Get("version")
	return strings.EqualFold(v, VersionV4)
}

// resolveTaskV4 finds out which task a message of V4 is about, which CTX would say in V5.
func (p *Protocol) resolveTaskV4(ctx context.Context, s *sender, m wire.Message) error {
	s.v4 = true
	if m.Type == wire.Handoff {
		return errorf(wire.E14, "", "V4 has no type X; join with version=V5 to hand work off")
	}
	tid, named := m.Task.Number()
	if !named || tid == 0 || m.Context != "" {
		return nil
	}
	switch {
	case m.Type == wire.Update && m.State == wire.Cancelled,
		m.Type == wire.Clarify && (s.agentID == "" || has(m.Data, "answer") || has(m.Data, "choice")):
		return p.findRequestV4(ctx, s, tid)
	case s.agentID == "":
		return nil
	}
	switch m.Type {
	case wire.Ack, wire.Update, wire.Success, wire.Failure, wire.Clarify:
		return p.findWorkV4(ctx, s, tid)
	}
	return nil
}

// withShortNames is a message with the names that its task has in V5.
func (p *Protocol) withShortNames(ctx context.Context, s sender, m wire.Message) wire.Message {
	if s.task == nil {
		return m
	}
	if h, err := p.newMessage(ctx, *s.task); err == nil { // else it is not kept
		m.Context, m.Task, m.Depth = h.Context, h.Task, h.Depth
		s.incoming.setContext(m) // recall has found it among the speaker's
	}
	return m
}
