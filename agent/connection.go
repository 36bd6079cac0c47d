package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"comet/internal/background"
	"comet/internal/wire/envelope"
)

const (
	subprotocol = "envelope.v1"
	// helloTimeout limits the time from dialing to the server's hello, and writeTimeout the time
	// to write one message.
	helloTimeout = 15 * time.Second
	writeTimeout = 30 * time.Second
	// heartbeat is the interval of heartbeats, unless the server sets another.
	heartbeat = 15 * time.Second
	// minHeartbeat is the shortest interval that the server may set.
	minHeartbeat = 10 * time.Millisecond
	// retryAfter is the pause before messages are sent again that the server could not accept.
	retryAfter = time.Second
)

// byeReplaced is the reason of a bye to an agent that has connected again elsewhere.
const byeReplaced = "replaced"

var errReplaced = errors.New("the same agent has connected elsewhere; each process needs an agent of its own")

// keepConnected keeps a connection open until ctx ends, and returns its cause.
func (a *Agent) keepConnected(ctx context.Context) error {
	pause := newBackoff(a.opts.backoff, a.opts.maxBackoff)
	for {
		err := a.runConnection(ctx, pause.Reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refused *ResponseError
		a.mu.Lock()
		greeted := a.greeted
		a.mu.Unlock()
		if errors.As(err, &refused) && refused.permanent() && !greeted {
			return err
		}
		wait := pause.NextBackOff()
		switch {
		case errors.Is(err, errReplaced):
			wait = a.opts.maxBackoff
		case refused != nil:
			wait = max(wait, refused.RetryAfter)
		}
		a.log.Warn("not connected to the server", "error", err, "again_in", wait.Round(time.Millisecond))
		if background.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// dial opens a connection and waits for the server's hello.
func (a *Agent) dial(ctx context.Context) (*websocket.Conn, Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	query := url.Values{"versions": {envelope.Version}, "concurrency": {strconv.Itoa(a.opts.Concurrency)}}
	conn, resp, err := websocket.Dial(ctx, a.url+"/api/agent/connect?"+query.Encode(), &websocket.DialOptions{ //nolint:bodyclose // the package documents that it need not be closed
		HTTPClient: a.opts.Client, HTTPHeader: http.Header{"Authorization": {"Bearer " + a.token}}, Subprotocols: []string{subprotocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, Hello{}, newResponseError(resp)
		}
		if inURL := (*url.Error)(nil); errors.As(err, &inURL) {
			err = inURL.Err // the address is known
		}
		return nil, Hello{}, err
	}
	conn.SetReadLimit(readLimit)
	_, data, err := conn.Read(ctx)
	var h Hello
	if err == nil {
		h, err = readHello(data)
	}
	if err != nil {
		_ = conn.Close(websocket.StatusProtocolError, "the first frame must be a hello")
		return nil, h, err
	}
	return conn, h, nil
}

// runConnection opens one connection and returns why it ended. It calls greeted after the
// server's hello.
func (a *Agent) runConnection(ctx context.Context, greeted func()) error {
	conn, hello, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	lineCtx, broke := context.WithCancelCause(context.WithoutCancel(ctx))
	greeted()
	a.handleHello(ctx, hello)
	a.outbox.resendAll()
	var others sync.WaitGroup
	others.Go(func() { broke(a.write(lineCtx, conn, hello)) })
	others.Go(func() {
		select {
		case <-ctx.Done():
			_ = conn.Close(websocket.StatusNormalClosure, "the agent stops")
			broke(context.Cause(ctx))
		case <-lineCtx.Done():
		}
	})
	broke(a.read(lineCtx, ctx, conn))
	others.Wait()
	return context.Cause(lineCtx)
}

func (a *Agent) handleHello(life context.Context, h Hello) {
	a.mu.Lock()
	a.hello, a.greeted = h, true
	lost := a.interrupted
	a.interrupted = nil
	a.mu.Unlock()
	for _, k := range lost {
		a.sendFailure(life, envelope.Envelope{RequestID: k.Request}, envelope.Unavailable(h.AgentID, nil))
	}
	a.log.Info("connected", "agent_id", h.AgentID, "type", h.AgentType)
	if a.opts.OnConnect != nil {
		a.opts.OnConnect(h)
	}
}

// read handles frames until the connection ends.
func (a *Agent) read(ctx, life context.Context, conn *websocket.Conn) error {
	for {
		_, data, err := conn.Read(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return errors.New("the connection was lost")
		}
		if err != nil {
			return err
		}
		if err := a.handleFrame(life, data); err != nil {
			return err
		}
	}
}

// handleFrame handles a frame from the server. It never waits; an error ends the connection.
func (a *Agent) handleFrame(life context.Context, data []byte) error {
	f, err := readFrame(data)
	switch {
	case err != nil:
		return err
	case f.Type != nil:
		a.receive(life, data)
	case f.Bye != nil:
		a.log.Info("the server ends the connection", "reason", f.Bye.Reason)
		if f.Bye.Reason == byeReplaced {
			return errReplaced
		}
	default:
		a.outbox.acknowledge(f.Ack)
	}
	return nil
}

// write sends messages until the connection ends.
func (a *Agent) write(ctx context.Context, conn *websocket.Conn, h Hello) error {
	every := heartbeat
	if h.HeartbeatSeconds > 0 {
		every = max(time.Duration(h.HeartbeatSeconds*float64(time.Second)), minHeartbeat)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	a.presenceChanged.Set()
	var again <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.acks.Signal:
			err = a.sendAcks(ctx, conn)
		case <-a.outbox.ready:
			err = a.sendAll(ctx, conn)
		case <-a.resend:
			if again == nil {
				again = time.After(retryAfter)
			}
		case <-again:
			again = nil
			a.outbox.resendAll()
		case <-a.presenceChanged:
			err = a.sendHeartbeat(ctx, conn)
		case <-tick.C:
			if a.outbox.overdue(time.Now().Add(-2 * every)) {
				a.outbox.resendAll() // the server may have failed to store it
			}
			// The pong shows that the network works: a write alone succeeds for a long time
			// without it.
			if err = a.sendHeartbeat(ctx, conn); err == nil {
				err = ping(ctx, conn)
			}
		}
		if err != nil {
			return err
		}
	}
}

// sendAll sends the messages that were not sent on this connection, and acknowledgements between
// them.
func (a *Agent) sendAll(ctx context.Context, conn *websocket.Conn) error {
	for {
		p, ok := a.outbox.next(time.Now())
		if !ok {
			return nil
		}
		if err := writeMessage(ctx, conn, p.data); err != nil {
			return err
		}
		if err := a.sendAcks(ctx, conn); err != nil {
			return err
		}
	}
}

// sendAcks acknowledges the messages that were received.
func (a *Agent) sendAcks(ctx context.Context, conn *websocket.Conn) error {
	ids := a.acks.Take()
	if len(ids) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string][]uuid.UUID{"ack": ids})
	if err != nil {
		return err
	}
	return writeMessage(ctx, conn, data)
}

func writeMessage(ctx context.Context, conn *websocket.Conn, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, data)
}

