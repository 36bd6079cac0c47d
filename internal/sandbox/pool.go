package sandbox

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// keepWarm keeps one child ready, which whoever comes first takes, until the sandbox stops.
// One that dies before is replaced. Nobody's first run is waited for: a server that runs no
// code has no children.
func (s *Sandbox) keepWarm(ctx context.Context) {
	select {
	case <-s.wanted:
	case <-ctx.Done():
		return
	}
	patience := backoff.NewExponentialBackOff()
	patience.MaxInterval = time.Minute
	for ctx.Err() == nil {
		p, err := s.start(ctx)
		if err == nil && s.offer(ctx, p) {
			patience.Reset()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Error("sandbox: no child could be made ready", "error", err)
		} else {
			s.log.Warn("sandbox: a child died before it was needed", "why", p.cmd.ProcessState.String(), "stderr", p.stderr.String())
		}
		pause := time.NewTimer(patience.NextBackOff())
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// offer waits until somebody takes the child, and reports whether somebody did.
func (s *Sandbox) offer(ctx context.Context, p *process) bool {
	select {
	case s.warm <- p:
		return true
	case <-p.exited:
	case <-ctx.Done():
	}
	s.retire(p)
	return false
}

// child hands out a child that is ready, or starts one.
func (s *Sandbox) child(ctx context.Context) (p *process, warm bool, err error) {
	select {
	case p = <-s.warm:
		return p, true, nil
	default:
	}
	p, err = s.start(ctx)
	return p, false, err
}

// place waits for one of the places for runs, for as long as the run may take at most.
func (s *Sandbox) place(ctx context.Context, patience time.Duration) (leave func(), err error) {
	leave = func() { <-s.places }
	select {
	case s.places <- struct{}{}:
		return leave, nil
	default:
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case s.places <- struct{}{}:
		return leave, nil
	case <-limit.C:
		return nil, &Failure{Name: Busy, Message: "too much code runs already, and no place became free in time"}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
