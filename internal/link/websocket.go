package link

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"

	"comet/internal/dialect"
	"comet/internal/orchestrator"
)

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
