package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// registryBatch is how many events are read at a time.
const registryBatch = 500

// followRegistry reads what the registry's events tell of, on whichever replica it happened.
// It begins anew from the newest event after each failure, and has the whole registry
// read again then.
func (o *Orchestrator) followRegistry(ctx context.Context) {
	for ctx.Err() == nil {
		err := o.followRegistryOnce(ctx)
		if ctx.Err() == nil {
			o.logFailure(ctx, "following the registry", err)
			o.registryStale.Add(1)
			pause := time.NewTimer(o.opts.Poll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
}

func (o *Orchestrator) followRegistryOnce(ctx context.Context) error {
	sub, err := o.opts.Feed.SubscribeNew(ctx)
	if err != nil {
		return err
	}
	sub.Only(registryEvents()...)
	o.registryStale.Add(1) // what changed before the subscription
	o.waiters.wake(wake{WakeQueue, ""})
	o.registryPosition.Store(sub.Position())
	for {
		news, err := sub.Next(ctx, registryBatch)
		if err != nil {
			return err
		}
		for _, e := range news {
			if err := o.ReindexAgent(ctx, e.Key); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		o.registryPosition.Store(sub.Position())
	}
}

// waitForIndex waits until the index knows every change of the registry that was committed
// before the call. It is asked before work is refused that
// nobody offers: the agent may have been registered a moment ago, or the process have
// begun. After a short patience it is errs.Unavailable.
func (o *Orchestrator) waitForIndex(ctx context.Context) error {
	const patience = 5 * time.Second
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		known, err := o.indexIsCurrent(ctx)
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

// indexIsCurrent reports whether no change of the registry is still to be read.
func (o *Orchestrator) indexIsCurrent(ctx context.Context) (bool, error) {
	if !o.waiters.isFilled() || o.registryStale.Load() != o.registryFresh.Load() {
		return false, nil
	}
	if o.opts.Feed == nil {
		return true, nil
	}
	read := o.registryPosition.Load()
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
