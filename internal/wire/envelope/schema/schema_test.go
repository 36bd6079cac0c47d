package schema_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
	"comet/internal/wire/envelope/schema"
)

// shown returns the message as the schema represents it.
func shown(p envelope.Payload) any {
	switch p.(type) {
	case envelope.WorkRequest:
		return &schema.WorkRequestEnvelope{}
	case envelope.WorkResult:
		return &schema.WorkResultEnvelope{}
	case envelope.Failure:
		return &schema.ErrorEnvelope{}
	case envelope.WorkStatus:
		return &struct {
			schema.Head
			Type    string            `json:"type"`
			Payload schema.WorkStatus `json:"payload"`
		}{}
	}
	return &struct {
		schema.Head
		Type    string           `json:"type"`
		Payload schema.Heartbeat `json:"payload"`
	}{}
}

// TestSchemaMatchesCodec checks that the schema has every member that comet writes, and that a
// message written by the schema is parsed as the same message.
func TestSchemaMatchesCodec(t *testing.T) {
	t.Parallel()
	at, few, task := time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC), 3, uuid.New()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrote, err := envelope.Format(envelope.Envelope{
				ProtocolVersion: envelope.Version, MessageID: uuid.New(), From: "infra", To: envelope.Orchestrator, Timestamp: at,
				TraceID: uuid.New(), RequestID: uuid.New(), Type: p.Type(), Payload: p, Custom: []byte(`{"a":1}`),
			})
			require.NoError(t, err)
			target := shown(p)
			require.NoError(t, decode(wrote, target), "%s", wrote)
			again, err := json.Marshal(target)
			require.NoError(t, err)
			want, err := envelope.Parse(wrote)
			require.NoError(t, err)
			got, err := envelope.Parse(again)
			require.NoError(t, err, "%s", again)
			require.Equal(t, want.RequestID, got.RequestID)
			if _, isError := p.(envelope.Failure); isError {
				var a, b schema.ErrorEnvelope // a null may be left out
				require.NoError(t, decode(wrote, &a))
				require.NoError(t, decode(again, &b))
				require.Equal(t, a, b)
				return
			}
			require.Equal(t, want.Payload, got.Payload)
		})
	}
}

// decode rejects unknown members.
func decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}
