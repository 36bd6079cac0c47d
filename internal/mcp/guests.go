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
	maxSessions         = 10_000
	maxSessionsPerToken = 1_000
	sessionIdleTimeout  = time.Hour

	// tokenCheckInterval is how often it is looked whether the tokens are still accepted in whose
	// names something is open.
	tokenCheckInterval = time.Second
)

// tokenHash is the SHA-256 of a token's secret: who it is that comes in. A token that is given a
// new secret is somebody else, since it is the old one that may be in the wrong hands.
type tokenHash = [32]byte

// sessions are what is open for longer than a request: sessions and streams, by the secret in
// whose name. It counts them, and ends what is no longer in the name of anybody.
type sessions struct {
	*lifecycle.Loop
	revoked func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error)
	log     *slog.Logger

	// maxTotal is how many places there are, and each how many one secret may have of them.
	maxTotal, maxPerToken int

	mu      sync.Mutex
	used    int
	holders map[tokenHash]*holder
	byID    map[string]*openSession // by the id of the session
	stopped bool
	running sync.WaitGroup // one for each session, and for each that is being ended
}

// holder is what is open in the name of one secret.
type holder struct {
	slots    int
	sessions map[*openSession]bool
	streams  map[*slot]context.CancelFunc
}

// newSessions returns the places. lapsed says which of some secrets are no longer accepted.
func newSessions(lapsed func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error), log *slog.Logger) *sessions {
	g := &sessions{revoked: lapsed, log: log, maxTotal: maxSessions, maxPerToken: maxSessionsPerToken, holders: map[tokenHash]*holder{}, byID: map[string]*openSession{}}
	g.Loop = lifecycle.NewLoop(g.watchTokens)
	return g
}

// slot is one session or one stream of a guest.
type slot struct {
	table   *sessions
	token   tokenHash
	counted bool // against the limits, which the stream of a session does not

	// under of.mu
	released bool
	boundTo  *openSession // the session that has the place, while the request is under way that began it
}

// reserve takes a place for a session or a stream. It returns errs.LimitReached where the secret
// has as many as it may, and errs.Busy where there are no more.
func (g *sessions) reserve(s tokenHash) (*slot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.holders[s]
	switch {
	case who != nil && who.slots >= g.maxPerToken:
		return nil, errs.New(errs.LimitReached, "the token has %d sessions and streams open, which is as many as it may; end one, with DELETE or by closing it", who.slots)
	case g.used >= g.maxTotal:
		return nil, errs.New(errs.Busy, "the server has as many sessions as it may; try again in a minute")
	}
	return g.newSlot(s, true), nil
}

// newSlot gives a place; g.mu is held.
func (g *sessions) newSlot(s tokenHash, counts bool) *slot {
	who := g.holders[s]
	if who == nil {
		who = &holder{sessions: map[*openSession]bool{}, streams: map[*slot]context.CancelFunc{}}
		g.holders[s] = who
	}
	if counts {
		who.slots++
		g.used++
	}
	return &slot{table: g, token: s, counted: counts}
}

// release gives a place back. It may be called twice.
func (p *slot) release() {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.boundTo != nil {
		p.table.endRequest(p.boundTo)
		p.boundTo = nil
	}
	if p.released {
		return
	}
	p.released = true
	who := p.table.holders[p.token]
	if who == nil { // its stream was ended, and everything else of it
		return
	}
	delete(who.streams, p)
	if p.counted {
		who.slots--
		p.table.used--
	}
	p.table.removeIfEmpty(p.token)
}

// removeIfEmpty drops a guest of whom nothing is open; g.mu is held.
func (g *sessions) removeIfEmpty(s tokenHash) {
	if who := g.holders[s]; who.slots == 0 && len(who.sessions) == 0 && len(who.streams) == 0 {
		delete(g.holders, s)
	}
}

// cancelOnRevoke has cancel called when the secret is no longer accepted, until the place is left.
func (p *slot) cancelOnRevoke(cancel context.CancelFunc) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.table.holders[p.token].streams[p] = cancel
}

// addStream is a place for the stream of a session, which the session has already.
func (g *sessions) addStream(s tokenHash, cancel context.CancelFunc) *slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.newSlot(s, false)
	g.holders[s].streams[p] = cancel
	return p
}

// watchTokens ends what is open in the name of tokens that are no longer accepted, until ctx ends.
func (g *sessions) watchTokens(ctx context.Context) {
	tick := time.NewTicker(tokenCheckInterval)
	defer tick.Stop()
	said := false // that it cannot be seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		present := g.activeTokens()
		if len(present) == 0 {
			continue
		}
		gone, err := g.revoked(ctx, present)
		if err != nil && !said && ctx.Err() == nil {
			g.log.Warn("it cannot be seen whether the tokens of open sessions are still accepted", "error", err)
		}
		said = err != nil
		for _, s := range gone {
			g.endToken(s)
		}
	}
}

// activeTokens are the secrets in whose names something is open.
func (g *sessions) activeTokens() []tokenHash {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]tokenHash, 0, len(g.holders))
	for s, who := range g.holders {
		if len(who.sessions) > 0 || len(who.streams) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// endToken ends what is open in the name of a secret: streams at once, sessions when the calls
// under way in them are answered.
func (g *sessions) endToken(s tokenHash) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.holders[s]
	if who == nil || g.stopped {
		return
	}
	for p, cancel := range who.streams {
		cancel()
		delete(who.streams, p)
	}
	for session := range who.sessions {
		delete(who.sessions, session) // it keeps its place as long as it takes
		session.closing = true
		g.closeIfIdle(session)
	}
}

// drain ends everything. It may be called twice.
func (g *sessions) drain() {
	for _, s := range g.activeTokens() {
		g.endToken(s)
	}
}

// Stop implements lifecycle.Service: it waits for the sessions, which wait for their calls.
func (g *sessions) Stop(ctx context.Context) error {
	if err := g.Loop.Stop(ctx); err != nil {
		return err
	}
	g.drain()
	g.mu.Lock()
	if !g.stopped {
		for _, s := range g.byID { // nobody is left to hear the answers of those that have calls
			g.running.Go(func() { _ = s.sdk.Close() })
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
