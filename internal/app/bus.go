package app

import (
	"context"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/orchestrator"
)

// newBus returns the message bus: embedded, or the servers of --nats-url.
func (a *App) newBus() (*bus.Bus, error) {
	b, err := bus.New(&bus.Options{
		URL: a.cfg.NATSURL, Credentials: a.cfg.NATS.CredentialsFile, CAFile: a.cfg.NATS.CAFile,
		CertFile: a.cfg.NATS.CertFile, KeyFile: a.cfg.NATS.KeyFile,
		Listen: a.cfg.NATS.Listen, Authenticate: a.agentOf, Logger: a.log,
	})
	if err == nil {
		a.metrics.Registerer().MustRegister(b)
	}
	return b, err
}

// agentOf returns the agent whose token it is.
func (a *App) agentOf(ctx context.Context, token string) (string, error) {
	p, err := a.tokens.Verify(ctx, token)
	if err == nil && p.AgentID == nil {
		err = errs.New(errs.Unauthenticated, "the token belongs to no agent")
	}
	if err != nil {
		return "", err
	}
	return *p.AgentID, nil
}

// wakes carries the orchestrator's wake-ups between replicas. It is the orchestrator's
// Waker and, once the bus runs, its subscriber.
type wakes struct {
	bus  *bus.Bus
	hear *orchestrator.Orchestrator
	stop func()
}

// Wake implements orchestrator.Waker. What cannot be published is found by looking.
func (w *wakes) Wake(kind orchestrator.WakeKind, id string) {
	if subject := subjectOf(kind, id); subject != "" {
		_ = w.bus.Publish(subject, nil)
	}
}

func subjectOf(kind orchestrator.WakeKind, id string) string {
	switch kind {
	case orchestrator.WakeInbox:
		return bus.WakeInbox(id)
	case orchestrator.WakeTask:
		return bus.WakeTask(id)
	case orchestrator.WakeQueue:
		return bus.WakeDispatch()
	case orchestrator.WakeWorker:
		return bus.WakeAgents()
	}
	return ""
}

// Start implements lifecycle.Service; the bus runs already.
func (w *wakes) Start(ctx context.Context) error {
	heard := map[bus.Kind]orchestrator.WakeKind{
		bus.WakeInboxes: orchestrator.WakeInbox, bus.WakeTasks: orchestrator.WakeTask,
		bus.WakeDispatches: orchestrator.WakeQueue, bus.WakeAgentIndexes: orchestrator.WakeWorker,
	}
	for subject, kind := range heard {
		_, err := w.bus.Subscribe(string(subject), func(m bus.Message) {
			_, name, _ := bus.Parse(m.Subject)
			w.hear.OnWake(kind, name)
		})
		if err != nil {
			return err
		}
	}
	w.stop = w.bus.OnGap(func(bus.Gap) { w.hear.OnWakeAll() })
	_ = w.bus.Flush(ctx) // what is not heard yet is found by looking
	return nil
}

// Stop implements lifecycle.Service. The bus ends the subscriptions when it stops.
func (w *wakes) Stop(context.Context) error {
	if w.stop != nil {
		w.stop()
	}
	return nil
}
