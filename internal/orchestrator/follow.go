package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// followed is how many events are read at a time.
const followed = 500

// follow reads what the registry's events tell of, on whichever replica it happened.
// It begins anew from the newest event after each failure, and has the whole registry
// read again then.
func (o *Orchestrator) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := o.followOnce(ctx)
		if ctx.Err() == nil {
			o.report(ctx, "following the registry", err)
			o.stale.Add(1)
			pause := time.NewTimer(o.opts.Poll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
}

func (o *Orchestrator) followOnce(ctx context.Context) error {
	sub, err := o.opts.Feed.SubscribeNew(ctx)
	if err != nil {
		return err
	}
	sub.Only(registryEvents()...)
	o.stale.Add(1) // what changed before the subscription
	o.hub.wake(wake{WakeLine, ""})
	o.read.Store(sub.Position())
	for {
		news, err := sub.Next(ctx, followed)
		if err != nil {
			return err
		}
		for _, e := range news {
			if err := o.ReindexAgent(ctx, e.Key); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		o.read.Store(sub.Position())
	}
}

// catchUp waits until the index knows every change of the registry that was committed
// before the call. It is asked before work is refused that
// nobody offers: the agent may have been registered a moment ago, or the process have
// begun. After a short patience it is errs.Unavailable.
func (o *Orchestrator) catchUp(ctx context.Context) error {
	const patience = 5 * time.Second
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		known, err := o.caughtUp(ctx)
		if known || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-end.C:
			return errs.New(errs.Unavailable, "the agents are being read, try again")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// caughtUp reports whether no change of the registry is still to be read.
func (o *Orchestrator) caughtUp(ctx context.Context) (bool, error) {
	if !o.hub.isFilled() || o.stale.Load() != o.fresh.Load() {
		return false, nil
	}
	if o.opts.Feed == nil {
		return true, nil
	}
	read := o.read.Load()
	waiting, err := o.store.EventsUnnumberedOf(ctx, registryEvents())
	if err != nil || waiting {
		return false, err
	}
	head, err := o.store.LastPosition(ctx)
	if err != nil {
		return false, err
	}
	news, err := o.store.EventsOf(ctx, read, head, registryEvents(), 1)
	return len(news) == 0, err
}

func registryEvents() []models.EventType {
	return []models.EventType{models.EventAgentCreated, models.EventAgentUpdated, models.EventAgentDeactivated}
}
