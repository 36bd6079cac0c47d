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
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

// connectWebSocket upgrades a request to a WebSocket. The HTTP request ends with that.
//
//	@Summary		Open a WebSocket
//	@Description	Opens a connection on which the agent receives and sends messages. Every text frame is a JSON object: a message, or a control frame about the connection. comet begins with `{"hello": {"agent_id", "agent_type", "version", "concurrency", "heartbeat_seconds", "server_time"}}` and ends with `{"bye": {"reason"}}`; both sides acknowledge with `{"ack": ["<message_id>"]}`. Messages that the agent does not acknowledge are delivered again on its next connection. A new connection of an agent replaces the older one.
//	@Description
//	@Description	The subprotocol is `envelope.v1`, even if the agent offers none. Only tokens bound to an agent are accepted; any other is 5004.
//	@ID				connectAgent
//	@Tags			agent connections
//	@Produce		json
//	@Security		BearerAuth
//	@Param			concurrency	query	int		false	"How many tasks the agent runs at a time"	minimum(1)	maximum(1000)	default(1)	example(4)
//	@Param			versions	query	string	false	"The protocol versions that the agent supports, separated by commas; the lowest common version is used"	example(1.0,2.0)
//	@Success		101	"The connection is a WebSocket from now on"
//	@Header			101	{string}	Upgrade					"websocket"
//	@Header			101	{string}	Sec-WebSocket-Protocol	"The subprotocol chosen from those the client offered"
//	@Failure		400	"5003: a parameter is unknown or malformed, none of the subprotocols is supported, or the agent has no type"
//	@Failure		426	"5003: the request is not a WebSocket handshake"
//	@Header			426	{string}	Upgrade	"websocket"
//	@Failure		503	"5002: the server has reached its connection limit, or is shutting down"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/connect [get]
func (s *Server) connectWebSocket(w http.ResponseWriter, r *http.Request, from caller, agentID string) error {
	q := parseQuery(r, "concurrency", "versions")
	concurrency := q.intParam("concurrency", 1, orchestrator.MaxConcurrency, 1)
	if q.err != nil {
		return q.err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		reply := s.defaultProtocol.Refuse(errs.New(errs.InvalidRequest, "this endpoint accepts only WebSocket requests"), nil)
		reply.Status = http.StatusUpgradeRequired
		writeReply(w, reply)
		return nil
	}
	proto, offered := s.negotiateSubprotocol(r.Header.Values("Sec-WebSocket-Protocol"))
	if proto == nil {
		return s.errUnknownSubprotocol(r.Header.Values("Sec-WebSocket-Protocol"))
	}
	agent, err := s.acceptedAgent(r.Context(), proto, agentID)
	if err == nil {
		err = s.connections.checkCapacity()
	}
	if err != nil {
		return err
	}
	version, refusal := proto.Negotiate(q.listParam("versions"))
	sock := &socket{connection: newConnection(agentID, WebSocket, proto, concurrency, s.opts.Clock()), server: s, verify: s.tokenVerifier(from.token), agent: agent}
	sock.from, sock.token = clientPrefix(r), from.token
	opts := &websocket.AcceptOptions{
		// A page of another site cannot send the token that was verified above.
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		OnPongReceived: func(context.Context, []byte) { sock.alive.Store(true) },
	}
	if offered {
		opts.Subprotocols = []string{proto.Subprotocol()}
	}
	ws, err := websocket.Accept(smallBufferWriter{w}, r, opts)
	if err != nil {
		return nil //nolint:nilerr // Accept has written the response
	}
	ws.SetReadLimit(MaxMessageBytes + 1)
	sock.conn = webSocketConn{ws}
	if refusal != nil {
		sock.reject(refusal, websocket.StatusProtocolError)
		return nil
	}
	if !sock.checkFirstMessage() {
		return nil
	}
	if err := s.connections.add(sock.connection); err != nil {
		sock.reject(err, websocket.StatusTryAgainLater)
		return nil
	}
	go sock.run(s.ctx, version)
	return nil
}

// negotiateSubprotocol returns the first supported protocol among the subprotocols that the client
// offers, nil for none. offered is false if the client offers none; the default protocol is used
// then.
func (s *Server) negotiateSubprotocol(values []string) (proto protocol.Protocol, offered bool) {
	for name := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		offered = true
		i := slices.IndexFunc(s.core.Protocols, func(p protocol.Protocol) bool { return p.Subprotocol() == name })
		if i >= 0 {
			return s.core.Protocols[i], true
		}
	}
	if offered {
		return nil, true
	}
	return s.defaultProtocol, false
}

// errUnknownSubprotocol returns the error for a client that offers only unsupported subprotocols.
// It names both lists.
func (s *Server) errUnknownSubprotocol(values []string) error {
	supported := make([]string, len(s.core.Protocols))
	for i, p := range s.core.Protocols {
		supported[i] = p.Subprotocol()
	}
	return errs.New(errs.InvalidRequest, "none of the offered subprotocols is supported: the server supports %s, the client offered %s",
		strings.Join(supported, ", "), input.Quote(strings.Join(values, ", ")))
}

// reject refuses a connection and closes it.
func (s *socket) reject(err error, code websocket.StatusCode) {
	_ = s.write(s.protocol.Refuse(err, nil).Body)
	s.conn.close(code, "")
}

// The buffer sizes of a WebSocket. Longer messages bypass the buffers. Most connections are idle,
// and there are many of them.
const (
	readBuffer  = 512
	writeBuffer = 512
)

// smallBufferWriter replaces the buffers of a hijacked connection by small ones.
type smallBufferWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w smallBufferWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, large, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	buffered := large.Reader.Buffered()
	small := bufio.NewReaderSize(conn, max(readBuffer, buffered))
	if buffered > 0 { // bytes after the request; the WebSocket library looks for them in the buffer
		data, _ := large.Reader.Peek(buffered)
		small.Reset(io.MultiReader(bytes.NewReader(data), conn))
		_, _ = small.Peek(buffered)
	}
	return conn, bufio.NewReadWriter(small, bufio.NewWriterSize(conn, writeBuffer)), nil
}
