// Package messagelog stores the messages of PROTOCOL_V5 conversations (§10), so that a client
// can list the messages about a task with the message that caused each, and so that a message
// can refer to an earlier one (§6.3, #MSG).
//
// Messages are many and small, and no request waits for them: they are written in batches, a
// moment after they were sent or received. A read through this package first writes what this
// process still buffers; where that fails, the read continues without the newest messages. What
// another replica buffers is visible when that replica has written it. A process that is killed
// loses its buffer: the last moment of the log, never the effect of a message, which was
// committed before.
package messagelog

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/models"
	"comet/store"
)

const (
	// maxTransaction is the number of messages that one transaction writes at most, because
	// other writers wait for it.
	maxTransaction = 500
	// retryDelay is the pause after a write that failed.
	retryDelay = time.Second
)

// Options configures New; nil is the zero value.
type Options struct {
	// FlushInterval is how long a message stays in the buffer at most, default 100 ms.
	FlushInterval time.Duration
	// BatchSize is the number of buffered messages that starts a write at once, default 200.
	BatchSize int
	// ReadTimeout is how long a read waits for the buffer to be written, default 10 s. After
	// that it reads without the newest messages.
	ReadTimeout time.Duration
	// MaxBuffered is the number of messages that the buffer holds, default 20,000; further
	// messages are dropped.
	MaxBuffered int
	// Registerer receives the metrics; default none does.
	Registerer prometheus.Registerer
	// Logger receives failed writes; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.FlushInterval <= 0 {
		out.FlushInterval = 100 * time.Millisecond
	}
	if out.BatchSize <= 0 {
		out.BatchSize = 200
	}
	if out.ReadTimeout <= 0 {
		out.ReadTimeout = 10 * time.Second
	}
	if out.MaxBuffered <= 0 {
		out.MaxBuffered = 20_000
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// Log is the message log. It is safe for concurrent use.
type Log struct {
	store   *store.Store
	opts    Options
	metrics metrics
	loop    *lifecycle.Loop

	// writing holds one element while a batch is written, so that messages are written in
	// their order.
	writing chan struct{}
	mu      sync.Mutex
	buffer  []models.LoggedMessage
	full    chan struct{} // receives an element when the buffer holds a batch
}

// New returns the log. Messages can be added before it is started; until then they are written
// only by a read.
func New(s *store.Store, opts *Options) *Log {
	l := &Log{store: s, opts: opts.orDefaults(), writing: make(chan struct{}, 1), full: make(chan struct{}, 1)}
	l.metrics = newMetrics(l.opts.Registerer)
	l.loop = lifecycle.NewLoop(l.run)
	return l
}

// Start implements lifecycle.Service.
func (l *Log) Start(ctx context.Context) error { return l.loop.Start(ctx) }

// Stop implements lifecycle.Service. It writes the buffer before it returns.
func (l *Log) Stop(ctx context.Context) error {
	if err := l.loop.Stop(ctx); err != nil {
		return err
	}
	return l.Flush(ctx)
}

// Add puts a message into the buffer. It does not wait: a message that finds the buffer full is
// dropped and counted.
func (l *Log) Add(m models.LoggedMessage) {
	l.mu.Lock()
	n := len(l.buffer)
	if n < l.opts.MaxBuffered {
		l.buffer = append(l.buffer, m)
	}
	l.mu.Unlock()
	switch {
	case n >= l.opts.MaxBuffered:
		l.metrics.dropped.Inc()
	case n+1 == l.opts.BatchSize:
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// ByNumber returns the newest message with a number between O1 and a peer in a context
// (PROTOCOL_V5 §6.3: #MSG:M3), or errs.NotFound.
func (l *Log) ByNumber(ctx context.Context, contextID int64, peer string, number int) (models.LoggedMessage, error) {
	l.flushForRead(ctx)
	return l.store.LoggedMessageByNumber(ctx, contextID, peer, number)
}

// ByTask returns up to limit messages about a task after the message with an id ("" for the
// first), in their order. For a subtask these are the messages about its root task at the depth
// of the subtask or deeper. A task without a short id has none.
func (l *Log) ByTask(ctx context.Context, t models.Task, after string, limit int) ([]models.LoggedMessage, error) {
	depth := t.Depth
	for t.ParentID != nil {
		parent, err := l.store.Task(ctx, *t.ParentID)
		if err != nil {
			return nil, err
		}
		t = parent
	}
	name, err := l.store.TaskShortID(ctx, t.ID)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.flushForRead(ctx)
	return l.store.LoggedMessages(ctx, models.LoggedMessageQuery{ShortID: name, Depth: min(depth, models.MaxTaskDepth), After: after, Limit: limit})
}

// flushForRead writes the buffer before a read. Where that fails the read goes on: the log may
// lack its newest messages.
func (l *Log) flushForRead(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, l.opts.ReadTimeout)
	defer cancel()
	if err := l.Flush(limited); err != nil && ctx.Err() == nil {
		l.opts.Logger.Warn("the message log is read without the newest messages", "error", err)
	}
}

// run writes the buffer at every interval and with every full batch until ctx ends.
func (l *Log) run(ctx context.Context) {
	timer := time.NewTimer(l.opts.FlushInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.full:
		case <-timer.C:
		}
		wait := l.opts.FlushInterval
		if err := l.Flush(ctx); err != nil && ctx.Err() == nil {
			l.opts.Logger.Warn("messages cannot be written to the message log; trying again", "error", err)
			wait = retryDelay
		}
		timer.Reset(wait)
	}
}

// Flush writes the messages that are in the buffer when it is called. Where that fails, or ctx
// ends before it is their turn, they stay in the buffer.
func (l *Log) Flush(ctx context.Context) error {
	select {
	case l.writing <- struct{}{}:
		defer func() { <-l.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	left := len(l.buffer)
	l.mu.Unlock()
	for left > 0 {
		l.mu.Lock()
		batch := l.buffer[:min(left, maxTransaction)]
		l.mu.Unlock()
		if err := l.store.Write(ctx, func(tx *store.Tx) error { return writeMessages(tx, batch) }); err != nil {
			return err
		}
		l.metrics.written.Add(float64(len(batch)))
		left -= len(batch)
		l.mu.Lock()
		if l.buffer = l.buffer[len(batch):]; len(l.buffer) == 0 {
			l.buffer = nil
		}
		l.mu.Unlock()
	}
	return nil
}

// writeMessages writes a batch in the order of the messages. A pid is resolved to the newest
// message before it that has this number.
func writeMessages(tx *store.Tx, batch []models.LoggedMessage) error {
	out := slices.Clone(batch) // a transaction may be run again
	slices.SortFunc(out, func(a, b models.LoggedMessage) int { return strings.Compare(a.ID, b.ID) })
	var causes []store.LineKey
	for _, m := range out {
		if m.Parent != 0 {
			causes = append(causes, store.LineKey{Context: m.Context, Peer: m.Peer, Number: m.Parent})
		}
	}
	newest, err := tx.LoggedMessagesByNumber(causes)
	if err != nil {
		return err
	}
	for i := range out {
		m := &out[i]
		if m.Parent != 0 {
			m.ParentID = newest[store.LineKey{Context: m.Context, Peer: m.Peer, Number: m.Parent}]
		}
		newest[store.LineKey{Context: m.Context, Peer: m.Peer, Number: m.Number}] = m.ID
	}
	return tx.AddLoggedMessages(out)
}

// metrics counts written and dropped messages.
type metrics struct{ written, dropped prometheus.Counter }

func newMetrics(registerer prometheus.Registerer) metrics {
	if registerer == nil {
		registerer = prometheus.NewRegistry()
	}
	create := promauto.With(registerer)
	return metrics{
		written: create.NewCounter(prometheus.CounterOpts{Name: "comet_v5_messages_logged_total", Help: "Messages of PROTOCOL_V5 that were written to the message log."}),
		dropped: create.NewCounter(prometheus.CounterOpts{Name: "comet_v5_messages_dropped_total", Help: "Messages of PROTOCOL_V5 that were not written to the message log, because its buffer was full."}),
	}
}
