// Package genesis is the codec of the Genesis protocol 1.0, the signed JSON messages of the document
// “Genesis Nexus”: REQUEST, RESPONSE, EVENT and ERROR. It validates the form of messages, prints the
// texts that signatures cover, signs and verifies. It has no clock and no keys of its own: other
// packages decide what a message means and which key belongs to an agent.
package genesis

import (
	"crypto/ed25519"
	"time"
)

// Version is the protocol version that Format writes. Parse also accepts 1.0.0.
const Version = "1.0"

// Broadcast is the recipient of a message to all agents that it concerns.
const Broadcast = "broadcast"

// The limits of a message.
const (
	// MaxSize is the size limit of a message, in bytes of JSON.
	MaxSize = 8 << 20
	// MaxSkew is the largest difference between a message's timestamp and the time of its arrival.
	MaxSkew = 5 * time.Minute

	maxDepth        = 64       // levels of objects and arrays in the value of a member
	maxMembers      = 100      // members of a message, and of an object that the protocol defines
	maxEntities     = 100      // entities of a REQUEST
	maxSources      = 1000     // sources of a RESPONSE
	maxContext      = 64 << 10 // bytes of a REQUEST's context
	maxEventPayload = 1 << 20  // bytes of an EVENT's payload
	maxIntent       = 64       // bytes of an intent
	maxName         = 128      // bytes of ids, types and codes
	maxText         = 64 << 10 // bytes of a text for people and of an entity's value

	// maxMilliseconds is the largest duration that time.Duration represents.
	maxMilliseconds = int64((1<<63 - 1) / time.Millisecond)
	// maxTokens is the largest number of tokens that an agent may report.
	maxTokens = 1_000_000_000_000
	// maxOffset is the largest integer that JavaScript represents exactly.
	maxOffset = 1<<53 - 1
)

// Type is the type of a message (Genesis §Types de Messages).
type Type string

// The message types.
const (
	TypeRequest  Type = "REQUEST"
	TypeResponse Type = "RESPONSE"
	TypeEvent    Type = "EVENT"
	TypeError    Type = "ERROR"
)

// Message is one message. Its signatures cover the texts that Parse received or Sign rendered; later
// changes of the fields do not change these texts.
type Message struct {
	// ID is a UUID in the spelling of the sender, because the signature covers it.
	ID   string `json:"id"`
	Type Type   `json:"type"`
	From string `json:"from"`
	// To is an agent or Broadcast, "" for an EVENT without a recipient.
	To string `json:"to,omitzero"`
	// CorrelationID is "" if it is missing. An EVENT has none.
	CorrelationID string `json:"correlationId,omitzero"`
	// Timestamp is when the message was sent, in nanoseconds since 1970.
	Timestamp int64 `json:"timestamp"`
	// Signature is the signature of the profile v1, SignatureJCS that of the profile jcs, nil if it
	// is missing.
	Signature    []byte `json:"signature"`
	SignatureJCS []byte `json:"signatureJcs,omitzero"`
	// PublicKey is the key that the sender states. It proves nothing by itself.
	PublicKey ed25519.PublicKey `json:"publicKey"`
	// Body is nil if Parse failed.
	Body Body `json:"-"`
	// members are all members in the order of the message.
	members []member
}

// Body is one of Request, Response, Event and Failure.
type Body interface {
	// Type returns the type of the message around the body.
	Type() Type
}

// Time returns the timestamp.
func (m Message) Time() time.Time { return time.Unix(0, m.Timestamp).UTC() }
