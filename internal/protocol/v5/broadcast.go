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

// notice is what is kept of a broadcast for each agent that is told.
type notice struct {
	To   string    `json:"to"`
	Data wire.Data `json:"data"`
}

// broadcast takes B (PROTOCOL_V5 §3.3): everybody who is there and speaks the protocol is
// told, all of *, W* and G<n>, the agents of sphere n, or one. The document has it from O1
// alone. Only an admin may speak in its place, and in no conversation. The same line of one
// token has its effect once in a day.
func (d *Protocol) broadcast(ctx context.Context, s speaker, m wire.Message) (protocol.Reply, error) {
	if err := mayBroadcast(s, m); err != nil {
		return protocol.Reply{}, err
	}
	a := orchestrator.Broadcast{Dialect: Name, Priority: priorityOf(m.Priority), MessageID: onceOf(s, m)}
	var err error
	switch m.To.Role {
	case wire.Everyone, wire.Workers:
	case wire.Group:
		a.Sphere = int(m.To.Number)
	case wire.Worker:
		if a.Agent, err = d.agentAt(ctx, m.To); err != nil {
			return protocol.Reply{}, err
		}
	default:
		return protocol.Reply{}, refuse(wire.E13, "to", "a broadcast goes to *, W*, a group or a worker, not to %s", m.To)
	}
	if a.Data, err = json.Marshal(notice{To: m.To.String(), Data: m.Data}); err != nil {
		return protocol.Reply{}, err
	}
	n, err := d.work.Broadcast(ctx, a)
	if errs.Is(err, errs.NotFound) {
		err = refuse(wire.E30, "", "%s is not there, or speaks another protocol", m.To)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return d.say(m, wire.Ack, m.State, flag("sent", m).Number("count", int64(n)), true)
}

// mayBroadcast refuses a broadcast of whoever is no admin, and one about a task or in a
// context.
func mayBroadcast(s speaker, m wire.Message) error {
	if !s.Has(models.ScopeAdmin) {
		return refuse(wire.E90, "scope", "the token lacks the scope admin")
	}
	if tid, named := m.Task.Number(); named && tid != 0 || m.Context != "" && m.Context != wire.SystemContext {
		return refuse(wire.E10, "", "a broadcast is about no task: TID and CTX must be - or T0 and S0")
	}
	return nil
}

// onceOf names a broadcast of one token.
func onceOf(s speaker, m wire.Message) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%s|%s|%s", s.TokenID, m.Number, m.To, m.Priority, m.Data))
	return "v5:notice:" + hex.EncodeToString(sum[:16])
}

// announced is the line of a broadcast as an agent gets it.
func (d *Protocol) announced(m models.InboxMessage) (wire.Message, error) {
	var n notice
	if err := json.Unmarshal(m.Data, &n); err != nil {
		return wire.Message{}, fmt.Errorf("read a broadcast: %w", err)
	}
	to, err := wire.ParseAddress(n.To)
	return wire.Message{
		Number: d.numbers.next(""), From: self, To: to, Type: wire.Broadcast, Priority: priority(m.Priority), Data: n.Data,
	}, err
}
