// Package webhooks delivers events to HTTP endpoints (CHE·NU §9), signed as Standard Webhooks
// 1.0. A delivery is a row that is written in the transaction that numbers its event, so every
// committed event is delivered at least once, whatever fails in between.
package webhooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"comet/internal/lifecycle"
	"comet/store"
)

// Webhooks stores subscriptions and, once started, delivers events. It is safe for concurrent
// use.
type Webhooks struct {
	store  *store.Store
	opts   Options
	sender *sender
	// owner names this replica in leases.
	owner string
	lease time.Duration

	// slots holds a value for each attempt in flight.
	slots chan struct{}

	loop      *lifecycle.Loop
	work      context.Context // context of the attempts, which Stop ends later than the loop's
	interrupt context.CancelFunc

	starting sync.Mutex
	started  bool

	mu      sync.Mutex
	workers map[string]*worker // by the id of their webhook
	running sync.WaitGroup
	ended   chan struct{} // receives when a worker has ended
}

// New returns the webhooks of a store. It must be the only receiver of the store's
// DeliveriesWritten. Without Start only tests are delivered.
func New(s *store.Store, opts *Options) *Webhooks {
	o := opts.orDefaults()
	w := &Webhooks{
		store: s, opts: o, owner: uuid.NewString(),
		sender: newSender(senderOptions{Timeout: o.Timeout, Guard: o.Guard, UserAgent: o.UserAgent}),
		// An attempt starts only if it ends well before the lease does.
		lease:   max(time.Minute, 4*o.Timeout),
		slots:   make(chan struct{}, o.MaxAttempts),
		workers: map[string]*worker{}, ended: make(chan struct{}, 1),
	}
	w.loop = lifecycle.NewLoop(w.dispatch)
	w.work, w.interrupt = context.WithCancel(context.Background())
	return w
}

// Start implements lifecycle.Service. It returns the store's error if the leases of an earlier
// process cannot be released.
func (w *Webhooks) Start(ctx context.Context) error {
	w.starting.Lock()
	defer w.starting.Unlock()
	if !w.started && w.store.Database() == "sqlite" {
		// No other process has the database open, so all leases are of ended processes.
		if err := w.store.Write(ctx, func(tx *store.Tx) error { return tx.ReleaseWebhooks() }); err != nil {
			return err
		}
	}
	w.started = true
	return w.loop.Start(ctx)
}

// Stop implements lifecycle.Service: it starts nothing more and lets attempts in flight end until
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
