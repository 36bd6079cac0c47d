package mcp

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sitting is a session that has a place. The SDK throws away the answers to the calls that are
// under way in a session which it closes, so one is closed when there are none.
type sitting struct {
	session *mcp.ServerSession
	calls   int
	ending  bool
}

// seat gives the place to a session, which has it until it ends, however that comes about. A
// session whose client is gone already has one too.
func (p *place) seat(session *mcp.ServerSession) {
	g := p.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return // it ends with the process
	}
	s := &sitting{session: session}
	held := g.take(p.secret, p.left)
	if !p.left {
		s.calls, p.handed = 1, s
	}
	p.left, held.counts = true, true // it is handed on
	who := g.by[p.secret]
	who.sessions[s] = true
	g.sittings[session.ID()] = s
	g.running.Go(func() {
		_ = session.Wait()
		g.mu.Lock()
		delete(who.sessions, s)
		delete(g.sittings, session.ID())
		g.mu.Unlock()
		held.leave()
	})
}

// asks notes that a request is under way in a session, until done is called.
func (g *guests) asks(id string) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sittings[id]
	if s == nil {
		return func() {}
	}
	s.calls++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.answered(s)
	}
}

// answered notes the end of a request; g.mu is held.
func (g *guests) answered(s *sitting) {
	s.calls--
	g.closeIdle(s)
}

// closeIdle closes a session that is to end and in which no call is under way; g.mu is held.
func (g *guests) closeIdle(s *sitting) {
	if s.ending && s.calls == 0 && !g.stopped {
		g.running.Go(func() { _ = s.session.Close() })
	}
}
