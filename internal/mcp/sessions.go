package mcp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/input"
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

// sessionTable contains the open sessions and streams. It limits them and ends those whose token is no
// longer accepted.
type sessionTable struct {
	*background.Loop
	lapsed func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error)
	limit  *background.Limiter[tokenHash]
	logged func(*mcp.ServerSession) bool // reports whether a client receives log messages
	events *eventStore

	mu       sync.Mutex
	open     map[*openEntry]bool
	sessions map[string]*session // by session id
	draining bool                // new streams and sessions end at once
	stopped  bool
	running  sync.WaitGroup // sessions and their closing
}

// openEntry is an open session or stream. The table calls end with its mutex held.
type openEntry struct {
	token tokenHash
	end   func()
}

// newSessionTable returns an empty table. lapsed returns the tokens that are no longer accepted.
func newSessionTable(lapsed func(ctx context.Context, secrets []tokenHash) ([]tokenHash, error), logged func(*mcp.ServerSession) bool, log *slog.Logger, clock func() time.Time) *sessionTable {
	t := &sessionTable{
		lapsed: lapsed, logged: logged, limit: background.NewLimiter[tokenHash](maxSessions, maxSessionsPerToken),
		open: map[*openEntry]bool{}, sessions: map[string]*session{}, events: newEventStore(clock),
	}
	t.Loop = background.NewLoop(background.NewPollLoop(background.PollOptions{Task: "checking the tokens of open sessions", Logger: log}, t.checkTokens).Run)
	return t
}

// reserve counts one more session or stream until release is called, once or more. It returns errs.LimitReached
// at the limit of the token, and errs.Busy at the limit of all.
func (t *sessionTable) reserve(token tokenHash) (release func(), err error) {
	release, err = t.limit.Acquire(token)
	switch {
	case errors.Is(err, background.ErrKeyFull):
		return nil, errs.New(errs.LimitReached, "the token has %d open sessions and streams, the limit; end a session with DELETE or close a stream", maxSessionsPerToken)
	case err != nil:
		return nil, errs.New(errs.Busy, "the server has reached its limit of sessions; try again in a minute")
	}
	return sync.OnceFunc(release), nil
}

// add adds an open stream, which end ends, until remove is called.
func (t *sessionTable) add(token tokenHash, end func()) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.insert(token, end)
}

// insert is add for callers that hold the mutex.
func (t *sessionTable) insert(token tokenHash, end func()) (remove func()) {
	e := &openEntry{token, end}
	t.open[e] = true
	if t.draining {
		end()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, e)
	}
}

// checkTokens ends sessions and streams whose token is no longer accepted, and idle sessions.
func (t *sessionTable) checkTokens(ctx context.Context) (time.Duration, error) {
	t.events.removeExpired()
	t.endIdle(time.Now().Add(-sessionIdleTimeout))
	tokens := t.activeTokens()
	if len(tokens) == 0 {
		return tokenCheckInterval, nil
	}
	gone, err := t.lapsed(ctx, tokens)
	if len(gone) > 0 {
		t.endWhere(func(token tokenHash) bool { return slices.Contains(gone, token) })
	}
	return tokenCheckInterval, err
}

func (t *sessionTable) activeTokens() []tokenHash {
	t.mu.Lock()
	defer t.mu.Unlock()
	tokens := map[tokenHash]bool{}
	for e := range t.open {
		tokens[e.token] = true
	}
	return slices.Collect(maps.Keys(tokens))
}

// endIdle closes the sessions without a request since a time.
func (t *sessionTable) endIdle(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sessions {
		if s.inFlight == 0 && s.usedAt.Before(since) {
			t.close(s)
		}
	}
}

// endWhere ends the selected streams at once and the selected sessions after their running calls.
func (t *sessionTable) endWhere(selected func(tokenHash) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.open {
		if selected(e.token) {
			e.end()
		}
	}
}

// Drain ends all sessions and streams, also those that start later, because the HTTP server waits for
// them when it stops. It may be called twice.
func (t *sessionTable) Drain() {
	t.mu.Lock()
	t.draining = true
	t.mu.Unlock()
	t.endWhere(func(tokenHash) bool { return true })
}

// Stop implements background.Service. It waits for the sessions, which wait for their calls.
func (t *sessionTable) Stop(ctx context.Context) error {
	if err := t.Loop.Stop(ctx); err != nil {
		return err
	}
	t.Drain()
	t.mu.Lock()
	for _, s := range t.sessions { // the clients of sessions with calls are disconnected
		t.close(s)
	}
	t.stopped = true
	t.mu.Unlock()
	return background.WaitFor(ctx, t.running.Wait)
}

// session is an open session. The SDK discards the responses to running calls of a session that it
// closes, so a session is closed only when it has none.
type session struct {
	sdk             *mcp.ServerSession
	tokenID         string // of the token that started it
	asks            bool   // the client answers questions
	inFlight        int
	usedAt          time.Time                     // the start or the end of the last request
	calls           map[string]context.CancelFunc // running direct calls by the key of their id
	ending, closing bool
	// endQuestions withdraws the questions to the client. Otherwise the closing of the session, which waits for its calls,
	// would also wait for the replies.
	endQuestions context.CancelFunc
}

