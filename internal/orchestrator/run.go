package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const (
	// maxServed is how many tasks of a line are given away in one transaction.
	maxServed = 32
	// overlap is how far back changes of workers are read again: clocks of replicas
	// differ, and a commit may come later than the time in its rows.
	overlap = 10 * time.Second
	// refill is how often the registered agents are read again as a whole, for what no
	// event has told.
	refill = time.Minute
)

// run keeps the index, serves the lines and notices who falls silent, until ctx ends.
func (o *Orchestrator) run(ctx context.Context) {
	line, stop := o.hub.listen(WakeLine, "")
	defer stop()
	tick := time.NewTicker(o.opts.Poll)
	defer tick.Stop()
	var filled time.Time
	for due := true; ctx.Err() == nil; {
		if want := o.stale.Load(); want != o.fresh.Load() || time.Since(filled) >= refill {
			if o.report(ctx, "reading the agents", o.fill(ctx)) {
				o.fresh.Store(want)
				filled = time.Now()
			}
		}
		if o.behind.Swap(false) || due {
			o.report(ctx, "following the workers", o.refresh(ctx))
			o.report(ctx, "looking for silent workers", o.silence(ctx))
			o.report(ctx, "closing idle sessions", o.closeIdle(ctx))
		}
		o.report(ctx, "serving the lines", o.serve(ctx))
		select {
		case <-ctx.Done():
		case <-line:
			due = false
		case <-tick.C:
			due = true
		}
	}
}

// report logs an error that is not that of being stopped, and tells whether there was
// none.
func (o *Orchestrator) report(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil {
		o.log.WarnContext(ctx, what+" failed and is tried again", "error", err)
	}
	return err == nil
}

// maxPassed is how many tasks that only a budget keeps from being done are passed over
// for those behind them.
const maxPassed = 16

// next gives the first task of a line to somebody; more tells whether it is worth
// looking again. One whose budget those who are free do not cover does not hold up the
// line.
func (s *step) next(route string) (more bool, err error) {
	var passed []string
	for len(passed) <= maxPassed {
		t, found, err := s.tx.NextQueuedTask(route, passed...)
		if err != nil || !found {
			return false, err
		}
		s.overBudget = false
		more, err := s.offer(route, t)
		if err != nil || more || !s.overBudget {
			return more, err
		}
		passed = append(passed, t.ID)
	}
	return false, nil
}

// offer gives a task that waits to somebody, and reports whether it waits no more.
func (s *step) offer(route string, t models.Task) (bool, error) {
	in, p, err := s.lastTerms(t)
	if err != nil {
		return false, err
	}
	siblings, err := s.siblingAgents(t, in)
	if err != nil {
		return false, err
	}
	needs := request(t.Depth, in, p, siblings)
	s.lines.needs.Add(route, needs)
	if !free(s.index.Select(needs).Verdict) {
		return false, nil // nothing has changed for it
	}
	before := t
	exclude, err := s.excluded(t, p)
	if err != nil {
		return false, err
	}
	failure, err := s.place(&t, in, p, exclude)
	if err == nil && failure == "" && t.WaitingFor == models.WaitForWorker && len(exclude) > 0 { // nobody behind it shall wait for its preference
		failure, err = s.place(&t, in, p, nil)
	}
	if err == nil && failure != "" {
		err = s.fail(&t, failure, why(failure))
	}
	if err != nil || t.WaitingFor == models.WaitForWorker {
		return false, err
	}
	return true, s.save(before, &t)
}

// silence takes workers off the line that have shown no sign of life for too long. What
// they have goes on until its own deadline.
func (o *Orchestrator) silence(ctx context.Context) error {
	before := o.store.Now().Add(-o.opts.Silence)
	if before.Before(time.UnixMicro(o.started.Load())) {
		return nil // while nobody was here to hear them, they were not silent
	}
	ids, err := o.store.SilentWorkers(ctx, before, 100)
	for _, id := range ids {
		if err != nil {
			break
		}
		err = o.do(ctx, func(s *step) error {
			w, err := s.tx.Worker(id)
			if errs.Is(err, errs.NotFound) || err == nil && (w.State == models.WorkerOffline || !w.LastSeenAt.Before(before)) {
				return nil
			}
			if err != nil {
				return err
			}
			was := w.State
			w.State = models.WorkerOffline
			return s.saveWorker(&w, was)
		})
	}
	return err
}
