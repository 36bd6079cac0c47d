// Package background has the parts of work that runs beside requests: services with an ordered
// start and stop, loops that poll, batches, limits and process groups. Every goroutine has an owner,
// which waits for its end.
package background

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
	// Stop ends the work and returns when it has ended or ctx is done. A second call waits for
	// the first.
	Stop(ctx context.Context) error
}

// Loop is a Service that runs one function in one goroutine.
type Loop struct {
	run func(ctx context.Context)

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
}

// NewLoop returns a Loop around run, which must return soon after its context ends.
func NewLoop(run func(ctx context.Context)) *Loop { return &Loop{run: run} }

// Start implements Service. Only Stop ends the context of the function, the end of ctx does not.
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

// minStopTime is the minimum time that Group.Stop gives each service, even if the services that stopped
// before it have used up the time of the context.
const minStopTime = time.Second

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
		return ctx.Err()
	}
}

// Group starts services in the order they were added and stops them in the reverse order.
type Group struct {
	mu      sync.Mutex
	members []member
	started int
}

type member struct {
	name    string
	service Service
}

func (m member) stop(ctx context.Context) error {
	if end, limited := ctx.Deadline(); limited && time.Until(end) < minStopTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), minStopTime)
		defer cancel()
	}
	if err := m.service.Stop(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", m.name, err)
	}
	return nil
}

// Add appends a service. It must not be called after Start.
func (g *Group) Add(name string, s Service) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, member{name, s})
}

// Start starts every service. If one fails, it stops those that were started, and the error names
// the service.
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
		errs = append(errs, g.members[g.started].stop(ctx))
	}
	return errors.Join(errs...)
}
