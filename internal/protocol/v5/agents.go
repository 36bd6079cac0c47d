package v5

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/registry"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	maxDeclaredDepth = 6
	// maxCaps is the number of capabilities that a join can declare; more do not fit into DATA.
	maxCaps = 100
)

// handleJoin handles J (PROTOCOL_V5 §2.4, §12.4, §14.3): the agent declares its capabilities and
// gets the address that it keeps. concurrency= is the number of its slots.
func (p *Protocol) handleJoin(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	concurrency, err := checkJoin(m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if err := p.updateAgent(ctx, s.agentID, m.Data); err != nil {
		return protocol.Reply{}, err
	}
	w := new(wire.Writer).Flag("registered").Add("id", s.address.String()).Add("status", "active")
	if joinsAsV4(m) {
		w.Add("version", VersionV4).Add("mode", "compat")
	} else {
		w.Add("version", Version)
	}
	m.From = s.address // not the proposed one
	reply, err := p.reply(m, wire.Ack, wire.Done, w, true)
	reply.Joined, reply.Concurrency = err == nil, concurrency
	reply.MaxDepth, _ = intPair(m.Data, "max_depth", 1, maxDeclaredDepth, 0) // checkJoin has checked it
	if joinsAsV4(m) {
		reply.Version, reply.Concurrency = VersionV4, concurrencyV4
	}
	return reply, err
}

// checkJoin checks the pairs of a join and returns the agent's concurrency, 0 where the join does
// not state it.
func checkJoin(m wire.Message) (concurrency int, err error) {
	if v, ok := m.Data.Get("version"); ok && !strings.EqualFold(v, Version) && !joinsAsV4(m) {
		return 0, errorf(codes.E90, codes.ReasonVersion, "version %s is not supported; V5 and V4 are", v)
	}
	if _, err := intPair(m.Data, "max_depth", 1, maxDeclaredDepth, 1); err != nil {
		return 0, err
	}
	if caps, ok := m.Data.Pair("caps"); ok && len(slices.Collect(caps.List())) > maxCaps {
		return 0, errorf(codes.E10, "", "caps must have at most %d entries", maxCaps)
	}
	return intPair(m.Data, "concurrency", 1, orchestrator.MaxConcurrency, 0)
}

// updateAgent stores the capabilities, caps=, and the description, desc=, that an agent declares
// (§2.3). The agent itself declares them, so it needs no right to change agents.
func (p *Protocol) updateAgent(ctx context.Context, agentID string, data wire.Data) error {
	caps, hasCaps := data.Pair("caps")
	desc, described := data.Get("desc")
	if !hasCaps && !described {
		return nil
	}
	agent, err := p.orchestrator.Agent(ctx, agentID)
	if err != nil {
		return err
	}
	var patch registry.AgentPatch
	if names := slices.Collect(caps.List()); hasCaps && !slices.Equal(models.CapabilityKeys(agent.Capabilities), models.CapabilityKeys(names)) {
		patch.Capabilities = models.Some(names)
	}
	if described && desc != agent.Description {
		patch.Description = models.Some(desc)
	}
	if patch.Capabilities.Set || patch.Description.Set {
		_, err = p.orchestrator.UpdateAgent(ctx, models.System(), agentID, patch)
	}
	return err
}

// handleCaps handles K.
func (p *Protocol) handleCaps(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if !has(m.Data, "caps") {
		return protocol.Reply{}, errorf(codes.E10, "", "DATA must have caps, a list such as caps=web_search,summarize")
	}
	if err := p.updateAgent(ctx, s.agentID, m.Data); err != nil {
		return protocol.Reply{}, err
	}
	return p.acknowledge(m, "updated", true)
}

// handleHeartbeat handles H: the load in percent, and the length of the agent's own queue. A
// load of 100 means busy.
func (p *Protocol) handleHeartbeat(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	beat := orchestrator.Heartbeat{State: models.WorkerOnline, Present: true}
	if text, ok := m.Data.Get("load"); ok {
		load, ok := parsePercent(text)
		if !ok {
			return protocol.Reply{}, errorf(codes.E10, "", "load must be 0%% to 100%%, not %s", text)
		}
		beat.Load = &load
		if load == 100 {
			beat.State = models.WorkerBusy
		}
	}
	if _, err := intPair(m.Data, "queue", 0, wire.MaxNumber, 0); err != nil {
		return protocol.Reply{}, err
	}
	_, err := p.orchestrator.Heartbeat(ctx, s.agentID, beat)
	if err != nil {
		return protocol.Reply{}, notFoundAs(err, codes.E41, "%s has not joined: send J first", s.address)
	}
	return p.acknowledge(m, "alive", false)
}

// storedBroadcast is stored for each agent that receives a broadcast.
type storedBroadcast struct {
	To   string    `json:"to"`
	Data wire.Data `json:"data"`
}

// handleBroadcast handles B (PROTOCOL_V5 §3.3): every online agent that speaks V5 receives it, all
// of * and W*, the agents of sphere n for G<n>, or one worker. In the document only O1 sends B; an
// admin may send it in O1's place. The same message of one token has its effect once in a day.
func (p *Protocol) handleBroadcast(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if !s.Administers() {
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

// publicationMessage returns a publication as the broadcast that tells an agent of it. DATA has the members of the payload, or
// payload= for another value, if pairs can hold them; otherwise the agent reads the payload over the API, by the id. Of a
// payload that is not stored, DATA then has the members without objects, lists and null.
func (p *Protocol) publicationMessage(ctx context.Context, agent models.Agent, m models.InboxMessage) (out wire.Message, ok bool, err error) {
	out = wire.Message{Number: p.numbers.next(""), From: self, Type: wire.Broadcast, Priority: wirePriority(m.Priority)}
	if out.To, err = p.agentAddress(ctx, agent.ID); err != nil {
		return out, false, err
	}
	head := func() *wire.Writer {
		return new(wire.Writer).Add("event", m.Publication.Type).Add("id", m.ID).Number("attempt", int64(m.Attempt))
	}
	payload, members := m.Publication.Payload, map[string]json.RawMessage{}
	if json.Unmarshal(payload, &members) != nil {
		payload = slices.Concat([]byte(`{"payload":`), payload, []byte("}"))
	}
	w, own := head(), members["event"] == nil && members["id"] == nil && members["attempt"] == nil
	fits := own && writeParameters(w, payload)
	if !fits && own && m.Publication.Guarantee == "at-most-once" { // it is not stored for the API: at least the simple members
		maps.DeleteFunc(members, func(_ string, value json.RawMessage) bool { return strings.ContainsAny(string(value[:1]), "{[n") })
		payload, _ = json.Marshal(members) // marshals always
		w = head()
		fits = writeParameters(w, payload)
	}
	if !fits {
		w = head()
	}
	out.Data, err = w.Data()
	return out, err == nil, nil
}

// enrolledPrefix begins the ids of agents that register themselves.
const enrolledPrefix = "v5-"

// SelfRegistration returns a function that registers an agent without a token: L2, 555 Hz, sphere
// 8, below orch-my-team (decisions: “Agents that register themselves”). A program that proposes the
// name of such an agent is accepted as this agent. A trusted program runs as the server's user; its agents
// have the same rights as those with tokens, and need not have registered themselves. Other programs can
// register agents only if open is set.
func SelfRegistration(reg *registry.Registry, open bool) func(ctx context.Context, name string, trusted bool) (agentID string, err error) {
	word := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	return func(ctx context.Context, name string, trusted bool) (string, error) {
		if !open && !trusted {
			return "", errs.New(errs.Unauthenticated, "token= is missing").With("missing", "token")
		}
		if name == "" {
			name = uuid.NewString()
		}
		if len(name) > 40 || !word.MatchString(name) {
			return "", errs.New(errs.InvalidRequest, "name must be up to 40 lowercase letters, digits and hyphens, not %q", name)
		}
		id, level, sphere, frequency, parent := enrolledPrefix+name, models.LevelSpecialist, 8, 555, "orch-my-team"
		_, err := reg.Create(ctx, models.System(), models.AgentDraft{
			ID: &id, Name: &name, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent,
			Description: "registered itself", SelfRegistered: !trusted,
		}, nil)
		if errs.Is(err, errs.AgentExists) {
			var known models.AgentDetail
			known, err = reg.Get(ctx, id)
			switch {
			case err == nil && trusted && known.SelfRegistered:
				_, err = reg.Update(ctx, models.System(), id, registry.AgentPatch{SelfRegistered: models.Some(false)}, nil)
			case err == nil && !trusted && !known.SelfRegistered:
				err = errs.New(errs.Unauthenticated, "the agent %q has not registered itself; it needs token=", id).With("missing", "token")
			}
			return id, err
		}
		if err != nil {
			return "", fmt.Errorf("register the agent %s: %w", id, err)
		}
		return id, nil
	}
}
