package journal

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/models"
	"comet/store"
)

const (
	// maxWritten is how many lines one transaction writes, which keeps others waiting.
	maxWritten = 500
	// pause is after what time is tried again to write where that has failed.
	pause = time.Second
)

// run writes lines until ctx ends.
func (j *Journal) run(ctx context.Context) {
	next := time.NewTimer(j.opts.Every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.many:
		case <-next.C:
		}
		wait := j.opts.Every
		if err := j.Flush(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("lines that were said cannot be written, which is tried again", "error", err)
			wait = pause
		}
		next.Reset(wait)
	}
}

// Flush writes the lines that wait. Where that fails, or ctx ends before it is their turn,
// they go on waiting.
func (j *Journal) Flush(ctx context.Context) error {
	select {
	case j.writing <- struct{}{}:
		defer func() { <-j.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	j.mu.Lock()
	left := len(j.waiting) // those that come meanwhile are somebody else's
	j.mu.Unlock()
	for left > 0 {
		j.mu.Lock()
		batch := j.waiting[:min(left, maxWritten)]
		j.mu.Unlock()
		if err := j.store.Write(ctx, func(tx *store.Tx) error { return write(tx, batch) }); err != nil {
			return err
		}
		j.counts.kept.Add(float64(len(batch)))
		left -= len(batch)
		j.mu.Lock()
		if j.waiting = j.waiting[len(batch):]; len(j.waiting) == 0 {
			j.waiting = nil
		}
		j.mu.Unlock()
	}
	return nil
}

// write writes lines in the order in which they were said, with what their pid means: the
// newest line before them that was so numbered.
func write(tx *store.Tx, lines []models.LoggedMessage) error {
	out := slices.Clone(lines) // a transaction may be run again
	slices.SortFunc(out, func(a, b models.LoggedMessage) int { return strings.Compare(a.ID, b.ID) })
	var named []store.LineKey
	for _, l := range out {
		if l.Parent != 0 {
			named = append(named, store.LineKey{Context: l.Context, Peer: l.Peer, Number: l.Parent})
		}
	}
	newest, err := tx.LoggedMessagesByNumber(named)
	if err != nil {
		return err
	}
	for i := range out {
		l := &out[i]
		if l.Parent != 0 {
			l.ParentID = newest[store.LineKey{Context: l.Context, Peer: l.Peer, Number: l.Parent}]
		}
		newest[store.LineKey{Context: l.Context, Peer: l.Peer, Number: l.Number}] = l.ID
	}
	return tx.AddLoggedMessages(out)
}

// counts are what the journal shows.
type counts struct{ kept, lost prometheus.Counter }

func newCounts(to prometheus.Registerer) counts {
	if to == nil {
		to = prometheus.NewRegistry()
	}
	create := promauto.With(to)
	return counts{
		kept: create.NewCounter(prometheus.CounterOpts{Name: "comet_lines_kept_total", Help: "Lines of PROTOCOL_V5 that were written to the journal."}),
		lost: create.NewCounter(prometheus.CounterOpts{Name: "comet_lines_lost_total", Help: "Lines of PROTOCOL_V5 that were not kept, because too many waited to be."}),
	}
}
