package link

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"comet/internal/errs"
	"comet/models"
)

// patience is how many heartbeats a WebSocket may leave unanswered.
const patience = 2

// socket is a line that is a WebSocket. Its own goroutine hands over what is in the
// inbox and looks after the line; another one reads.
type socket struct {
	*held
	l     *Links
	conn  *websocket.Conn
	token string
	agent models.Agent
	// group are the reader and the pings that are under way.
	group sync.WaitGroup
}

// run is the line, from its first to its last moment.
func (s *socket) run(ctx context.Context, version string) {
	defer s.l.lines.leave(s.held)
	reading, cut := context.WithCancel(ctx)
	defer s.group.Wait()
	defer cut()
	if err := s.begin(ctx, version); err != nil {
		s.turnAway(err, websocket.StatusPolicyViolation)
		return
	}
	s.group.Go(func() { s.read(reading) })
	s.serve(ctx)
	s.close(cut)
	s.l.hangup(ctx, s.held)
}

// begin joins and says hello.
func (s *socket) begin(ctx context.Context, version string) error {
	if _, err := s.l.join(ctx, s.held); err != nil {
		return err
	}
	s.joined.Store(true)
	return s.write(greeting(s.l, s.held, s.agent, version).bytes())
}

// serve hands over until the line is over.
func (s *socket) serve(ctx context.Context) {
	news, stop := s.l.core.Work.Inbox(s.agentID)
	defer stop()
	c := &courier{l: s.l, line: s.held, agent: s.agent}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-news:
		case <-s.kick:
		case <-again.C:
		case <-s.over:
			return
		case <-ctx.Done():
			s.end(endDraining)
			return
		}
		if s.due.Swap(false) {
			s.attend(ctx)
		}
		later, err := c.round(ctx, s.places+spare, s.hand)
		if err != nil {
			s.end(endHungUp)
		}
		if later > 0 {
			again.Reset(later)
		}
	}
}

// hand writes one message.
func (s *socket) hand(p parcel) error {
	for _, part := range p.parts {
		if err := s.write(part); err != nil {
			return err
		}
	}
	return nil
}

// attend is what a line does every heartbeat: its token is looked at, and its agent has
// to show that it is there.
func (s *socket) attend(ctx context.Context) {
	if _, err := s.l.core.Auth.Verify(ctx, s.token); rejected(err) {
		s.end(endRefused)
		return
	}
	if s.missed.Load() >= patience {
		s.end(endSilent)
		return
	}
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, s.l.opts.WriteTimeout)
		defer cancel()
		_ = s.conn.Ping(ctx) // the pong is noted when it comes
	})
}

// write writes one frame. An agent that does not take it in time is cut off.
func (s *socket) write(b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.l.opts.WriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, b)
}

// close says good-bye, and cuts the line off where that takes too long.
func (s *socket) close(cut context.CancelFunc) {
	soon := time.AfterFunc(s.l.opts.CloseTimeout, cut)
	defer soon.Stop()
	code := websocket.StatusNormalClosure
	switch s.why {
	case endHungUp, endSilent:
		cut()
		return
	case endDraining:
		code = websocket.StatusGoingAway
	case endRefused:
		code = websocket.StatusPolicyViolation
	}
	if s.write(frame{Bye: &bye{s.why}}.bytes()) == nil {
		_ = s.conn.Close(code, string(s.why))
	}
}

// read takes what the agent sends until the connection ends.
func (s *socket) read(ctx context.Context) {
	messages := newPipeline()
	acks := &receipts{note: func(ids []string) {
		_, err := s.l.acknowledgeAll(context.WithoutCancel(ctx), s.agentID, ids)
		s.l.report("an acknowledgement was not noted", s.agentID, err)
	}}
	defer acks.running.Wait()
	defer messages.running.Wait()
	defer s.end(endHungUp)
	s.conn.SetReadLimit(MaxMessage + 1)
	for {
		_, raw, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		s.shown.Store(true)
		if f, ok := parseFrame(raw); ok {
			if len(f.Ack) > 0 {
				acks.add(f.Ack)
			}
			continue
		}
		err = messages.add(ctx, raw, func() {
			if s.take(ctx, raw) != nil {
				s.end(endHungUp)
			}
		})
		if err != nil {
			return
		}
	}
}

// take takes one message. An error ends the line.
func (s *socket) take(ctx context.Context, raw []byte) error {
	who, err := s.l.core.Auth.Verify(ctx, s.token)
	if rejected(err) {
		_ = s.write(s.speech.Refuse(err, raw).Body)
		s.end(endRefused)
		return err
	}
	if err != nil {
		return s.write(s.speech.Refuse(errs.Wrap(errs.Unavailable, err, "the token cannot be looked up"), raw).Body)
	}
	s.l.counts.heard(s.link)
	// What was begun is not undone because the line broke.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), bodyTimeout)
	defer cancel()
	a := s.speech.Receive(within, who, raw, 0)
	if a.Refused || a.Reply && len(a.Body) > 0 {
		if err := s.write(a.Body); err != nil {
			return err
		}
	}
	if a.MessageID == "" || a.Refused && a.RetryAfter > 0 { // to come again
		return nil
	}
	return s.write(frame{Ack: []string{a.MessageID}}.bytes())
}
