package link

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"comet/internal/dialect"
	"comet/internal/errs"
	"comet/internal/orchestrator"
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

// connect makes a request a WebSocket. The request itself ends with that.
func (l *Links) connect(w http.ResponseWriter, r *http.Request, who visitor, agentID string) error {
	q := parseQuery(r, "places", "versions")
	places := q.number("places", 1, orchestrator.MaxPlaces, 1)
	if q.err != nil {
		return q.err
	}
	speech, offered := l.choose(r.Header.Values("Sec-WebSocket-Protocol"))
	if speech == nil {
		http.Error(w, "none of the subprotocols that were offered is spoken here; "+l.speech.Subprotocol()+" is", http.StatusBadRequest)
		return nil
	}
	agent, err := l.core.Work.Agent(r.Context(), agentID)
	if err == nil {
		err = l.lines.room()
	}
	if err != nil {
		return err
	}
	version, refusal := speech.Negotiate(q.list("versions"))
	s := &socket{held: newHeld(agentID, WebSocket, speech, places, l.opts.Clock()), l: l, token: who.token, agent: agent}
	opts := &websocket.AcceptOptions{
		// A page of another site cannot send the token that was verified above.
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		OnPongReceived: func(context.Context, []byte) { s.shown.Store(true) },
	}
	if offered {
		opts.Subprotocols = []string{speech.Subprotocol()}
	}
	if s.conn, err = websocket.Accept(slim{w}, r, opts); err != nil {
		return nil //nolint:nilerr // it has answered
	}
	if refusal != nil {
		s.turnAway(refusal, websocket.StatusProtocolError)
		return nil
	}
	if err := l.lines.enter(s.held); err != nil {
		s.turnAway(err, websocket.StatusTryAgainLater)
		return nil
	}
	go s.run(l.ctx, version)
	return nil
}

// choose returns the dialect that the client would like best of those that are spoken
// here; offered is false where it named none and gets the first. It is nil where none
// is spoken.
func (l *Links) choose(lines []string) (speech dialect.Dialect, offered bool) {
	for name := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		offered = true
		i := slices.IndexFunc(l.core.Dialects, func(d dialect.Dialect) bool { return d.Subprotocol() == name })
		if i >= 0 {
			return l.core.Dialects[i], true
		}
	}
	if offered {
		return nil, true
	}
	return l.speech, false
}

// turnAway ends a connection that does not become a line.
func (s *socket) turnAway(err error, code websocket.StatusCode) {
	_ = s.write(s.speech.Refuse(err, nil).Body)
	_ = s.conn.Close(code, "")
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
	s.l.report("a line's end was not noted", s.agentID, s.hangup(ctx))
}

// begin joins and says hello.
func (s *socket) begin(ctx context.Context, version string) error {
	if _, err := s.l.join(ctx, s.held); err != nil {
		return err
	}
	s.joined.Store(true)
	return s.write(greeting(s.l, s.held, s.agent, version).bytes())
}

func (s *socket) hangup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.l.opts.WriteTimeout)
	defer cancel()
	return s.l.core.Work.Hangup(ctx, s.agentID, s.id)
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

// read takes what the agent sends, one after the other, until the connection ends.
func (s *socket) read(ctx context.Context) {
	defer s.end(endHungUp)
	s.conn.SetReadLimit(MaxMessage + 1)
	for {
		_, raw, err := s.conn.Read(ctx)
		if err != nil {
			return
		}
		s.shown.Store(true)
		if err := s.take(ctx, raw); err != nil {
			return
		}
	}
}

// take takes one frame. An error ends the line.
func (s *socket) take(ctx context.Context, raw []byte) error {
	if f, ok := parseFrame(raw); ok {
		if len(f.Ack) > 0 {
			_, err := s.l.acknowledgeAll(context.WithoutCancel(ctx), s.agentID, f.Ack)
			s.l.report("an acknowledgement was not noted", s.agentID, err)
		}
		return nil
	}
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
	if a.MessageID == "" {
		return nil
	}
	return s.write(frame{Ack: []string{a.MessageID}}.bytes())
}
