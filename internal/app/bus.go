package app

import (
	"context"
	"net/netip"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/events/live"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/usage"
)

// newBus returns the message bus: embedded, or the servers of --nats-url.
func (a *App) newBus(tokens *httpkit.Authenticator) (*bus.Bus, error) {
	b, err := bus.New(&bus.Options{
		URL: a.cfg.NATSURL, Credentials: a.cfg.NATS.CredentialsFile, CAFile: a.cfg.NATS.CAFile,
		CertFile: a.cfg.NATS.CertFile, KeyFile: a.cfg.NATS.KeyFile,
		Listen: a.cfg.NATS.Listen, Authenticate: agentOf(tokens), Logger: a.log,
	})
	if err == nil {
		a.metrics.Registerer().MustRegister(b)
	}
	return b, err
}

// agentOf returns the agents of tokens, errs.Unauthenticated for a token without an agent.
func agentOf(tokens *httpkit.Authenticator) func(context.Context, string, netip.Addr) (string, error) {
	return func(ctx context.Context, token string, client netip.Addr) (string, error) {
		p, err := tokens.VerifyToken(ctx, token, httpkit.AddressPrefix(client))
		if err == nil && p.AgentID == nil {
			err = errs.New(errs.Unauthenticated, "the token is not bound to an agent")
		}
		if err != nil {
			return "", err
		}
		return *p.AgentID, nil
	}
}

// wakeups carries the orchestrator's wake-ups between replicas: it implements orchestrator.Waker
// and subscribes to the wake-ups of other replicas.
type wakeups struct {
	bus          *bus.Bus
	subjects     map[orchestrator.WakeKind]bus.Kind
	orchestrator *orchestrator.Orchestrator
	shared       bool // with other replicas
	stop         func()
}

// Wake implements orchestrator.Waker. A wake-up that cannot be published is lost; the other
// replicas poll.
func (w *wakeups) Wake(kind orchestrator.WakeKind, id string) {
	if subject, ok := w.subjects[kind]; ok {
		_ = w.bus.Publish(subject.Of(id), nil)
	}
}

// wakeInboxes wakes the connections of agents that have new messages, here and on other replicas.
func (w *wakeups) wakeInboxes(agentIDs []string) {
	for _, id := range agentIDs {
		w.orchestrator.OnWake(orchestrator.WakeInbox, id)
		if w.shared {
			w.Wake(orchestrator.WakeInbox, id)
		}
	}
}

// Start implements background.Service. The bus must have been started.
func (w *wakeups) Start(ctx context.Context) error {
	for kind, subject := range w.subjects {
		_, err := w.bus.Subscribe(string(subject), func(m bus.Message) {
			name, _ := subject.NameIn(m.Subject)
			w.orchestrator.OnWake(kind, name)
		})
		if err != nil {
			return err
		}
	}
	w.stop = w.bus.OnGap(w.orchestrator.OnWakeAll)
	_ = w.bus.Flush(ctx) // a wake-up that is lost meanwhile is found by polling
	return nil
}

// Stop implements background.Service. The bus ends the subscriptions when it stops.
func (w *wakeups) Stop(context.Context) error {
	if w.stop != nil {
		w.stop()
	}
	return nil
}

// liveEvents carries events that are not stored to all replicas.
type liveEvents struct {
	*live.Events
	bus *bus.Bus
}

// publish sends a message to all replicas; one that cannot be published is lost.
func (l *liveEvents) publish(message []byte) { _ = l.bus.Publish(string(bus.LiveEvents), message) }

func (l *liveEvents) usageChanged(list []usage.Change) {
	for _, c := range list {
		_ = l.Mark(live.UsageChanged, c.AgentID, c.Version, c.At, c) // a Change is always JSON
	}
}

// Start implements background.Service. The bus must have been started.
func (l *liveEvents) Start(ctx context.Context) error {
	if _, err := l.bus.Subscribe(string(bus.LiveEvents), func(m bus.Message) { l.Receive(m.Data) }); err != nil {
		return err
	}
	return l.Events.Start(ctx)
}
