package models

import "time"

// MaxPushURL is how long the address of a push target may be, in bytes.
const MaxPushURL = 2048

// PushTarget is where an agent's messages are pushed to.
type PushTarget struct {
	AgentID string
	URL     string
	Dialect string
	// Places is how many attempts the agent takes at a time.
	Places int
	// Secret is what comet shows there as its bearer token. It tells one registration
	// from the next.
	Secret string
	// Owner is the id of the token that registered it; with that token the target ends.
	Owner     string
	CreatedAt time.Time
	UpdatedAt time.Time
}
