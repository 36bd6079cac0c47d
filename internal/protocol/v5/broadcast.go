package v5

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// storedBroadcast is what is kept of a broadcast for each agent that is told.
type storedBroadcast struct {
	To   string    `json:"to"`
	Data wire.Data `json:"data"`
}

// handleBroadcast takes B (PROTOCOL_V5 §3.3): everybody who is there and speaks the protocol is
// told, all of *, W* and G<n>, the agents of sphere n, or one. The document has it from O1
// alone. Only an admin may speak in its place, and in no conversation. The same line of one
// token has its effect once in a day.
func (p *Protocol) handleBroadcast(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if err := checkBroadcast(s, m); err != nil {
		return protocol.Reply{}, err
	}
	a := orchestrator.Broadcast{Protocol: Name, Priority: corePriority(m.Priority), MessageID: broadcastKey(s, m)}
	var err error
	switch m.To.Role {
	case wire.Everyone, wire.Workers:
	case wire.Group:
		a.SphereID = int(m.To.Number)
	case wire.Worker:
		if a.AgentID, err = p.agentByAddress(ctx, m.To); err != nil {
			return protocol.Reply{}, err
		}
	default:
		return protocol.Reply{}, errorf(wire.E13, "to", "a broadcast goes to *, W*, a group or a worker, not to %s", m.To)
	}
	if a.Data, err = json.Marshal(storedBroadcast{To: m.To.String(), Data: m.Data}); err != nil {
		return protocol.Reply{}, err
	}
	n, err := p.orchestrator.Broadcast(ctx, a)
	if errs.Is(err, errs.NotFound) {
		err = errorf(wire.E30, "", "%s is not there, or speaks another protocol", m.To)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.reply(m, wire.Ack, m.State, ackData("sent", m).Number("count", int64(n)), true)
}

// checkBroadcast refuses a broadcast of whoever is no admin, and one about a task or in a
// context.
func checkBroadcast(s sender, m wire.Message) error {
	if !s.Has(models.ScopeAdmin) {
		return errorf(wire.E90, "scope", "the token lacks the scope admin")
	}
	if tid, named := m.Task.Number(); named && tid != 0 || m.Context != "" && m.Context != wire.SystemContext {
		return errorf(wire.E10, "", "a broadcast is about no task: TID and CTX must be - or T0 and S0")
	}
	return nil
}

// broadcastKey names a broadcast of one token.
func broadcastKey(s sender, m wire.Message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%s|%s|%s", s.TokenID, m.Number, m.To, m.Priority, m.Data))
	return "v5:notice:" + hex.EncodeToString(sum[:16])
}

// broadcastMessage is the line of a broadcast as an agent gets it.
func (p *Protocol) broadcastMessage(m models.InboxMessage) (wire.Message, error) {
	var n storedBroadcast
	if err := json.Unmarshal(m.Data, &n); err != nil {
		return wire.Message{}, fmt.Errorf("read a broadcast: %w", err)
	}
	to, err := wire.ParseAddress(n.To)
	return wire.Message{
		Number: p.numbers.next(""), From: self, To: to, Type: wire.Broadcast, Priority: wirePriority(m.Priority), Data: n.Data,
	}, err
}
