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
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
)

// batchSize is the number of buffered messages that starts a write at once. maxTransaction is the
// number that one transaction writes at most, because other writers wait for it.
const batchSize, maxTransaction = 200, 500

// Options configures New; nil is the zero value.
type Options struct {
	// FlushInterval is how long a message stays in the buffer at most, default 100 ms.
	FlushInterval time.Duration
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
	out := *cmp.Or(o, &Options{})
	out.FlushInterval = cmp.Or(out.FlushInterval, 100*time.Millisecond)
	out.ReadTimeout = cmp.Or(out.ReadTimeout, 10*time.Second)
	out.MaxBuffered = cmp.Or(out.MaxBuffered, 20_000)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// Log is the message log. It is safe for concurrent use.
type Log struct {
	*background.Batcher[Message]
	store            *store.Store
	opts             Options
	written, dropped prometheus.Counter
}

// New returns the log. Messages can be added before it is started; until then they are written
// only by a read.
func New(s *store.Store, opts *Options) *Log {
	l := &Log{store: s, opts: opts.orDefaults()}
	create := promauto.With(l.opts.Registerer)
	l.written = create.NewCounter(prometheus.CounterOpts{Name: "comet_v5_messages_logged_total", Help: "Messages of PROTOCOL_V5 that were written to the message log."})
	l.dropped = create.NewCounter(prometheus.CounterOpts{Name: "comet_v5_messages_dropped_total", Help: "Messages of PROTOCOL_V5 that were not written to the message log, because its buffer was full."})
	l.Batcher = background.NewBatcher(background.BatcherOptions{
		Task: "writing the message log", Logger: l.opts.Logger,
		Interval: l.opts.FlushInterval, Size: batchSize, MaxBatch: maxTransaction, MaxPending: l.opts.MaxBuffered,
	}, l.write)
	return l
}

// Add puts a message into the buffer. It does not wait: a message that finds the buffer full is
// dropped and counted.
func (l *Log) Add(m Message) {
	if !l.Batcher.Add(m) {
		l.dropped.Inc()
	}
}

// ByNumber returns the newest message with a number between O1 and a peer in a context
// (PROTOCOL_V5 §6.3: #MSG:M3), or errs.NotFound.
func (l *Log) ByNumber(ctx context.Context, contextID int64, peer string, number int) (Message, error) {
	l.flushForRead(ctx)
	return byNumber(ctx, l.store, numberKey{contextID, peer, number})
}

// ByTask returns up to limit messages about a task after the message with an id ("" for the
// first), in their order. For a subtask these are the messages about its root task at the depth
// of the subtask or deeper. A task without a short id has none.
func (l *Log) ByTask(ctx context.Context, t models.Task, after string, limit int) ([]Message, error) {
	depth := t.Depth
	for t.ParentID != nil {
		parent, err := l.store.Tasks(ctx).Get(*t.ParentID)
		if err != nil {
			return nil, err
		}
		t = parent
	}
	name, err := shortid.Find(ctx, l.store, t.ID)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.flushForRead(ctx)
	return byTask(ctx, l.store, name, min(depth, models.MaxTaskDepth), after, limit)
}

// flushForRead writes the buffer before a read. If that fails, the read continues: the log may
// lack its newest messages.
func (l *Log) flushForRead(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, l.opts.ReadTimeout)
	defer cancel()
	if err := l.Flush(limited); err != nil && ctx.Err() == nil {
		l.opts.Logger.Warn("the message log is read without the newest messages", "error", err)
	}
}

// write writes a batch in one transaction.
func (l *Log) write(ctx context.Context, batch []Message) (written int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	err = l.store.Write(ctx, func(tx *store.Tx) error { return writeMessages(tx, batch) })
	if err == nil {
		l.written.Add(float64(len(batch)))
	}
	return 0, err
}

// writeMessages writes a batch in the order of the messages. A pid is resolved to the newest
// message before it that has this number.
func writeMessages(tx *store.Tx, batch []Message) error {
	out := slices.Clone(batch) // a transaction may be run again
	slices.SortFunc(out, func(a, b Message) int { return strings.Compare(a.ID, b.ID) })
	var causes []numberKey
	for _, m := range out {
		if m.Parent != 0 {
			causes = append(causes, numberKey{m.Context, m.Peer, m.Parent})
		}
	}
	newest, err := newestByNumber(tx, causes)
	if err != nil {
		return err
	}
	for i := range out {
		m := &out[i]
		if m.Parent != 0 {
			m.ParentID = newest[numberKey{m.Context, m.Peer, m.Parent}]
		}
		newest[numberKey{m.Context, m.Peer, m.Number}] = m.ID
	}
	return insert(tx, out)
}
