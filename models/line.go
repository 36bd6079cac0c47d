package models

import "time"

// LoggedMessage is a line of PROTOCOL_V5 as it was said to the orchestrator or by it (§10).
type LoggedMessage struct {
	// ID is a UUIDv7, made when the line was said: lines of one process are in the order
	// of their ids.
	ID string
	At time.Time
	// Peer is the end that the line was exchanged with, such as W1: every line is said to
	// the orchestrator or by it, also one from W1 to W2. All who ask are User in a line, and
	// here "User:" and the id of their token, so that nobody finds another's messages.
	Peer string
	// Context is the number of its context, and Task its TID there, 0 for none.
	Context int64
	Task    int
	// Depth counts the hand-offs above the part of the task that it is about.
	Depth int
	// Number is that of the message, which is counted in its context by its sender.
	Number   int
	From, To string
	Type     string
	// State and Code are "" where the line has "-".
	State, Code string
	// Data has no secrets.
	Data string
	// Parent is the number of the message that it names as its cause (§10.2, pid), 0 for
	// none.
	Parent int
	// ParentID is the id of the line that caused it: the one that Parent means, or the one
	// that it answers; "" for none that is known.
	ParentID string
}

// LoggedMessageQuery selects a page of the lines of a task, in the order in which they were said.
type LoggedMessageQuery struct {
	ShortID
	// Depth leaves out what is above a part.
	Depth int
	// After is the id of the line behind which the page starts, "" for the first.
	After string
	Limit int
}
