package v5

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

const (
	maxDeclaredDepth = 6
	// maxCaps is the number of capabilities that a join can declare; DATA has no room for more.
	maxCaps = 100
)

// sender is the sender of a message: an agent, or a user who requests work.
type sender struct {
	models.Principal
	// agentID and address are "" and User for a user.
	agentID string
	address wire.Address
	// v4 is set for a message of V4. task is the task that it is about, nil where it is about
	// none or its CTX names the task.
	v4   bool
	task *models.Task
	// incoming logs the message, nil for a message that is never logged.
	incoming *incomingMessage
}

// identifySender returns the sender of a message. The token identifies the agent, and FROM must
// be its address; only a join may propose another one, which it does not get.
func (p *Protocol) identifySender(ctx context.Context, from models.Principal, m wire.Message) (sender, error) {
	s := sender{Principal: from, address: wire.Address{Role: wire.User}}
	if from.AgentID == nil {
		switch {
		case m.From.Role != wire.User:
			return s, errorf(codes.E13, "from", "the token belongs to no agent: FROM must be User, not %s", m.From)
		case !s.maySubmit():
			return s, errSubmitScope()
		}
		return s, nil
	}
	s.agentID = *from.AgentID
	var err error
	if s.address, err = p.agentAddress(ctx, s.agentID); err != nil {
		s.address = wire.Address{}
		return s, err
	}
	if m.From != s.address && (m.Type != wire.Join || m.From.Role != wire.Worker) {
		return s, errorf(codes.E13, "from", "FROM must be %s, the address of the sender, not %s", s.address, m.From)
	}
	return s, nil
}

// withTokenSender sets FROM of a message that could not be parsed to the agent of the token, so
// that the error is sent to that agent.
func (p *Protocol) withTokenSender(ctx context.Context, from models.Principal, m wire.Message) wire.Message {
	if from.AgentID == nil {
		return m
	}
	if own, err := p.agentAddress(ctx, *from.AgentID); err == nil {
		m.From = own
	}
	return m
}

// peer names the sender in the message log. Every user is User on the wire, so the conversation
// between a user and O1 is stored under the user's token.
func (s sender) peer() string {
	if s.agentID == "" {
		return userPeer(s.TokenID)
	}
	return s.address.String()
}

func userPeer(tokenID string) string { return "User:" + tokenID }

// maySubmit reports whether the sender may request work.
func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }

func errSubmitScope() error {
	return errorf(codes.E90, "scope", "requesting work takes a token with the scope messages:send")
}

// owns reports whether the sender requested a task, or is an admin.
func (s sender) owns(t models.Task) bool { return t.Owner == s.TokenID || s.Has(models.ScopeAdmin) }

// handleJoin handles J (PROTOCOL_V5 §2.4, §12.4, §14.3): the agent declares its capabilities and
// gets the address that it keeps. concurrency= is the number of its slots.
func (p *Protocol) handleJoin(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	concurrency, err := checkJoin(m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if caps, ok := m.Data.Pair("caps"); ok {
		if err := p.updateCapabilities(ctx, s.agentID, slices.Collect(caps.List())); err != nil {
			return protocol.Reply{}, err
		}
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

// intPair reads a number in DATA, def where there is none.
func intPair(data wire.Data, key string, low, high, def int) (int, error) {
	text, ok := data.Get(key)
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, errorf(codes.E10, "", "%s must be a number from %d to %d, not %s", key, low, high, text)
	}
	return n, nil
}

// updateCapabilities replaces the capabilities of an agent. The agent itself declares them, so
// it needs no right to change agents.
func (p *Protocol) updateCapabilities(ctx context.Context, agentID string, caps []string) error {
	agent, err := p.orchestrator.Agent(ctx, agentID)
	if err != nil || sameCapabilities(agent.Capabilities, caps) {
		return err
	}
	_, err = p.orchestrator.UpdateCapabilities(ctx, models.System(), agentID, caps)
	return err
}

// sameCapabilities reports whether two lists name the same, with or without "custom:".
func sameCapabilities(a, b []string) bool {
	keys := func(names []string) []string {
		out := make([]string, len(names))
		for i, name := range names {
			out[i] = models.CapabilityKey(name)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(keys(a), keys(b))
}

// handleLeave handles L: the agent takes no more work, and its tasks go to other workers.
func (p *Protocol) handleLeave(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if err := p.orchestrator.Leave(ctx, s.agentID, true); err != nil {
		return protocol.Reply{}, err
	}
	return p.acknowledge(m, "left", true)
}

// handleCaps handles K.
func (p *Protocol) handleCaps(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	caps, ok := m.Data.Pair("caps")
	if !ok {
		return protocol.Reply{}, errorf(codes.E10, "", "DATA must have caps, a list such as caps=web_search,summarize")
	}
	if err := p.updateCapabilities(ctx, s.agentID, slices.Collect(caps.List())); err != nil {
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

// handleAck handles A: the agent has received what it was sent about a task, and has accepted
// the task where it was assigned.
func (p *Protocol) handleAck(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if tid, ok := m.Task.Number(); !ok || tid == 0 {
		return p.acknowledge(m, "noted", false)
	}
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.orchestrator.Accept(ctx, s.agentID, t.ID); err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "noted", false)
}
