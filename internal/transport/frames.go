package transport

import (
	"bytes"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
)

// frame is a control message about the connection itself: an object with one of these members, none
// of which is a member of a message.
type frame struct {
	Hello *hello   `json:"hello,omitzero"`
	Ack   []string `json:"ack,omitzero"`
	Bye   *bye     `json:"bye,omitzero"`
}

// hello is the first frame that an agent receives.
type hello struct {
	AgentID   string `json:"agent_id"`
	AgentType string `json:"agent_type"`
	Version   string `json:"version"`
	// Concurrency is how many task assignments may be unacknowledged.
	Concurrency      int       `json:"concurrency"`
	HeartbeatSeconds float64   `json:"heartbeat_seconds"`
	ServerTime       time.Time `json:"server_time"`
}

// clientHello is the first line of an agent that connects over TCP and selects a protocol, as the
// handshake request does for a WebSocket: {"hello": {"protocol": …}}.
type clientHello struct {
	// Protocol is the subprotocol or the name of a protocol.
	Protocol string `json:"protocol"`
	// Token is the agent's bearer token.
	Token string `json:"token"`
	// Concurrency is how many tasks the agent runs at a time, default 1.
	Concurrency int `json:"concurrency"`
	// Versions are the protocol versions that the agent supports.
	Versions []string `json:"versions"`
}

// parseClientHello parses the first line of a TCP connection. ok is false for another line.
func parseClientHello(line []byte) (hello clientHello, ok bool) {
	hello.Concurrency = 1
	first := struct {
		Hello *clientHello `json:"hello"`
	}{&hello}
	ok = hasFirstMember(line, "hello") && json.Unmarshal(line, &first) == nil && first.Hello != nil
	return hello, ok
}

func helloFrame(s *Server, c *connection, version string) frame {
	return frame{Hello: &hello{
		AgentID: c.agentID, AgentType: c.peer.Agent.Type, Version: version, Concurrency: c.concurrency,
		HeartbeatSeconds: s.opts.Heartbeat.Seconds(), ServerTime: s.opts.Clock().UTC().Truncate(time.Millisecond),
	}}
}

// bye is the last frame when this process closes the connection.
type bye struct {
	Reason endReason `json:"reason"`
}

func (f frame) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // it holds only valid strings, numbers and a time
	}
	return b
}

// parseFrame returns the ids that a control frame from an agent acknowledges. isFrame is false for a
// message of the protocol.
func parseFrame(raw []byte) (acked []string, isFrame bool, err error) {
	var f natsAck
	if isFrame = hasFirstMember(raw, "hello", "ack", "bye"); isFrame && json.Unmarshal(raw, &f) != nil {
		err = errs.New(errs.InvalidRequest, "ack must be an array of message ids")
	}
	return f.Ack, isFrame, err
}

// hasFirstMember reports whether raw begins as an object whose first member has one of the names.
// It reads no further.
func hasFirstMember(raw []byte, names ...string) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return false
	}
	name, err := dec.ReadToken()
	return err == nil && name.Kind() == '"' && slices.Contains(names, name.String())
}
