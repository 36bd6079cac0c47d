package tools_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/orchestrator"
	"comet/internal/sandbox"
	"comet/internal/testkit"
	"comet/internal/testkit/toolstest"
	"comet/models"
)

// TestMain also acts as a process of the sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument {
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// The calls of these tests are made through the service, as an API makes them. The wire formats of
// MCP and of the REST API are tested in internal/mcp, api and internal/app.

// definition returns the stored definition of a tool.
func definition(t *testing.T, s *toolstest.Tools, server, tool string) (d models.ToolDefinition) {
	t.Helper()
	list, err := s.ToolDefinitions(t.Context(), server)
	require.NoError(t, err)
	for _, d := range list {
		if d.Name == tool {
			return d
		}
	}
	return d
}

// submit submits a task that requires a capability, as a principal.
func submit(t *testing.T, s *toolstest.Tools, by models.Principal, capability, parameters string) models.Task {
	t.Helper()
	made, err := s.Work.Submit(t.Context(), by, orchestrator.Submission{Capabilities: []string{capability}, Parameters: []byte(parameters)}, nil)
	require.NoError(t, err)
	return made.Task
}

// submitAndWait submits a task and waits for its end.
func submitAndWait(t *testing.T, s *toolstest.Tools, by models.Principal, capability, parameters string) models.Task {
	t.Helper()
	return s.Work.WaitForTask(t, submit(t, s, by, capability, parameters).ID, testkit.Ended)
}

// output returns the output of a task.
func output(t *testing.T, s *toolstest.Tools, task models.Task) (text string) {
	t.Helper()
	require.NoError(t, s.Work.Output(t.Context(), task, models.StreamResult, 0, func(c models.OutputChunk) error {
		text += string(c.Data)
		return nil
	}))
	return text
}

// digestOf returns the digest of arguments in the audit log.
func digestOf(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}

// tokensOf returns the tokens of calls.
func tokensOf(calls []models.ToolCall) (sum int64) {
	for _, c := range calls {
		sum += c.Tokens
	}
	return sum
}

// used returns the tokens that an agent used today.
func used(t *testing.T, s *toolstest.Tools, agentID string) int64 {
	t.Helper()
	u, err := s.Work.Ledger.Usage(t.Context(), agentID)
	require.NoError(t, err)
	return u.UsedToday
}

// reserved returns the tokens that are reserved for an agent.
func reserved(t *testing.T, s *toolstest.Tools, agentID string) int64 {
	t.Helper()
	u, err := s.Work.Ledger.Usage(t.Context(), agentID)
	require.NoError(t, err)
	return u.Reserved
}
