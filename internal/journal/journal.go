// Package journal keeps the lines of PROTOCOL_V5 that were said (§10), so that it can be
// seen who said what about a task and because of what, and a line can refer to one before
// (§6.3, #MSG).
//
// Lines are many and small, and nobody waits for them: they are written together, a moment
// after they were said. Whoever reads here has those that this process still holds written
// first, and so finds what was said to it a moment ago; where that cannot be done, it finds
// what was written before. What another replica still holds is found when it has written
// it. A process that is killed loses what it still held: that is the trace of the last
// moment, and never an effect, which was committed before.
package journal

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/lifecycle"
	"comet/models"
	"comet/store"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Every is how long a line waits to be written at most, default 100 ms. Batch is how
	// many are written without waiting for that, default 200.
	Every time.Duration
	Batch int
	// Patience is how long who reads waits for what was said last to be written, default
	// 10 s. After that he reads without it.
	Patience time.Duration
	// MaxWaiting is how many lines may wait, default 20,000; further ones are lost.
	MaxWaiting int
	// Registerer takes the metrics; default none does.
	Registerer prometheus.Registerer
	// Logger hears of lines that cannot be written; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Every <= 0 {
		out.Every = 100 * time.Millisecond
	}
	if out.Batch <= 0 {
		out.Batch = 200
	}
	if out.Patience <= 0 {
		out.Patience = 10 * time.Second
	}
	if out.MaxWaiting <= 0 {
		out.MaxWaiting = 20_000
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// Journal is safe for concurrent use.
type Journal struct {
	store  *store.Store
	opts   Options
	log    *slog.Logger
	counts counts
	loop   *lifecycle.Loop

	// writing has one from who writes, so that lines are written in the order in which they
	// came.
	writing chan struct{}
	mu      sync.Mutex
	waiting []models.LoggedMessage
	many    chan struct{} // has one when a batch is there
}

// New returns the journal. Lines can be added before it is started; without that they are
// written only when somebody reads.
func New(s *store.Store, opts *Options) *Journal {
	j := &Journal{store: s, opts: opts.orDefaults(), writing: make(chan struct{}, 1), many: make(chan struct{}, 1)}
	j.log, j.counts = j.opts.Logger, newCounts(j.opts.Registerer)
	j.loop = lifecycle.NewLoop(j.run)
	return j
}

// Start implements lifecycle.Service.
func (j *Journal) Start(ctx context.Context) error { return j.loop.Start(ctx) }

// Stop implements lifecycle.Service: what waits is written first.
func (j *Journal) Stop(ctx context.Context) error {
	if err := j.loop.Stop(ctx); err != nil {
		return err
	}
	return j.Flush(ctx)
}

// Add has a line written soon. It does not wait: where too many wait already the line is
// lost, which is counted.
func (j *Journal) Add(l models.LoggedMessage) {
	j.mu.Lock()
	n := len(j.waiting)
	if n < j.opts.MaxWaiting {
		j.waiting = append(j.waiting, l)
	}
	j.mu.Unlock()
	switch {
	case n >= j.opts.MaxWaiting:
		j.counts.lost.Inc()
	case n+1 == j.opts.Batch:
		select {
		case j.many <- struct{}{}:
		default:
		}
	}
}
