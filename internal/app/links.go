package app

import (
	"cmp"
	"net/http"
	"time"

	"comet/internal/bus"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/protocol/v5"
	"comet/internal/transport"
)

// admission counts a request of a token, and may refuse it.
type admission = func(w http.ResponseWriter, r *http.Request, tokenID string) error

// leastSilence is for how long an agent may be silent at least before it counts as
// offline: three of the heartbeats that those send who are told of no other pace.
const leastSilence = 45 * time.Second

// silence is for how long an agent may be silent: three heartbeats of its line.
func (a *App) silence() time.Duration { return max(3*a.cfg.Transport.Heartbeat, leastSilence) }

// classes are the policies of the dialects' tasks.
func classes() map[string]orchestrator.Policy {
	return map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy()}
}

// newTransports returns the lines to agents, on which envelopes and PROTOCOL_V5 are spoken. admit is asked for
// every request to them.
func (a *App) newTransports(work *orchestrator.Orchestrator, motion *bus.Bus, v5 *v5.Protocol, admit admission) *transport.Server {
	return transport.New(transport.Core{
		Work: work, Auth: a.tokens, Bus: motion,
		Protocols: []protocol.Protocol{
			envelope.New(work, &envelope.Options{Clock: a.opts.Clock, Logger: a.log}),
			v5,
		},
	}, &transport.Options{
		Heartbeat:      a.cfg.Transport.Heartbeat,
		Redeliver:      a.cfg.Transport.RedeliverAfter,
		MaxConnections: a.cfg.Transport.MaxConnections,
		MaxFailures:    a.cfg.Transport.MaxAuthFailures,
		Admit:          admit,
		Guard:          netguard.New(a.cfg.Webhooks.Networks()),
		HTTPSOnly:      a.cfg.Webhooks.HTTPSOnly,
		SingleProcess:  a.store.Database() == "sqlite",
		UserAgent:      "comet/" + cmp.Or(a.opts.Build.Version, "unknown"),
		Clock:          a.opts.Clock,
		Registerer:     a.metrics.Registerer(),
		Logger:         a.log,
	})
}