func ping(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// sendHeartbeat sends a heartbeat. It is not kept for the next connection, which sends its own.
func (a *Agent) sendHeartbeat(ctx context.Context, conn *websocket.Conn) error {
	data, err := envelope.Format(a.newEnvelope(envelope.Envelope{TraceID: uuid.New(), RequestID: uuid.New()}, a.presence()))
	if err != nil {
		return err
	}
	return writeMessage(ctx, conn, data)
}

// Hello is the first frame from the server on a connection.
type Hello struct {
	AgentID   string `json:"agent_id"`
	AgentType string `json:"agent_type"`
	// Version is the version of the protocol that both sides use.
	Version string `json:"version"`
	// Concurrency is how much work the server sends at a time.
	Concurrency      int       `json:"concurrency"`
	HeartbeatSeconds float64   `json:"heartbeat_seconds"`
	ServerTime       time.Time `json:"server_time"`
}

// frame is a frame of a connection: an envelope, or a control frame.
type frame struct {
	Type  *string     `json:"type"`
	Hello *Hello      `json:"hello"`
	Ack   []uuid.UUID `json:"ack"`
	Bye   *struct {
		Reason string `json:"reason"`
	} `json:"bye"`
}

func readFrame(data []byte) (f frame, err error) {
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("the server sent an invalid frame: %w", err)
	}
	return f, nil
}

func readHello(data []byte) (h Hello, err error) {
	f, err := readFrame(data)
	if err != nil {
		return h, err
	}
	if f.Type != nil {
		if e, err := envelope.Parse(data); err == nil && e.Type == envelope.TypeError {
			f := e.Payload.(envelope.Failure)
			return h, &ResponseError{Status: f.Code.HTTPStatus(), Code: int(f.Code), Detail: f.Message}
		}
	}
	if f.Hello == nil {
		return h, fmt.Errorf("the first frame from the server is not a hello")
	}
	if h = *f.Hello; h.AgentID == "" || h.AgentType == "" {
		return h, fmt.Errorf("the server's hello has no agent_id or no agent_type")
	}
	if h.Version != "" && h.Version != envelope.Version {
		return h, fmt.Errorf("the server chose protocol version %s; this agent offers only %s", h.Version, envelope.Version)
	}
	return h, nil
}
