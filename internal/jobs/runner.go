package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/store"
)

// maxClaim is how many jobs one transaction claims; claiming one at a time is many times slower.
const maxClaim = 50

// recurringKey is the key of the only job of a recurring kind.
const recurringKey = "recurring"

// Runner claims due jobs and runs them. It claims no more than it can run at once, so that no
// lease is spent waiting.
type Runner struct {
	store *store.Store
	opts  Options
	log   *slog.Logger
	kinds map[string]registration
	known []string // kinds with a handler, and those already reported to have none

	loop      *background.Loop
	workers   *semaphore.Weighted // the free workers
	running   sync.WaitGroup
	work      context.Context // context of the handlers, which Stop ends later than the loop's
	interrupt context.CancelFunc
}

type registration struct {
	handle   Handler
	policy   Policy
	interval time.Duration // 0 for a job that does not recur
}

// New returns a runner without handlers. It must be the only receiver of the store's JobsWritten.
func New(s *store.Store, opts *Options) *Runner {
	o := opts.orDefaults()
	r := &Runner{store: s, opts: o, log: o.Logger, kinds: map[string]registration{}, workers: semaphore.NewWeighted(int64(o.Workers))}
	r.loop = background.NewLoop(r.run)
	r.work, r.interrupt = context.WithCancel(context.Background())
	return r
}

// Handle registers the handler of a kind. Call it before Start, once per kind. Jobs of kinds
// without a handler are left alone.
func (r *Runner) Handle(kind string, h Handler, p Policy) {
	r.register(kind, registration{handle: h, policy: p})
}

// Every runs recurring work once across all replicas: at once after the very first start, then an
// interval after the start of each run that succeeded. A failure is retried like any other, at the latest after the interval.
// Work that takes longer than a lease continues with the next one. Call it before Start, once per kind.
func (r *Runner) Every(kind string, interval time.Duration, work func(context.Context) error) {
	r.register(kind, registration{
		handle:   func(ctx context.Context, _ *Job) error { return work(ctx) },
		policy:   Policy{Backoff: min(time.Second, interval), MaxBackoff: interval},
		interval: interval,
	})
}

func (r *Runner) register(kind string, reg registration) {
	if _, taken := r.kinds[kind]; taken {
		panic(fmt.Sprintf("jobs: the kind %q has two handlers", kind))
	}
	reg.policy.Backoff = cmp.Or(reg.policy.Backoff, time.Second)
	reg.policy.MaxBackoff = cmp.Or(reg.policy.MaxBackoff, time.Hour)
	r.kinds[kind] = reg
}

// Start implements background.Service. It creates missing recurring jobs and returns the store's
// error if that fails.
func (r *Runner) Start(ctx context.Context) error {
	err := r.store.Write(ctx, func(tx *store.Tx) error {
		for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
			if r.kinds[kind].interval == 0 {
				continue
			}
			if _, err := tx.Jobs().Enqueue(store.Job{Kind: kind, Key: recurringKey}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the recurring jobs: %w", err)
	}
	return r.loop.Start(ctx)
}

// Stop implements background.Service: it claims nothing more and lets running handlers finish
// until ctx is done. Then it ends their contexts and makes their jobs due at once for other
// replicas. It returns ctx's error if a handler did not return even then; its job is claimed
// again when its lease ends.
func (r *Runner) Stop(ctx context.Context) error {
	if r.loop.Stop(ctx) == nil {
		return nil
	}
	r.interrupt()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.Grace)
	defer cancel()
	if r.loop.Stop(grace) != nil {
		return ctx.Err()
	}
	return nil
}

func (r *Runner) run(ctx context.Context) {
	defer r.running.Wait()
	kinds := slices.Sorted(maps.Keys(r.kinds))
	r.known = slices.Clone(kinds)
	opts := background.PollOptions{Task: "claiming jobs", Logger: r.log, Signal: r.store.JobsWritten()}
	background.NewPollLoop(opts, func(ctx context.Context) (time.Duration, error) { return r.round(ctx, kinds) }).Run(ctx)
}

// round starts due jobs as far as workers are free, and returns how long there is nothing more to
// do. It only reads when nothing is due.
func (r *Runner) round(ctx context.Context, kinds []string) (time.Duration, error) {
	for {
		at, found, err := r.store.Jobs(ctx).NextAt(kinds)
		if err != nil {
			return 0, err
		}
		if !found {
			return r.opts.Poll, r.reportUnknown(ctx)
		}
		if early := at.Sub(r.store.Now()); early > 0 {
			return min(early, r.opts.Poll), r.reportUnknown(ctx)
		}
		free := r.acquire(ctx)
		if free == 0 {
			return 0, nil // stopping
		}
		claimed, err := r.claim(ctx, kinds, free)
		r.workers.Release(int64(free - len(claimed)))
		for _, j := range claimed {
			r.start(ctx, j)
		}
		if err != nil || len(claimed) == 0 { // another replica is claiming what is due
			return r.opts.Poll, err
		}
	}
}

// acquire waits for a free worker and takes as many as are free and a claim can use; 0 when ctx
// has ended.
func (r *Runner) acquire(ctx context.Context) int {
	if r.workers.Acquire(ctx, 1) != nil {
		return 0
	}
	n := 1
	for n < maxClaim && r.workers.TryAcquire(1) {
		n++
	}
	return n
}

func (r *Runner) claim(ctx context.Context, kinds []string, limit int) (out []store.Job, err error) {
	err = r.store.Write(ctx, func(tx *store.Tx) (err error) {
		out, err = tx.Jobs().Claim(kinds, limit, r.opts.Lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// reportUnknown logs a due kind without a handler, once per kind. A newer replica may know it.
func (r *Runner) reportUnknown(ctx context.Context) error {
	kind, found, err := r.store.Jobs(ctx).OtherDue(r.known)
	if err != nil || !found {
		return err
	}
	r.log.WarnContext(ctx, "a due job has no handler in this version; it is ignored", "kind", kind)
	r.known = append(r.known, kind)
	return nil
}

// start runs a claimed job, or releases it if the runner was stopped meanwhile.
func (r *Runner) start(ctx context.Context, j store.Job) {
	a := attempt{runner: r, registration: r.kinds[j.Kind], job: &Job{Job: j}}
	end := a.run
	if ctx.Err() != nil {
		end = a.release
	}
	r.running.Go(func() {
		defer r.workers.Release(1)
		err := end()
		switch {
		case errors.Is(err, store.ErrLeaseLost):
			r.log.Warn("a job took longer than its lease; another runner has claimed it", "kind", j.Kind, "job", j.ID)
		case err != nil:
			r.log.Error("a job's end was not stored; it runs again when its lease ends", "kind", j.Kind, "job", j.ID, "error", err)
		}
	})
}
