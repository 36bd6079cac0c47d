// Package usage is the ledger: it records what agents spent and enforces what they may spend
// (CHE·NU §5). Every use of tokens is a fact that never changes; all other numbers are sums of
// facts, and Verify computes them again.
//
// A reservation asks for permission to spend. It holds tokens until it is settled with the real
// usage, is released, or expires. No interleaving of callers, in this process or in others on the
// same database, is granted more than the budget covers: a decision locks the account row of the
// agent and of each ancestor whose budget limits its subtree.
//
// # Time
//
// Windows are UTC days and hours. An account belongs to a day; the first decision on a later day
// resets its sums, while reserved tokens stay reserved over midnight and count against the new
// day. When a clock goes back, or another replica's clock is behind, the account's day continues,
// and a fact recorded then gets the day's first moment at the earliest. A day more than one day
// ahead was written by a wrong clock: the account returns to today with the sums of today's
// facts, and its warning may be sent a second time. A budget that is lowered below today's usage
// leaves nothing to reserve until the next day; facts are still recorded. Warnings are evaluated
// with each decision, so a lowered budget is noticed with the agent's next charge or reservation.
package usage

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/internal/background"
	"comet/models"
	"comet/store"
)

// Options configures New; nil means defaults.
type Options struct {
	// Poll is the interval of releasing expired reservations of other processes, default 1 s.
	Poll time.Duration
	// Retention is how long Purge keeps facts and ended reservations, default 400 days, at least 2.
	Retention time.Duration
	// OnChange is called after each commit with the accounts that have changed; it must not block. Nil is for none.
	OnChange func([]Change)
	// Logger receives failures to release expired reservations; default discards.
	Logger *slog.Logger
}

// Ledger keeps the accounts. It is safe for concurrent use. Start it to release expired
// reservations in the background; everything else works without it.
type Ledger struct {
	*background.Loop
	store     *store.Store
	log       *slog.Logger
	poll      time.Duration
	retention time.Duration
	group     *group
	onChange  func([]Change)
	*counters
}

// New returns a ledger over the store.
func New(s *store.Store, opts *Options) *Ledger {
	o := cmp.Or(opts, &Options{})
	l := &Ledger{
		store: s, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), poll: cmp.Or(o.Poll, time.Second),
		retention: max(cmp.Or(o.Retention, 400*day), 2*day), counters: newCounters(),
		onChange: o.OnChange,
	}
	l.group = newGroup(l.commit)
	l.Loop = background.NewLoop(background.NewPollLoop(background.PollOptions{Task: "freeing expired reservations", Logger: l.log}, l.expireDue).Run)
	return l
}

const day = 24 * time.Hour

// dayOf returns the UTC day of a time, in days since 1970.
func dayOf(t time.Time) int64 { return t.Unix() / 86400 }

func startOf(day int64) time.Time { return time.Unix(day*86400, 0).UTC() }

// expireDue releases expired reservations that no operation has released, and returns the time of
// the next check. It only reads if there are none.
func (l *Ledger) expireDue(ctx context.Context) (time.Duration, error) {
	for {
		due, held, err := l.store.Ledger(ctx).NextReservationDue()
		if err != nil || !held {
			return l.poll, err
		}
		if early := due.Sub(l.store.Now()); early > 0 {
			return min(early, l.poll), nil
		}
		if err := l.commit(ctx, nil); err != nil {
			return l.poll, err
		}
	}
}

// Purge deletes facts, windows, outcomes, ended reservations, resets and additional budgets of days
// before the retention, in batches. Call it periodically. A request_id ends with its fact.
func (l *Ledger) Purge(ctx context.Context) error {
	before := dayOf(l.store.Now().Add(-l.retention))
	if err := l.store.Write(ctx, func(tx *store.Tx) error { return tx.Ledger().ForgetBefore(before) }); err != nil {
		return err
	}
	return l.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Ledger().Purge(before, limit) })
}

// counters count what this process has recorded and granted, after the commit.
type counters struct {
	prometheus.Collector // of all of them

	facts, tokens, settled, granted, refused prometheus.Counter
}

func newCounters() *counters {
	registry := prometheus.NewRegistry()
	create := promauto.With(registry)
	reservations := create.NewCounterVec(prometheus.CounterOpts{
		Name: "comet_ledger_reservations_total", Help: "Reservations that were asked for, by whether they were granted or refused for a budget.",
	}, []string{"result"})
	return &counters{
		Collector: registry,
		facts:     create.NewCounter(prometheus.CounterOpts{Name: "comet_ledger_facts_total", Help: "Facts recorded, those of settlements among them."}),
		tokens:    create.NewCounter(prometheus.CounterOpts{Name: "comet_ledger_tokens_total", Help: "Tokens charged by them."}),
		settled:   create.NewCounter(prometheus.CounterOpts{Name: "comet_ledger_settlements_total", Help: "Reservations that were settled."}),
		granted:   reservations.WithLabelValues("granted"),
		refused:   reservations.WithLabelValues("refused"),
	}
}

// after updates the counters once the batch is committed.
func (c *counters) after(b *batch) {
	var tokens int64
	for _, f := range b.facts {
		tokens += f.Tokens
	}
	states := map[models.ReservationState]int{}
	for _, r := range b.ended {
		states[r.State]++
	}
	b.tx.After(func() {
		c.facts.Add(float64(len(b.facts)))
		c.tokens.Add(float64(tokens))
		c.settled.Add(float64(states[models.ReservationSettled]))
		c.granted.Add(float64(states[models.ReservationHeld]))
		c.refused.Add(float64(b.refused))
	})
}
