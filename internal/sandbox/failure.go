package sandbox

import "fmt"

// The names of failures. Timeout and Memory are the document's (AgentCards, errors); the
// others are made in their manner.
const (
	// Timeout is a run that was not over in time.
	Timeout = "SANDBOX_TIMEOUT"
	// Memory is a run that wanted more memory than it had.
	Memory = "SANDBOX_MEMORY"
	// Syntax is code that cannot be read.
	Syntax = "SANDBOX_SYNTAX"
	// Error is code that threw, or whose result is not JSON.
	Error = "SANDBOX_ERROR"
	// ResultTooLarge is a result over the limit.
	ResultTooLarge = "SANDBOX_RESULT_TOO_LARGE"
	// CodeTooLarge is code over MaxCode.
	CodeTooLarge = "SANDBOX_CODE_TOO_LARGE"
	// Crashed is a child that ended by itself, or broke the protocol.
	Crashed = "SANDBOX_CRASHED"
	// Busy is a run that found no place within its timeout.
	Busy = "SANDBOX_BUSY"
	// ToolCalls is code that called too often.
	ToolCalls = "SANDBOX_TOOL_CALLS"
	// PathDenied is a file that the code may not read. The code can catch it.
	PathDenied = "SANDBOX_PATH_DENIED"
	// Config is a request for what the sandbox does not grant.
	Config = "SANDBOX_CONFIG"
)

// Failure is a run that has no result. Its texts are for who wrote the code.
type Failure struct {
	Name    string
	Message string
	// Line and Column are where in the caller's code it happened, from 1; 0 is not known.
	Line, Column int
	// Stack is the calls that led there, innermost first, one a line.
	Stack string
	// Logs is what the code said before.
	Logs    []Log
	Metrics Metrics
}

func (f *Failure) Error() string {
	if f.Line == 0 {
		return f.Name + ": " + f.Message
	}
	return fmt.Sprintf("%s: %s (line %d, column %d)", f.Name, f.Message, f.Line, f.Column)
}

const noMemory = "the code needs more memory than it was given"
