package models

// ShortID is the short name of a task: the number of its context, which is its session or
// itself where it is in none, and its own number there (PROTOCOL_V5 §3.2: CTX, TID).
type ShortID struct {
	Context int64
	Task    int
}

// MaxContextTasks is the highest number of a task in a context.
const MaxContextTasks = 999
