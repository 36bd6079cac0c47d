package transport

import (
	"net/netip"

	"golang.org/x/sync/semaphore"

	"comet/internal/background"
)

// origin is where a connection comes from. remote reports that it is another machine.
type origin struct {
	remote bool
	prefix netip.Prefix
}

// maxPerRemotePrefix limits the unauthenticated connections from one subscriber on another machine.
const maxPerRemotePrefix = 8

// anonymousLimiter limits the connections whose agent is not known yet. They cost an attacker
// nothing, so each remote address gets only a few, and all of them together leave some for this
// machine.
type anonymousLimiter struct {
	all    *semaphore.Weighted
	remote *background.Limiter[netip.Prefix]
}

func newAnonymousLimiter(limit int) *anonymousLimiter {
	return &anonymousLimiter{all: semaphore.NewWeighted(int64(limit)), remote: background.NewLimiter[netip.Prefix](limit-limit/4, maxPerRemotePrefix)}
}

// acquire counts a connection until release is called, which is nil if there are too many.
func (l *anonymousLimiter) acquire(from origin) (release func()) {
	if !l.all.TryAcquire(1) {
		return nil
	}
	releaseAny := func() { l.all.Release(1) }
	if !from.remote {
		return releaseAny
	}
	releaseRemote, err := l.remote.Acquire(from.prefix)
	if err != nil {
		releaseAny()
		return nil
	}
	return func() {
		releaseRemote()
		releaseAny()
	}
}
