// Package lifecycle starts and stops the parts of the program in order. Every
// goroutine has an owner: a Service starts without blocking, stops once its
// goroutines have ended, and either call may be repeated.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Service is a part of the program that runs in the background.
type Service interface {
	// Start begins the work and returns at once. A second call does nothing.
	Start(ctx context.Context) error
	// Stop ends the work and returns when it has ended or ctx is done. A second
	// call waits for the first.
	Stop(ctx context.Context) error
}

// Loop runs one function in one goroutine; it is the usual way to be a Service.
// The zero value is not useful, make one with NewLoop.
type Loop struct {
	run func(ctx context.Context)

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// NewLoop returns a Loop around run, which must return soon after its context ends.
func NewLoop(run func(ctx context.Context)) *Loop { return &Loop{run: run} }

// Start implements Service. The context passed to the function is not tied to
// ctx; only Stop ends it.
func (l *Loop) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done != nil {
		return nil
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	l.cancel, l.done = cancel, done
	go func() {
		defer close(done)
		l.run(runCtx)
	}()
	return nil
}

// Stop implements Service.
func (l *Loop) Stop(ctx context.Context) error {
	l.mu.Lock()
	cancel, done := l.cancel, l.done
	l.mu.Unlock()
	if done == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	// Others may have used up the time. The function has only just been told, and ends
	// soon if it is waiting for nothing.
	soon := time.NewTimer(lastMoment)
	defer soon.Stop()
	select {
	case <-done:
		return nil
	case <-soon.C:
		return ctx.Err()
	}
}

// lastMoment is what Loop.Stop waits for at least.
const lastMoment = time.Second

// Group starts services in the order they were added and stops them in the
// reverse order.
type Group struct {
	mu      sync.Mutex
	members []member
	started int
}

type member struct {
	name    string
	service Service
}

// Add appends a service. It must not be called after Start.
func (g *Group) Add(name string, s Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, member{name, s})
}

// Start starts every service; when one fails, those already started are stopped
// and the error names it.
func (g *Group) Start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.started < len(g.members) {
		m := g.members[g.started]
		if err := m.service.Start(ctx); err != nil {
			return errors.Join(fmt.Errorf("start %s: %w", m.name, err), g.stop(ctx))
		}
		g.started++
	}
	return nil
}

// Stop stops every started service, last first, and joins their errors.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop(ctx)
}

func (g *Group) stop(ctx context.Context) error {
	var errs []error
	for g.started > 0 {
		g.started--
		m := g.members[g.started]
		if err := m.service.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}
