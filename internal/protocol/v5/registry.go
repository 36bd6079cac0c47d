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
	"comet/models"
)

// The bounds of what a join declares.
const (
	maxDeclaredDepth = 6
	// maxCaps bounds a declaration; DATA has no room for more.
	maxCaps = 100
)

// handleJoin takes J (PROTOCOL_V5 §2.4, §12.4, §14.3): the agent says what it can do, and gets
// the number it has for good. concurrency= is how many tasks it takes at a time.
func (p *Protocol) handleJoin(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	places, err := checkJoin(m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if pair, ok := m.Data.Pair("caps"); ok {
		if err := p.updateCapabilities(ctx, s.agentID, slices.Collect(pair.List())); err != nil {
			return protocol.Reply{}, err
		}
	}
	w := new(wire.Writer).Flag("registered").Add("id", s.address.String()).Add("status", "active")
	if joinsAsV4(m) {
		w.Add("version", VersionV4).Add("mode", "compat")
	} else {
		w.Add("version", Version)
	}
	m.From = s.address // whatever it has proposed
	a, err := p.reply(m, wire.Ack, wire.Done, w, true)
	a.Joined, a.Concurrency = err == nil, places
	a.MaxDepth, _ = intPair(m.Data, "max_depth", 1, maxDeclaredDepth, 0) // checkJoin has judged it
	if joinsAsV4(m) {
		a.Version, a.Concurrency = VersionV4, concurrencyV4
	}
	return a, err
}

// checkJoin judges a join by itself, and returns how many tasks the agent takes at a
// time, 0 where it does not say.
func checkJoin(m wire.Message) (places int, err error) {
	if v, ok := m.Data.Get("version"); ok && !strings.EqualFold(v, Version) && !joinsAsV4(m) {
		return 0, errorf(wire.E90, wire.ReasonVersion, "version %s is not spoken here; V5 and V4 are", v)
	}
	if _, err := intPair(m.Data, "max_depth", 1, maxDeclaredDepth, 1); err != nil {
		return 0, err
	}
	if p, ok := m.Data.Pair("caps"); ok && len(slices.Collect(p.List())) > maxCaps {
		return 0, errorf(wire.E10, "", "caps must have at most %d entries", maxCaps)
	}
	return intPair(m.Data, "concurrency", 1, orchestrator.MaxConcurrency, 0)
}

// intPair reads a number of DATA, otherwise where there is none.
func intPair(data wire.Data, key string, low, high, otherwise int) (int, error) {
	text, ok := data.Get(key)
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, errorf(wire.E10, "", "%s must be a number from %d to %d, not %s", key, low, high, text)
	}
	return n, nil
}

// updateCapabilities has an agent offer what it says, in the place of what it did before. The
// agent itself says so, which no right to change agents is needed for.
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

// handleLeave takes L: the agent takes no work any more, and what it has goes to others.
func (p *Protocol) handleLeave(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if err := p.orchestrator.Leave(ctx, s.agentID, true); err != nil {
		return protocol.Reply{}, err
	}
	return p.acknowledge(m, "left", true)
}

// handleCaps takes K.
func (p *Protocol) handleCaps(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	pair, ok := m.Data.Pair("caps")
	if !ok {
		return protocol.Reply{}, errorf(wire.E10, "", "DATA must have caps, a list such as caps=web_search,summarize")
	}
	if err := p.updateCapabilities(ctx, s.agentID, slices.Collect(pair.List())); err != nil {
		return protocol.Reply{}, err
	}
	return p.acknowledge(m, "updated", true)
}

// handleHeartbeat takes H: load in percent, and how many tasks wait at the agent. One whose
// load is 100 is busy.
func (p *Protocol) handleHeartbeat(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	beat := orchestrator.Heartbeat{State: models.WorkerOnline, Present: true}
	if text, ok := m.Data.Get("load"); ok {
		load, ok := parsePercent(text)
		if !ok {
			return protocol.Reply{}, errorf(wire.E10, "", "load must be 0%% to 100%%, not %s", text)
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
	if errs.Is(err, errs.NotFound) {
		return protocol.Reply{}, errorf(wire.E41, "", "%s is not there: send J first", s.address)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.acknowledge(m, "alive", false)
}

// handleAck takes A: an agent has what it was told about a task, and works on what it was
// given.
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
	return p.acknowledge(m, "noted", has(m.Data, keyAck))
}
