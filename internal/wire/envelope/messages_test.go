package envelope_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

var update = flag.Bool("update", false, "write testdata/messages.json")

// TestMessages compares a message of each kind with testdata/messages.json, which the test of
// tools/openapigen/schema compares with the API description.
func TestMessages(t *testing.T) {
	t.Parallel()
	at, few := time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC), 3
	task := uuid.MustParse("550e8400-e29b-41d4-a716-446655440004")
	messages := map[string]json.RawMessage{}
	for name, p := range map[string]envelope.Payload{
		"work_request": envelope.WorkRequest{
			TaskID: task, WorkType: "dig", Parameters: []byte(`{"depth":3}`),
			Hints: envelope.Hints{MaxDurationSeconds: 1, MaxMemoryMB: 2, MaxTokens: 3},
		},
		"cancel_task": envelope.WorkRequest{TaskID: task, WorkType: envelope.WorkTypeCancel},
		"work_status": envelope.WorkStatus{
			TaskID: task, Status: envelope.StatusRunning, Progress: 50,
			Step: &envelope.Step{Number: 2, Name: "dig", Output: "abc", Chunk: envelope.Range{To: 3, Total: 9}},
		},
		"heartbeat": envelope.Heartbeat{AgentID: "infra-1", Status: envelope.PresenceBusy, Load: &few, Queue: &few},
		"work_result": envelope.WorkResult{
			TaskID: task, Status: envelope.OutcomeFailed, ExitCode: 1, Output: "a hole",
			Resources: envelope.Resources{DurationSeconds: 1, GPUVRAMMB: 2, CPUTimeMS: 3, Tokens: 4},
		},
		"5001":                          envelope.Timeout(3, at),
		"5002":                          envelope.Unavailable("infra-1", &at),
		"5003":                          envelope.InvalidMessage(envelope.Problem{Field: "type", Detail: "x"}),
		"5004":                          envelope.AuthenticationFailed("infra"),
		"5005":                          envelope.ResourceLimit("gpu_vram_mb", 1, 2),
		"5006":                          envelope.UnsupportedWorkType("dig", []string{"fly"}),
		"5006 for a version":            envelope.UnsupportedVersion("9.0", []string{"1.0"}),
		"5002 without a last heartbeat": envelope.Unavailable("infra", nil),
	} {
		text, err := envelope.Format(envelope.Envelope{
			ProtocolVersion: envelope.Version, MessageID: task, From: "infra", To: envelope.Orchestrator, Timestamp: at,
			TraceID: task, RequestID: task, Type: p.Type(), Payload: p, Custom: []byte(`{"a":1}`),
		})
		require.NoError(t, err)
		parsed, err := envelope.Parse(text)
		require.NoError(t, err)
		require.Equal(t, p.Type(), parsed.Type)
		messages[name] = text
	}
	const file = "testdata/messages.json"
	got, err := json.MarshalIndent(messages, "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got), "run go test ./internal/wire/envelope -run TestMessages -update")
}
