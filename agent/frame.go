package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// Hello is the server's first word on a line.
type Hello struct {
	AgentID   string `json:"agent_id"`
	AgentType string `json:"agent_type"`
	// Version is the protocol version both sides speak.
	Version string `json:"version"`
	// Concurrency is how much work the server hands over at a time.
	Concurrency      int       `json:"concurrency"`
	HeartbeatSeconds float64   `json:"heartbeat_seconds"`
	ServerTime       time.Time `json:"server_time"`
}

// frame is what comes over a line: an envelope, or a word about the line itself.
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
		return f, fmt.Errorf("the server sent what is no frame: %w", err)
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
		return h, fmt.Errorf("the server did not say hello first")
	}
	if err := json.Unmarshal(f.Hello, &h); err != nil {
		return h, fmt.Errorf("the server's hello cannot be understood: %w", err)
	}
	if h.AgentID == "" || h.AgentType == "" {
		return h, fmt.Errorf("the server's hello names no agent, or not its type")
	}
	if h.Version != "" && h.Version != envelope.Version {
		return h, fmt.Errorf("the server chose protocol version %s, only %s was offered", h.Version, envelope.Version)
	}
	return h, nil
}

// ackFrame acknowledges messages.
func ackFrame(ids []uuid.UUID) []byte {
	data, err := json.Marshal(map[string][]uuid.UUID{"ack": ids})
	if err != nil {
		panic(err) // ids are texts
	}
	return data
}
