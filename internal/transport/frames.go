package transport

import (
	"bytes"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/models"
)

// frame is what the two ends of a line tell each other about the line itself: an object
// with one of these members, and none that a message has.
type frame struct {
	Hello *hello   `json:"hello,omitzero"`
	Ack   []string `json:"ack,omitzero"`
	Bye   *bye     `json:"bye,omitzero"`
}

// hello is the first thing that an agent is told.
type hello struct {
	AgentID   string `json:"agent_id"`
	AgentType string `json:"agent_type"`
	Version   string `json:"version"`
	// Concurrency is how much work is handed over at a time.
	Concurrency      int       `json:"concurrency"`
	HeartbeatSeconds float64   `json:"heartbeat_seconds"`
	ServerTime       time.Time `json:"server_time"`
}

// helloFrame is what an agent is told first on a line.
func helloFrame(l *Server, h *connection, agent models.Agent, version string) frame {
	return frame{Hello: &hello{
		AgentID: h.agentID, AgentType: agent.Type, Version: version, Concurrency: h.concurrency,
		HeartbeatSeconds: l.opts.Heartbeat.Seconds(), ServerTime: l.opts.Clock().UTC().Truncate(time.Millisecond),
	}}
}

// bye is the last thing, where the line ends from this side.
type bye struct {
	Reason endReason `json:"reason"`
}

func (f frame) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // texts, numbers and a time of our own
	}
	return b
}

// parseFrame reads what an agent says about the line; ok is false for a message, which
// is the dialect's.
func parseFrame(raw []byte) (f frame, ok bool) {
	if !hasFirstMember(raw, "hello", "ack", "bye") {
		return frame{}, false
	}
	return f, json.Unmarshal(raw, &f) == nil
}

// hasFirstMember reports whether raw begins as an object whose first member has one of the
// names. It reads no further.
func hasFirstMember(raw []byte, names ...string) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return false
	}
	name, err := dec.ReadToken()
	return err == nil && name.Kind() == '"' && slices.Contains(names, name.String())
}
