package agent

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// The dialects that an agent can speak (Options.Dialect).
const (
	// DialectEnvelope is the envelope protocol 1.0, and the default.
	DialectEnvelope = "envelope"
	// DialectV5 is PROTOCOL_V5, one line of text a message.
	DialectV5 = "v5"
)

// speech is what an agent speaks on its line. The rest of this package thinks in
// envelopes, whatever goes over the wire.
type speech interface {
	// dial opens a line and waits until the server has greeted the agent on it.
	dial(ctx context.Context) (*websocket.Conn, Hello, error)
	// hear takes what comes. It never waits; an error ends the line.
	hear(life context.Context, data []byte) error
	// recall has a request be known of which an earlier process did not tell the end.
	recall(k Key)
	// payloads are the messages that give the answer to a request.
	payloads(out answer, request envelope.WorkRequest, last envelope.WorkStatus) []envelope.Payload
	// parcels is a message as it is sent. The server acknowledges each part of it.
	parcels(e envelope.Envelope) ([]parcel, error)
	// sending notes that a parcel is sent on the line that is open now.
	sending(p parcel)
	// receipts acknowledge what the server has sent.
	receipts(ids []uuid.UUID) [][]byte
	// seal is a message as it goes out, each time it does.
	seal(data []byte) ([]byte, error)
	// beat is a heartbeat.
	beat(h envelope.Heartbeat) ([]byte, error)
}

func newSpeech(a *Agent) (speech, error) {
	switch a.opts.Dialect {
	case "", DialectEnvelope:
		if a.opts.Key != "" {
			return nil, errors.New("agent: only lines of DialectV5 are signed with a key")
		}
		return envelopes{a}, nil
	case DialectV5:
		return newPipes(a), nil
	}
	return nil, errors.New("agent: the dialect must be envelope or v5")
}

// envelopes is the envelope protocol.
type envelopes struct{ *Agent }

// seal implements speech.
func (envelopes) seal(data []byte) ([]byte, error) { return data, nil }

// dial opens a connection and waits for the server's hello.
func (a envelopes) dial(ctx context.Context) (*websocket.Conn, Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := a.connect(ctx, url.Values{"versions": {envelope.Version}, "concurrency": {strconv.Itoa(a.opts.Concurrency)}}, subprotocol)
	if err != nil {
		return nil, Hello{}, err
	}
	_, data, err := conn.Read(ctx)
	var h Hello
	if err == nil {
		h, err = readHello(data)
	}
	if err != nil {
		_ = conn.Close(websocket.StatusProtocolError, "a hello was expected")
		return nil, h, err
	}
	return conn, h, nil
}

// connect opens a WebSocket.
func (a *Agent) connect(ctx context.Context, query url.Values, subprotocol string) (*websocket.Conn, error) {
	conn, resp, err := websocket.Dial(ctx, a.url+"/api/agent/connect?"+query.Encode(), &websocket.DialOptions{ //nolint:bodyclose // it need not be, says its documentation
		HTTPClient: a.opts.Client, HTTPHeader: http.Header{"Authorization": {"Bearer " + a.token}}, Subprotocols: []string{subprotocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, newRefused(resp)
		}
		if inURL := (*url.Error)(nil); errors.As(err, &inURL) {
			err = inURL.Err // the address is known
		}
		return nil, err
	}
	conn.SetReadLimit(readLimit)
	return conn, nil
}

func (a envelopes) hear(life context.Context, data []byte) error {
	f, err := readFrame(data)
	switch {
	case err != nil:
		return err
	case f.Type != nil:
		a.receive(life, data)
	case f.Bye != nil:
		a.log.Info("the server ends the line", "reason", f.Bye.Reason)
		if f.Bye.Reason == byeReplaced {
			return errReplaced
		}
	default:
		a.outbox.acknowledge(f.Ack)
	}
	return nil
}

func (a envelopes) recall(Key) {} // its ids say it all

func (a envelopes) payloads(out answer, request envelope.WorkRequest, last envelope.WorkStatus) []envelope.Payload {
	return out.payloads(request, last)
}

func (a envelopes) parcels(e envelope.Envelope) ([]parcel, error) {
	data, err := envelope.Format(e)
	if err != nil {
		return nil, err
	}
	return []parcel{{id: e.MessageID, request: e.RequestID, data: data}}, nil
}

func (a envelopes) sending(parcel) {}

func (a envelopes) receipts(ids []uuid.UUID) [][]byte { return [][]byte{ackFrame(ids)} }

func (a envelopes) beat(p envelope.Heartbeat) ([]byte, error) {
	a.mu.Lock()
	from := a.hello.AgentType
	a.mu.Unlock()
	return envelope.Format(envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.New(), From: from, To: envelope.Orchestrator, Timestamp: time.Now(),
		TraceID: uuid.New(), RequestID: uuid.New(), Type: p.Type(), Payload: p,
	})
}
