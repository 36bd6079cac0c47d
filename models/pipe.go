package models

// PipeName is what a task is called in the pipe protocol: the number of its context (S)
// and its own in that (T) (PROTOCOL_V5 §3.2).
type PipeName struct {
	Context int64
	Task    int
}

// MaxPipeTask is the highest number of a task in a context.
const MaxPipeTask = 999
