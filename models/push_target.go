package models

import "time"

// PushTarget is the URL to which an agent's messages are pushed.
type PushTarget struct {
	AgentID  string `gorm:"primaryKey"`
	URL      string
	Protocol string
	// Concurrency is the maximum number of attempts that the agent executes at a time.
	Concurrency int
	// Secret is the bearer token that comet sends to the URL. It differs for each
	// registration.
	Secret string
	// Owner is the id of the token that registered the target. The target ends with that token.
	Owner     string
	CreatedAt time.Time `gorm:"<-:create"`
	UpdatedAt time.Time
}
