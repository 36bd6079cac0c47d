package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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

// openSession is a session that has a place. The SDK throws away the answers to the calls that are
// under way in a session which it closes, so one is closed when there are none.
type openSession struct {
	sdk      *mcp.ServerSession
	inFlight int
	closing  bool
}

// bind gives the place to a session, which has it until it ends, however that comes about. A
// session whose client is gone already has one too.
func (p *slot) bind(session *mcp.ServerSession) {
	g := p.table
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return // it ends with the process
	}
	s := &openSession{sdk: session}
	held := g.newSlot(p.token, p.released)
	if !p.released {
		s.inFlight, p.boundTo = 1, s
	}
	p.released, held.counted = true, true // it is handed on
	who := g.holders[p.token]
	who.sessions[s] = true
	g.byID[session.ID()] = s
	g.running.Go(func() {
		_ = session.Wait()
		g.mu.Lock()
		delete(who.sessions, s)
		delete(g.byID, session.ID())
		g.mu.Unlock()
		held.release()
	})
}

// beginRequest notes that a request is under way in a session, until done is called.
func (g *sessions) beginRequest(id string) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.byID[id]
	if s == nil {
		return func() {}
	}
	s.inFlight++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.endRequest(s)
	}
}

// endRequest notes the end of a request; g.mu is held.
func (g *sessions) endRequest(s *openSession) {
	s.inFlight--
	g.closeIfIdle(s)
}

// closeIfIdle closes a session that is to end and in which no call is under way; g.mu is held.
func (g *sessions) closeIfIdle(s *openSession) {
	if s.closing && s.inFlight == 0 && !g.stopped {
		g.running.Go(func() { _ = s.sdk.Close() })
	}
}

// slotKey is under which the context of a session's first request has its place.
type slotKey struct{}

// serveLimited serves a request that may last or begin what lasts. A stream ends with the server, and
// when its token does; a call is answered.
func (d *Handler) serveLimited(w http.ResponseWriter, r *http.Request, next http.Handler) {
	who, _ := r.Context().Value(identityKey{}).(identity)
	listens := r.Header.Get("Mcp-Protocol-Version") >= statelessVersion && r.Header.Get("Mcp-Method") == "subscriptions/listen"
	switch {
	case r.Method == http.MethodGet:
		ctx, cancel := d.untilDrained(r.Context())
		defer cancel()
		defer d.sessions.addStream(who.token, cancel).release()
		r = r.WithContext(ctx)
	case r.Method == http.MethodPost && (listens || r.Header.Get("Mcp-Protocol-Version") < statelessVersion && r.Header.Get("Mcp-Session-Id") == ""):
		p, err := d.sessions.reserve(who.token)
		if err != nil {
			d.writeLimitReached(w, err)
			return
		}
		defer p.release()
		ctx, cancel := r.Context(), context.CancelFunc(func() {})
		if listens {
			ctx, cancel = d.untilDrained(ctx)
			p.cancelOnRevoke(cancel)
		}
		defer cancel()
		r = r.WithContext(context.WithValue(ctx, slotKey{}, p))
	case r.Method == http.MethodPost && r.Header.Get("Mcp-Protocol-Version") < statelessVersion:
		defer d.sessions.beginRequest(r.Header.Get("Mcp-Session-Id"))()
	}
	next.ServeHTTP(w, r)
}

// untilDrained is a context that ends with the server.
func (d *Handler) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.draining, cancel)
	return ctx, func() { stop(); cancel() }
}

// writeLimitReached answers a request for which there is no place.
func (d *Handler) writeLimitReached(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "60")
	var id any
	if a, ok := w.(*resultFilter); ok {
		id = a.id
	}
	writeHTTPError(w, http.StatusServiceUnavailable, id, errs.CodeOf(err), errs.From(err).Detail)
}

// bindSession gives a session the place that its first request has taken.
func bindSession(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if method != "initialize" || err != nil {
			return res, err
		}
		p, ok := ctx.Value(slotKey{}).(*slot)
		if session, is := req.GetSession().(*mcp.ServerSession); ok && is {
			p.bind(session)
		}
		return res, nil
	}
}