// endWhenIdle closes a session that is ending and has no running calls. The caller holds t.mu.
func (t *sessionTable) endWhenIdle(s *session) {
	if s.ending && s.inFlight == 0 {
		t.close(s)
	}
}

// close closes a session once. The caller holds t.mu.
func (t *sessionTable) close(s *session) {
	if !s.closing && !t.stopped {
		s.closing = true
		s.endQuestions()
		t.running.Go(func() { _ = s.sdk.Close() })
	}
}

// beginRequest counts a running request of a session until end is called.
func (t *sessionTable) beginRequest(id string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil {
		return func() {}
	}
	s.inFlight++
	s.usedAt = time.Now()
	return func() { t.endRequest(s) }
}

// endQuestions withdraws the questions to the client of a session that the client ends.
func (t *sessionTable) endQuestions(id, tokenID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[id]; s != nil && s.tokenID == tokenID {
		s.endQuestions()
	}
}

// beginCall registers a direct call until end is called; cancel cancels it. end is nil for an unknown
// session and for one whose client receives more than responses. duplicate reports that the id is in use.
func (t *sessionTable) beginCall(id, key, tokenID string, cancel context.CancelFunc) (end func(), duplicate bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sessions[id]
	if s == nil || s.closing || s.asks || t.logged(s.sdk) || s.tokenID != tokenID || s.calls[key] != nil {
		return nil, s != nil && s.tokenID == tokenID && s.calls[key] != nil
	}
	s.inFlight++
	s.usedAt, s.calls[key] = time.Now(), cancel
	return func() {
		t.mu.Lock()
		delete(s.calls, key)
		t.mu.Unlock()
		t.endRequest(s)
	}, false
}

// cancelCall cancels the direct call to which a notifications/cancelled of its session refers.
func (t *sessionTable) cancelCall(id, tokenID string, params []byte) {
	key := ""
	input.EachMember(params, func(name string, value []byte) bool {
		if name == "requestId" {
			key = requestKey(value)
		}
		return true
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[id]; s != nil && s.tokenID == tokenID && s.calls[key] != nil {
		s.calls[key]()
	}
}

// maxIDDigits limits a numeric id to values that every JSON decoder represents exactly.
const maxIDDigits = 15

// requestKey returns a key of a request's id, equal for equal ids, or "" if it is no string or integer.
func requestKey(id []byte) string {
	if text, ok := input.JSONString(id); ok {
		return `"` + text
	}
	number, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil || len(id) > maxIDDigits || strconv.FormatInt(number, 10) != string(id) {
		return ""
	}
	return string(id)
}

func (t *sessionTable) endRequest(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.inFlight--
	s.usedAt = time.Now()
	t.endWhenIdle(s)
}

type opening struct {
	table   *sessionTable
	by      identity
	release func()
	// asking ends with the session. All requests of the session find it through their context, which has the values of the
	// first request's context.
	asking       context.Context
	endQuestions context.CancelFunc
	// The following fields are guarded by table.mu. session has the place from its start on.
	session *session
	ended   bool
}

func (o *opening) end() {
	o.table.mu.Lock()
	o.ended = true
	s := o.session
	o.table.mu.Unlock()
	if s == nil {
		o.endQuestions()
		o.release()
	} else {
		o.table.endRequest(s)
	}
}

// start adds the session that the request has started. It has the request's place until it ends; if
// the client has disconnected before, it does not count.
func (o *opening) start(sdk *mcp.ServerSession) {
	t := o.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return // the session ends with the process
	}
	s := &session{sdk: sdk, tokenID: o.by.principal.TokenID, usedAt: time.Now(), calls: map[string]context.CancelFunc{}, endQuestions: o.endQuestions}
	p := sdk.InitializeParams()
	s.asks = p == nil || p.Capabilities == nil || p.Capabilities.Elicitation != nil || p.Capabilities.Sampling != nil || p.Capabilities.RootsV2 != nil //nolint:staticcheck // clients of all revisions have it
	if !o.ended {
		s.inFlight, o.session = 1, s
	}
	t.sessions[sdk.ID()] = s
	remove := t.insert(o.by.token, func() { s.ending = true; t.endWhenIdle(s) })
	t.running.Go(func() {
		_ = sdk.Wait()
		o.endQuestions()
		remove()
		t.mu.Lock()
		delete(t.sessions, sdk.ID())
		t.mu.Unlock()
		o.release()
	})
}

// openingKey is the context key of the opening in the first request of a session.
type openingKey struct{}

func addSession(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if method != "initialize" || err != nil {
			return res, err
		}
		o, ok := ctx.Value(openingKey{}).(*opening)
		if sdk, is := req.GetSession().(*mcp.ServerSession); ok && is {
			o.start(sdk)
		}
		return res, nil
	}
}
