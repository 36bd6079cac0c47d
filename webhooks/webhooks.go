// Package webhooks delivers events to HTTP endpoints (CHE·NU §9), signed as Standard Webhooks
// 1.0. A delivery is a row that is written in the transaction that numbers its event, so every
// committed event is delivered at least once, whatever fails in between.
package webhooks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/models"
	"comet/store"
)

// Webhooks stores subscriptions and delivers events. It is safe for concurrent use.
type Webhooks struct {
	store  *store.Store
	opts   Options
	sender *sender
	// owner names this process in leases.
	owner string
	lease time.Duration

	// attempts limits the attempts in flight.
	attempts *semaphore.Weighted
	// subscribed caches the types of events that are delivered.
	subscribed atomic.Pointer[subscribed]

	loop      *background.Loop
	poll      *background.PollLoop
	work      context.Context // context of the attempts, which Stop ends later than the loop's
	interrupt context.CancelFunc

	mu      sync.Mutex
	workers map[string]*worker // by the id of their webhook
	running sync.WaitGroup
}

// subscribed is a result of Types. It is valid while changes equals store.WebhookChanges.
type subscribed struct {
	changes int64
	types   []models.EventType
}

// New returns the webhooks of a store. It must be the only receiver of the store's
// DeliveriesWritten. Without Start only tests are delivered.
func New(s *store.Store, opts *Options) *Webhooks {
	o := opts.orDefaults()
	w := &Webhooks{
		store: s, opts: o, owner: s.Process(),
		sender: newSender(o),
		// An attempt starts only if it ends well before the lease does.
		lease:    max(time.Minute, 4*o.Timeout),
		attempts: semaphore.NewWeighted(int64(o.MaxAttempts)),
		workers:  map[string]*worker{},
	}
	w.poll = background.NewPollLoop(background.PollOptions{Task: "looking for due deliveries", Logger: o.Logger, Signal: s.DeliveriesWritten()}, w.look)
	w.loop = background.NewLoop(func(ctx context.Context) {
		defer w.running.Wait()
		w.poll.Run(ctx)
	})
	w.work, w.interrupt = context.WithCancel(context.Background())
	return w
}

// Start implements background.Service.
func (w *Webhooks) Start(ctx context.Context) error { return w.loop.Start(ctx) }

// Stop implements background.Service: it starts nothing more and lets attempts in flight end until
// ctx is done, then cancels them, which counts as no attempt. Finished attempts are stored; all
// others are due for other replicas. It returns ctx's error if even that took too long.
func (w *Webhooks) Stop(ctx context.Context) error {
	defer w.sender.close()
	err := w.loop.Stop(ctx)
	if err == nil {
		return nil
	}
	w.interrupt()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.opts.Grace)
	defer cancel()
	if w.loop.Stop(grace) != nil {
		return errors.Join(err, errors.New("a delivery's end was not stored; it is made again"))
	}
	return nil
}
