package transport

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
)

// connectAgent upgrades a request to a WebSocket. The HTTP request ends with that.
//
//	@Summary		Open a WebSocket
//	@Description	Opens a connection on which the agent receives and sends messages. Every text frame is a JSON object: a message, or a control frame about the connection. comet begins with `{"hello": {"agent_id", "agent_type", "version", "concurrency", "heartbeat_seconds", "server_time"}}` and ends with `{"bye": {"reason"}}`; both sides acknowledge with `{"ack": ["<message_id>"]}`. Messages that the agent does not acknowledge are delivered again on its next connection. A new connection of an agent replaces the older one.
//	@Description
//	@Description	The subprotocol selects the protocol; it is `envelope.v1` if the agent offers none. A connection of a protocol without control frames carries messages only. Only tokens bound to an agent are accepted; any other is 5004.
//	@Success		101	"The connection is a WebSocket from now on"
//	@Header			101	{string}	Upgrade					"websocket"
//	@Header			101	{string}	Sec-WebSocket-Protocol	"The subprotocol chosen from those the client offered"
//	@Failure		400	"5003: a parameter is unknown or malformed, none of the subprotocols is supported, or the agent has no type"
//	@Failure		426	"5003: the request is not a WebSocket handshake"
//	@Header			426	{string}	Upgrade	"websocket"
//	@Failure		503	"5002: the server has reached its connection limit, or is shutting down"
//	@Router			/api/agent/connect [get]
func (s *Server) connectAgent(w http.ResponseWriter, r *http.Request, from httpkit.Identity, agentID string) error {
	q := httpkit.NewQuery(r, "concurrency", "versions")
	concurrency := q.Int("concurrency", 1, orchestrator.MaxConcurrency, 1)
	versions := listParam(q, "versions")
	if err := q.Err(); err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		reply := s.protocols[0].Refuse(errs.New(errs.InvalidRequest, "this endpoint accepts only WebSocket requests"), nil)
		reply.Status = http.StatusUpgradeRequired
		writeReply(w, reply)
		return nil
	}
	proto, subprotocol, err := s.protocols.offered(r.Header.Values("Sec-WebSocket-Protocol"))
	if err != nil {
		return err
	}
	agent, err := s.acceptedAgent(r.Context(), proto, agentID)
	if err == nil {
		err = s.connections.checkCapacity()
	}
	if err != nil {
		return err
	}
	version, refusal := proto.negotiate(versions)
	sock := s.newSocket(s.newConnection(agent, WebSocket, proto, concurrency), s.tokenVerifier(from.Token))
	sock.from, sock.token, sock.tokenID = httpkit.ClientPrefix(r), from.Token, from.TokenID
	opts := &websocket.AcceptOptions{
		// A page of another site cannot send the token that was verified above.
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		OnPongReceived: func(context.Context, []byte) { sock.alive.Store(true) },
	}
	if subprotocol != "" {
		opts.Subprotocols = []string{subprotocol}
	}
	ws, err := websocket.Accept(smallBufferWriter{w}, r, opts)
	if err != nil {
		return nil //nolint:nilerr // Accept has written the response
	}
	ws.SetReadLimit(-1) // read has the limit
	sock.conn = webSocketConn{ws, rate.NewLimiter(maxMessageRate, maxMessageRate), s.opts.Limits.Bytes, from.TokenID}
	sock.start(version, refusal)
	return nil
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

// maxMessageRate is how many messages are read from a connection in a second by default. A faster
// sender is read later.
const maxMessageRate = 2000

// firstMessageTimeout is the time limit for the first message of an agent that must sign.
const firstMessageTimeout = 10 * time.Second

// webSocketConn is a messageConn over a WebSocket.
type webSocketConn struct {
	*websocket.Conn
	rateLimit *rate.Limiter // of the messages read in a second
	bytes     *httpkit.BytesInFlight
	tokenID   string
}

func (c webSocketConn) read(ctx context.Context) ([]byte, error) {
	if err := c.rateLimit.Wait(ctx); err != nil {
		return nil, err
	}
	_, frame, err := c.Reader(ctx)
	if err != nil {
		return nil, err
	}
	defer time.AfterFunc(bodyTimeout, c.cut).Stop()
	counted := c.bytes.Reader(ctx, io.NopCloser(frame), 0, c.tokenID)
	defer counted.Release()
	text, err := io.ReadAll(io.LimitReader(counted, MaxMessageBytes+1))
	if errs.Is(err, errs.Unavailable) {
		c.close(websocket.StatusTryAgainLater, errs.From(err).Detail)
	}
	if err == nil && len(text) > MaxMessageBytes {
		c.close(websocket.StatusMessageTooBig, "a message has at most 8 MiB")
		err = websocket.ErrMessageTooBig
	}
	return text, err
}

func (c webSocketConn) write(ctx context.Context, text []byte) error {
	return c.Write(ctx, websocket.MessageText, text)
}

func (c webSocketConn) ping(ctx context.Context) error { return c.Ping(ctx) }

func (c webSocketConn) close(code websocket.StatusCode, reason string) { _ = c.Close(code, reason) }

func (c webSocketConn) cut() { _ = c.CloseNow() }
