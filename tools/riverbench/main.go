// Command riverbench runs jobs with River (github.com/riverqueue/river) on a PostgreSQL database and prints
// their rate. It is a separate module, so that comet does not depend on River; the benchmarks of
// package bench start it.
//
//	riverbench postgres://…
//
// It creates River's tables. Each line of the standard input, "pipeline|waiting CALLERS MILLISECONDS",
// is one measurement; its result is a line of JSON. In a pipeline the callers insert jobs one after
// the other and do not wait for them; the rate is that of completed jobs while they insert. A waiting
// caller inserts its next job when River has completed the one before.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	connections = 20 // of the pool, as many as comet's
	maxWorkers  = 1000
	// warmUp is the part of a pipeline after the first completed job and before the rate is taken:
	// River fetches every 100 ms.
	warmUp = 200 * time.Millisecond
	// drainTime limits the wait for the jobs of a measurement.
	drainTime = time.Minute
)

func main() {
	if err := run(os.Args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "riverbench:", err)
		os.Exit(1)
	}
}

// playbook is a job with the parameters of the tasks in the benchmarks of comet.
type playbook struct {
	Number    int64             `json:"number"`
	Playbook  string            `json:"playbook"`
	ExtraVars map[string]string `json:"extra_vars"`
}

// Kind implements river.JobArgs.
func (playbook) Kind() string { return "run_playbook" }

// worker does nothing, as the workers of comet's benchmarks do.
type worker struct {
	river.WorkerDefaults[playbook]
}

// Work implements river.Worker.
func (worker) Work(context.Context, *river.Job[playbook]) error { return nil }

// bench inserts jobs and counts those that River has completed.
type bench struct {
	client    *river.Client[pgx.Tx]
	number    atomic.Int64
	inserted  atomic.Int64
	completed atomic.Int64

	mu      sync.Mutex
	waiting map[int64]chan struct{} // by number of the job
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: %s postgres://…", args[0])
	}
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(args[1])
	if err != nil {
		return err
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{})
	b := &bench{waiting: map[int64]chan struct{}{}}
	if b.client, err = river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
	}); err != nil {
		return err
	}
	events, cancel := b.client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 1 << 16, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	if err := b.client.Start(ctx); err != nil {
		cancel()
		return err
	}
	var counting sync.WaitGroup
	counting.Go(func() {
		for event := range events {
			b.complete(event)
		}
	})
	for lines := bufio.NewScanner(in); err == nil && lines.Scan(); {
		err = b.answer(ctx, lines.Text(), out)
	}
	stopped := b.client.Stop(ctx)
	cancel()
	counting.Wait()
	if err == nil {
		err = stopped
	}
	return err
}

func (b *bench) complete(event *river.Event) {
	var args playbook
	if json.Unmarshal(event.Job.EncodedArgs, &args) != nil {
		return // no job of this program
	}
	b.completed.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if done := b.waiting[args.Number]; done != nil {
		close(done)
		delete(b.waiting, args.Number)
	}
}

// result is the result of a measurement.
type result struct {
	Rate float64 `json:"rate"` // jobs per second
	CPU  float64 `json:"cpu"`  // seconds of this process for each job
	// Took are the durations of waiting callers in nanoseconds, sorted.
	Took []time.Duration `json:"took"`
}

func (b *bench) answer(ctx context.Context, line string, out io.Writer) error {
	var mode string
	var callers, milliseconds int
	if _, err := fmt.Sscan(line, &mode, &callers, &milliseconds); err != nil || callers < 1 {
		return fmt.Errorf("%q is not “pipeline|waiting CALLERS MILLISECONDS”", line)
	}
	slice := time.Duration(milliseconds) * time.Millisecond
	measure := map[string]func(context.Context, int, time.Duration) (result, error){"pipeline": b.pipeline, "waiting": b.wait}[mode]
	if measure == nil {
		return fmt.Errorf("%q is no mode", mode)
	}
	r, err := measure(ctx, callers, slice)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// pipeline measures the rate of completed jobs while callers insert jobs.
func (b *bench) pipeline(ctx context.Context, callers int, slice time.Duration) (result, error) {
	var inserting sync.WaitGroup
	var ended atomic.Bool
	failures := make([]error, callers)
	for c := range callers {
		inserting.Go(func() {
			for !ended.Load() && failures[c] == nil {
				failures[c] = b.insert(ctx, b.number.Add(1))
			}
		})
	}
	first := b.completed.Load()
	for deadline := time.Now().Add(drainTime); b.completed.Load() == first && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	<-time.After(warmUp)
	start, cpu, before := time.Now(), processorTime(), b.completed.Load()
	<-time.After(slice)
	count, took := float64(b.completed.Load()-before), time.Since(start)
	cpu = processorTime() - cpu
	ended.Store(true)
	inserting.Wait()
	for _, err := range failures {
		if err != nil {
			return result{}, err
		}
	}
	if count == 0 {
		return result{}, fmt.Errorf("no job was completed in %s", took)
	}
	return result{Rate: count / took.Seconds(), CPU: cpu.Seconds() / count}, b.drain()
}

func (b *bench) insert(ctx context.Context, number int64) error {
	_, err := b.client.Insert(ctx, playbook{Number: number, Playbook: "deploy_kuma.yml", ExtraVars: map[string]string{"version": "1.4.0"}}, nil)
	if err == nil {
		b.inserted.Add(1)
	}
	return err
}

// drain waits until all jobs are completed.
func (b *bench) drain() error {
	for deadline := time.Now().Add(drainTime); b.completed.Load() < b.inserted.Load(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d jobs are not completed", b.inserted.Load()-b.completed.Load(), b.inserted.Load())
		}
		<-time.After(time.Millisecond)
	}
	return nil
}

// wait measures callers that wait for each of their jobs.
func (b *bench) wait(ctx context.Context, callers int, slice time.Duration) (result, error) {
	var running sync.WaitGroup
	failures, took := make([]error, callers), make([][]time.Duration, callers)
	start, cpu := time.Now(), processorTime()
	end := start.Add(slice)
	for c := range callers {
		running.Go(func() {
			for time.Now().Before(end) && failures[c] == nil {
				begun := time.Now()
				failures[c] = b.roundTrip(ctx)
				took[c] = append(took[c], time.Since(begun))
			}
		})
	}
	running.Wait()
	total := time.Since(start)
	cpu = processorTime() - cpu
	for _, err := range failures {
		if err != nil {
			return result{}, err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return result{Rate: float64(len(all)) / total.Seconds(), CPU: cpu.Seconds() / float64(len(all)), Took: all}, nil
}

func (b *bench) roundTrip(ctx context.Context) error {
	number, done := b.number.Add(1), make(chan struct{})
	b.mu.Lock()
	b.waiting[number] = done
	b.mu.Unlock()
	if err := b.insert(ctx, number); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(drainTime):
		return fmt.Errorf("the job %d is not completed in %s", number, drainTime)
	}
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
