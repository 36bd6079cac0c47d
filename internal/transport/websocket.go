package transport

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/words"
)

// connectWebSocket makes a request a WebSocket. The request itself ends with that.
//
//	@Summary		Hold a WebSocket
//	@Description	A line on which the agent is told what there is for it and says what it has to say. Every frame is a JSON object in a text: a message, or something about the line itself. comet begins with `{"hello": {"agent_id", "agent_type", "version", "concurrency", "heartbeat_seconds", "server_time"}}` and ends with `{"bye": {"reason"}}`; both sides acknowledge with `{"ack": ["<message_id>"]}`. What the agent does not acknowledge comes again on its next line. The newest line of an agent replaces the one before.
//	@Description
//	@Description	The subprotocol is `envelope.v1`, also for an agent that offers none. For tokens that are bound to an agent; any other is 5004.
//	@ID				connectAgent
//	@Tags			agent door
//	@Produce		json
//	@Security		BearerAuth
//	@Param			concurrency	query	int		false	"How many tasks the agent takes at a time"	minimum(1)	maximum(1000)	default(1)	example(4)
//	@Param			versions	query	string	false	"The versions of the protocol that the agent knows, separated by commas; the lowest common one is spoken"	example(1.0,2.0)
//	@Success		101	"From here on it is a WebSocket"
//	@Header			101	{string}	Upgrade					"websocket"
//	@Header			101	{string}	Sec-WebSocket-Protocol	"The subprotocol that was chosen of those that were offered"
//	@Failure		400	"5003: a parameter is unknown or malformed, none of the subprotocols is spoken, or the agent has no type"
//	@Failure		426	"5003: it is no request for a WebSocket"
//	@Header			426	{string}	Upgrade	"websocket"
//	@Failure		503	"5002: this server holds as many lines as it may, or stops"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/connect [get]
func (l *Server) connectWebSocket(w http.ResponseWriter, r *http.Request, who caller, agentID string) error {
	q := parseQuery(r, "concurrency", "versions")
	places := q.intParam("concurrency", 1, orchestrator.MaxPlaces, 1)
	if q.err != nil {
		return q.err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		a := l.defaultProtocol.Refuse(errs.New(errs.InvalidRequest, "this is for WebSockets"), nil)
		a.Status = http.StatusUpgradeRequired
		writeReply(w, a)
		return nil
	}
	speech, offered := l.negotiateSubprotocol(r.Header.Values("Sec-WebSocket-Protocol"))
	if speech == nil {
		return l.errUnknownSubprotocol(r.Header.Values("Sec-WebSocket-Protocol"))
	}
	agent, err := l.acceptedAgent(r.Context(), speech, agentID)
	if err == nil {
		err = l.connections.checkCapacity()
	}
	if err != nil {
		return err
	}
	version, refusal := speech.Negotiate(q.listParam("versions"))
	s := &socket{connection: newConnection(agentID, WebSocket, speech, places, l.opts.Clock()), server: l, verify: l.tokenVerifier(who.token), agent: agent}
	s.from, s.token = clientPrefix(r), who.token
	opts := &websocket.AcceptOptions{
		// A page of another site cannot send the token that was verified above.
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		OnPongReceived: func(context.Context, []byte) { s.alive.Store(true) },
	}
	if offered {
		opts.Subprotocols = []string{speech.Subprotocol()}
	}
	ws, err := websocket.Accept(smallBufferWriter{w}, r, opts)
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	ws.SetReadLimit(MaxMessageBytes + 1)
	s.conn = webSocketConn{ws}
	if refusal != nil {
		s.reject(refusal, websocket.StatusProtocolError)
		return nil
	}
	if !s.checkFirstMessage() {
		return nil
	}
	if err := l.connections.add(s.connection); err != nil {
		s.reject(err, websocket.StatusTryAgainLater)
		return nil
	}
	go s.run(l.ctx, version)
	return nil
}

// negotiateSubprotocol returns the dialect that the client would like best of those that are spoken
// here; offered is false where it named none and gets the first. It is nil where none
// is spoken.
func (l *Server) negotiateSubprotocol(lines []string) (speech protocol.Protocol, offered bool) {
	for name := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		offered = true
		i := slices.IndexFunc(l.core.Protocols, func(d protocol.Protocol) bool { return d.Subprotocol() == name })
		if i >= 0 {
			return l.core.Protocols[i], true
		}
	}
	if offered {
		return nil, true
	}
	return l.defaultProtocol, false
}

// errUnknownSubprotocol is the refusal of a client that named subprotocols of which none is spoken
// here: what it named, and what there is.
func (l *Server) errUnknownSubprotocol(lines []string) error {
	spoken := make([]string, len(l.core.Protocols))
	for i, d := range l.core.Protocols {
		spoken[i] = d.Subprotocol()
	}
	return errs.New(errs.InvalidRequest, "none of the subprotocols that were offered is spoken here: there is %s, and %s was offered",
		strings.Join(spoken, ", "), words.Quote(strings.Join(lines, ", ")))
}

// reject ends a connection that does not become a line.
func (s *socket) reject(err error, code websocket.StatusCode) {
	_ = s.write(s.protocol.Refuse(err, nil).Body)
	s.conn.close(code, "")
}

// The buffers of a line. What is longer goes past them; most lines say nothing most of
// the time, and there are many of them.
const (
	readBuffer  = 512
	writeBuffer = 512
)

// smallBufferWriter is a response whose connection, once it is taken over, has small buffers.
type smallBufferWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w smallBufferWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, large, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	come := large.Reader.Buffered()
	small := bufio.NewReaderSize(conn, max(readBuffer, come))
	if come > 0 { // what came with the request; whoever takes over looks for it in the buffer
		text, _ := large.Reader.Peek(come)
		small.Reset(io.MultiReader(bytes.NewReader(text), conn))
		_, _ = small.Peek(come)
	}
	return conn, bufio.NewReadWriter(small, bufio.NewWriterSize(conn, writeBuffer)), nil
}
