package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

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
	Type  *string         `json:"type"`
	Hello json.RawMessage `json:"hello"`
	Ack   []uuid.UUID     `json:"ack"`
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
			return h, failureResponse(e.Payload.(envelope.Failure))
		}
	}
	if f.Hello == nil {
		return h, fmt.Errorf("the first frame from the server is not a hello")
	}
	if err := json.Unmarshal(f.Hello, &h); err != nil {
		return h, fmt.Errorf("the server's hello is invalid: %w", err)
	}
	if h.AgentID == "" || h.AgentType == "" {
		return h, fmt.Errorf("the server's hello has no agent_id or no agent_type")
	}
	if h.Version != "" && h.Version != envelope.Version {
		return h, fmt.Errorf("the server chose protocol version %s; this agent offers only %s", h.Version, envelope.Version)
	}
	return h, nil
}

// ackFrame is a frame that acknowledges messages.
func ackFrame(ids []uuid.UUID) []byte {
	data, err := json.Marshal(map[string][]uuid.UUID{"ack": ids})
	if err != nil {
		panic(err) // UUIDs are always encodable
	}
	return data
}
