package v5

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// storedBroadcast is stored for each agent that receives a broadcast.
type storedBroadcast struct {
	To   string    `json:"to"`
	Data wire.Data `json:"data"`
}

// handleBroadcast handles B (PROTOCOL_V5 §3.3): every online agent that speaks V5 receives it, all
// of * and W*, the agents of sphere n for G<n>, or one worker. In the document only O1 sends B; an
// admin may send it in O1's place. The same message of one token has its effect once in a day.
func (p *Protocol) handleBroadcast(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if !s.Has(models.ScopeAdmin) {
		return protocol.Reply{}, errorf(codes.E90, "scope", "the token lacks the scope admin")
	}
	if tid, named := m.Task.Number(); named && tid != 0 || m.Context != "" && m.Context != wire.SystemContext {
		return protocol.Reply{}, errorf(codes.E10, "", "a broadcast is about no task: TID and CTX must be - or T0 and S0")
	}
	b := orchestrator.Broadcast{Protocol: Name, Priority: corePriority(m.Priority), MessageID: broadcastKey(s, m)}
	var err error
	switch m.To.Role {
	case wire.AllAgents, wire.AllWorkers:
	case wire.Group:
		b.SphereID = int(m.To.Number)
	case wire.Worker:
		if b.AgentID, err = p.agentByAddress(ctx, m.To); err != nil {
			return protocol.Reply{}, err
		}
	default:
		return protocol.Reply{}, errorf(codes.E13, "to", "a broadcast goes to *, W*, a group or a worker, not to %s", m.To)
	}
	if b.Data, err = json.Marshal(storedBroadcast{To: m.To.String(), Data: m.Data}); err != nil {
		return protocol.Reply{}, err
	}
	n, err := p.orchestrator.Broadcast(ctx, b)
	if err != nil {
		return protocol.Reply{}, notFoundAs(err, codes.E30, "%s is offline, or speaks another protocol", m.To)
	}
	return p.reply(m, wire.Ack, m.State, ackData("sent", m).Number("count", int64(n)), true)
}

// broadcastKey identifies a broadcast of a token.
func broadcastKey(s sender, m wire.Message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%s|%s|%s", s.TokenID, m.Number, m.To, m.Priority, m.Data))
	return "v5:notice:" + hex.EncodeToString(sum[:16])
}

// broadcastMessage returns a broadcast as an agent receives it.
func (p *Protocol) broadcastMessage(m models.InboxMessage) (wire.Message, error) {
	var b storedBroadcast
	if err := json.Unmarshal(m.Data, &b); err != nil {
		return wire.Message{}, fmt.Errorf("read a broadcast: %w", err)
	}
	to, err := wire.ParseAddress(b.To)
	return wire.Message{
		Number: p.numbers.next(""), From: self, To: to, Type: wire.Broadcast, Priority: wirePriority(m.Priority), Data: b.Data,
	}, err
}
