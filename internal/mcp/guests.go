package mcp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
)

const (
	// maxSessions is how many sessions of the older revisions there may be, and streams of
	// subscriptions/listen, which is what the newest has in their place; maxOfToken is how
	// many of them one token may hold, so that none takes all. sessionIdle is how long a
	// session may be silent.
	maxSessions = 10_000
	maxOfToken  = 1_000
	sessionIdle = time.Hour

	// attendEvery is how often it is looked whether the tokens are still accepted in whose
	// names something is open.
	attendEvery = time.Second
)

// secret is the SHA-256 of a token's secret: who it is that comes in. A token that is given a
// new secret is somebody else, since it is the old one that may be in the wrong hands.
type secret = [32]byte

// guests are what is open for longer than a request: sessions and streams, by the secret in
// whose name. It counts them, and ends what is no longer in the name of anybody.
type guests struct {
	*lifecycle.Loop
	lapsed func(ctx context.Context, secrets []secret) ([]secret, error)
	log    *slog.Logger

	// most is how many places there are, and each how many one secret may have of them.
	most, each int

	mu       sync.Mutex
	taken    int
	by       map[secret]*guest
	sittings map[string]*sitting // by the id of the session
	stopped  bool
	running  sync.WaitGroup // one for each session, and for each that is being ended
}

// guest is what is open in the name of one secret.
type guest struct {
	places   int
	sessions map[*sitting]bool
	streams  map[*place]context.CancelFunc
}

// newGuests returns the places. lapsed says which of some secrets are no longer accepted.
func newGuests(lapsed func(ctx context.Context, secrets []secret) ([]secret, error), log *slog.Logger) *guests {
	g := &guests{lapsed: lapsed, log: log, most: maxSessions, each: maxOfToken, by: map[secret]*guest{}, sittings: map[string]*sitting{}}
	g.Loop = lifecycle.NewLoop(g.attend)
	return g
}

// place is one session or one stream of a guest.
type place struct {
	of     *guests
	secret secret
	counts bool // against the limits, which the stream of a session does not

	// under of.mu
	left   bool
	handed *sitting // the session that has the place, while the request is under way that began it
}

// enter takes a place for a session or a stream. It returns errs.LimitReached where the secret
// has as many as it may, and errs.Busy where there are no more.
func (g *guests) enter(s secret) (*place, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.by[s]
	switch {
	case who != nil && who.places >= g.each:
		return nil, errs.New(errs.LimitReached, "the token has %d sessions and streams open, which is as many as it may; end one, with DELETE or by closing it", who.places)
	case g.taken >= g.most:
		return nil, errs.New(errs.Busy, "the server has as many sessions as it may; try again in a minute")
	}
	return g.take(s, true), nil
}

// take gives a place; g.mu is held.
func (g *guests) take(s secret, counts bool) *place {
	who := g.by[s]
	if who == nil {
		who = &guest{sessions: map[*sitting]bool{}, streams: map[*place]context.CancelFunc{}}
		g.by[s] = who
	}
	if counts {
		who.places++
		g.taken++
	}
	return &place{of: g, secret: s, counts: counts}
}

// leave gives a place back. It may be called twice.
func (p *place) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.handed != nil {
		p.of.answered(p.handed)
		p.handed = nil
	}
	if p.left {
		return
	}
	p.left = true
	who := p.of.by[p.secret]
	if who == nil { // its stream was ended, and everything else of it
		return
	}
	delete(who.streams, p)
	if p.counts {
		who.places--
		p.of.taken--
	}
	p.of.forget(p.secret)
}

// forget drops a guest of whom nothing is open; g.mu is held.
func (g *guests) forget(s secret) {
	if who := g.by[s]; who.places == 0 && len(who.sessions) == 0 && len(who.streams) == 0 {
		delete(g.by, s)
	}
}

// listen has cancel called when the secret is no longer accepted, until the place is left.
func (p *place) listen(cancel context.CancelFunc) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.by[p.secret].streams[p] = cancel
}

// stream is a place for the stream of a session, which the session has already.
func (g *guests) stream(s secret, cancel context.CancelFunc) *place {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.take(s, false)
	g.by[s].streams[p] = cancel
	return p
}

// attend ends what is open in the name of tokens that are no longer accepted, until ctx ends.
func (g *guests) attend(ctx context.Context) {
	tick := time.NewTicker(attendEvery)
	defer tick.Stop()
	said := false // that it cannot be seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		present := g.present()
		if len(present) == 0 {
			continue
		}
		gone, err := g.lapsed(ctx, present)
		if err != nil && !said && ctx.Err() == nil {
			g.log.Warn("it cannot be seen whether the tokens of open sessions are still accepted", "error", err)
		}
		said = err != nil
		for _, s := range gone {
			g.end(s)
		}
	}
}

// present are the secrets in whose names something is open.
func (g *guests) present() []secret {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]secret, 0, len(g.by))
	for s, who := range g.by {
		if len(who.sessions) > 0 || len(who.streams) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// end ends what is open in the name of a secret: streams at once, sessions when the calls
// under way in them are answered.
func (g *guests) end(s secret) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.by[s]
	if who == nil || g.stopped {
		return
	}
	for p, cancel := range who.streams {
		cancel()
		delete(who.streams, p)
	}
	for session := range who.sessions {
		delete(who.sessions, session) // it keeps its place as long as it takes
		session.ending = true
		g.closeIdle(session)
	}
}

// drain ends everything. It may be called twice.
func (g *guests) drain() {
	for _, s := range g.present() {
		g.end(s)
	}
}

// Stop implements lifecycle.Service: it waits for the sessions, which wait for their calls.
func (g *guests) Stop(ctx context.Context) error {
	if err := g.Loop.Stop(ctx); err != nil {
		return err
	}
	g.drain()
	g.mu.Lock()
	if !g.stopped {
		for _, s := range g.sittings { // nobody is left to hear the answers of those that have calls
			g.running.Go(func() { _ = s.session.Close() })
		}
	}
	g.stopped = true
	g.mu.Unlock()
	ended := make(chan struct{})
	go func() { g.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
