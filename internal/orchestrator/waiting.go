package orchestrator

import (
	"comet/internal/errs"
	"comet/internal/places"
)

// acquireWaiter returns what gives the place of a request that waits for a task back, or
// errs.Busy where there is none: each of them costs a goroutine and a look at the database
// now and then. A who of "" needs none.
func (o *Orchestrator) acquireWaiter(who string) (release func(), err error) {
	if who == "" {
		return func() {}, nil
	}
	release, room := o.waitLimit.Take(who)
	switch room {
	case places.Full:
		return nil, errs.New(errs.Busy, "%d requests wait for tasks already", o.opts.MaxWaiters)
	case places.FullForOne:
		return nil, errs.New(errs.Busy, "the token has %d requests that wait for tasks already", o.opts.MaxWaitersPerToken)
	}
	return release, nil
}
