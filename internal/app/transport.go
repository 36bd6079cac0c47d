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
	v5 "comet/internal/protocol/v5"
	"comet/internal/transport"
)

// admission counts a request of a token and may refuse it.
type admission = func(w http.ResponseWriter, r *http.Request, tokenID string) error

// minOfflineAfter is the shortest time after which a silent agent is offline: three heartbeats of
// an agent that uses the default interval.
const minOfflineAfter = 45 * time.Second

// offlineAfter returns the time after which a silent agent is offline: three heartbeats.
func (a *App) offlineAfter() time.Duration { return max(3*a.cfg.Transport.Heartbeat, minOfflineAfter) }

// classes returns the policies of the protocols' task classes.
func classes() map[string]orchestrator.Policy {
	return map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy()}
}

// newTransport returns the server of the agents' connections, with the envelope protocol and
// PROTOCOL_V5. It calls admit for every request.
func (a *App) newTransport(work *orchestrator.Orchestrator, natsBus *bus.Bus, v5 *v5.Protocol, admit admission) *transport.Server {
	return transport.New(transport.Core{
		Work: work, Auth: a.tokens, Bus: natsBus,
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
