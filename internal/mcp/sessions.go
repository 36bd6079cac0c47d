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
	// maxSessions limits the sessions of older protocol versions plus the subscriptions/listen
	// streams of the newest one. maxSessionsPerToken limits those of one token. sessionIdleTimeout
	// ends a session without requests.
	maxSessions         = 10_000
	maxSessionsPerToken = 1_000
	sessionIdleTimeout  = time.Hour

	// tokenCheckInterval is the interval for checking the tokens of open sessions and streams.
	tokenCheckInterval = time.Second
)

// tokenHash is the SHA-256 of a token's secret. A token with a new secret counts as another token,
// because the old secret may be compromised.
type tokenHash = [32]byte

// sessions limits and tracks sessions and streams by token. It ends those whose token is no longer
// accepted.
type sessions struct {
	*lifecycle.Loop
	revoked func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error)
	log     *slog.Logger

	// maxTotal limits the slots of all tokens, maxPerToken those of one token.
	maxTotal, maxPerToken int

	mu      sync.Mutex
	used    int
	holders map[tokenHash]*holder
	byID    map[string]*openSession // by session id
	stopped bool
	running sync.WaitGroup // sessions and their closing
}

// holder has the sessions and streams of one token.
type holder struct {
	slots    int
	sessions map[*openSession]bool
	streams  map[*slot]context.CancelFunc
}

// newSessions returns an empty table. revoked returns those of the tokens that are no longer
// accepted.
func newSessions(lapsed func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error), log *slog.Logger) *sessions {
	g := &sessions{revoked: lapsed, log: log, maxTotal: maxSessions, maxPerToken: maxSessionsPerToken, holders: map[tokenHash]*holder{}, byID: map[string]*openSession{}}
	g.Loop = lifecycle.NewLoop(g.watchTokens)
	return g
}

// slot is the slot of one session or one stream.
type slot struct {
	table   *sessions
	token   tokenHash
	counted bool // towards the limits; false for the stream of a session

	// The following fields are guarded by table.mu.
	released bool
	boundTo  *openSession // the session that has the place, while the request is under way that began it
}

// reserve claims a slot for a session or a stream. It returns errs.LimitReached at the limit of the
// token, and errs.Busy at the total limit.
func (g *sessions) reserve(s tokenHash) (*slot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.holders[s]
	switch {
	case who != nil && who.slots >= g.maxPerToken:
		return nil, errs.New(errs.LimitReached, "the token has %d open sessions and streams, the limit; end a session with DELETE or close a stream", who.slots)
	case g.used >= g.maxTotal:
		return nil, errs.New(errs.Busy, "the server has reached its limit of sessions; try again in a minute")
	}
	return g.newSlot(s, true), nil
}

// newSlot returns a slot. The caller holds g.mu.
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

// release releases a slot. It may be called twice.
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
	if who == nil { // everything of the token has ended
		return
	}
	delete(who.streams, p)
	if p.counted {
		who.slots--
		p.table.used--
	}
	p.table.removeIfEmpty(p.token)
}

// removeIfEmpty removes a holder without sessions and streams. The caller holds g.mu.
func (g *sessions) removeIfEmpty(s tokenHash) {
	if who := g.holders[s]; who.slots == 0 && len(who.sessions) == 0 && len(who.streams) == 0 {
		delete(g.holders, s)
	}
}

// cancelOnRevoke calls cancel when the token is no longer accepted, until the slot is released.
func (p *slot) cancelOnRevoke(cancel context.CancelFunc) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.table.holders[p.token].streams[p] = cancel
}

// addStream returns a slot for the stream of a session. It does not count towards the limits.
func (g *sessions) addStream(s tokenHash, cancel context.CancelFunc) *slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.newSlot(s, false)
	g.holders[s].streams[p] = cancel
	return p
}

// watchTokens ends sessions and streams whose token is no longer accepted, until ctx ends.
func (g *sessions) watchTokens(ctx context.Context) {
	tick := time.NewTicker(tokenCheckInterval)
	defer tick.Stop()
	said := false // whether the failure is logged
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
			g.log.Warn("the tokens of open sessions cannot be checked", "error", err)
		}
		said = err != nil
		for _, s := range gone {
			g.endToken(s)
		}
	}
}

// activeTokens returns the tokens with open sessions or streams.
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

// endToken ends the streams of a token immediately and its sessions after their running calls.
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
		delete(who.sessions, session) // its slot is released when it has closed
		session.closing = true
		g.closeIfIdle(session)
	}
}

// drain ends all sessions and streams. It may be called twice.
func (g *sessions) drain() {
	for _, s := range g.activeTokens() {
		g.endToken(s)
	}
}

// Stop implements lifecycle.Service. It waits for the sessions, which wait for their calls.
func (g *sessions) Stop(ctx context.Context) error {
	if err := g.Loop.Stop(ctx); err != nil {
		return err
	}
	g.drain()
	g.mu.Lock()
	if !g.stopped {
		for _, s := range g.byID { // the clients of sessions with calls are disconnected
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

// openSession is a session with a slot. The SDK discards the responses to running calls of a
// session that it closes, so a session is closed only when it has none.
type openSession struct {
	sdk      *mcp.ServerSession
	inFlight int
	closing  bool
}

// bind transfers the slot to a session until the session ends. A session whose client has
// disconnected gets a slot too.
func (p *slot) bind(session *mcp.ServerSession) {
	g := p.table
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return // the session ends with the process
	}
	s := &openSession{sdk: session}
	held := g.newSlot(p.token, p.released)
	if !p.released {
		s.inFlight, p.boundTo = 1, s
	}
	p.released, held.counted = true, true // the session has the slot now
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

// beginRequest counts a running request of a session until done is called.
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

// endRequest counts the end of a request. The caller holds g.mu.
func (g *sessions) endRequest(s *openSession) {
	s.inFlight--
	g.closeIfIdle(s)
}

// closeIfIdle closes a session that is closing and has no running calls. The caller holds g.mu.
func (g *sessions) closeIfIdle(s *openSession) {
	if s.closing && s.inFlight == 0 && !g.stopped {
		g.running.Go(func() { _ = s.sdk.Close() })
	}
}

// slotKey is the context key of the slot in the first request of a session.
type slotKey struct{}

// serveLimited serves a request that may start a session or a stream. A stream ends with the server
// and with its token; a call is always answered.
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

// untilDrained returns a context that ends when the server drains.
func (d *Handler) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.draining, cancel)
	return ctx, func() { stop(); cancel() }
}

// writeLimitReached responds to a request that gets no slot.
func (d *Handler) writeLimitReached(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "60")
	var id any
	if a, ok := w.(*resultFilter); ok {
		id = a.id
	}
	writeHTTPError(w, http.StatusServiceUnavailable, id, errs.CodeOf(err), errs.From(err).Detail)
}

// bindSession transfers the slot of the first request to its session.
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
