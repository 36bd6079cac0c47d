package mcp

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
