package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	wire "comet/internal/wire/envelope"
	"comet/models"
)

// TestForwarding: a requester gets what its worker reports.
func TestForwarding(t *testing.T) {
	t.Parallel()
	for code, context := range map[wire.Code]string{
		wire.CodeInvalidMessage:       `{"field_name":"parameters.x","validation_error":"bad x"}`,
		wire.CodeAuthenticationFailed: `{"agent_id":"git","token_status":"expired"}`,
		wire.CodeUnsupportedWorkType:  `{"work_type_requested":"playbook of version 9","supported_types":["version 8"]}`,
	} {
		runCase(t, "an error of a worker keeps its code and context: "+code.Name(), func(t *testing.T, f *fixture) {
			f.worker(t, "infra-1", "infra", "run_playbook")
			raw, task := request(t, "infra", "run_playbook", nil, nil)
			f.accepted(t, client("ci"), raw)
			ids := read(t, raw)
			f.accepted(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError,
				map[string]any{"error_code": code, "error_message": "refused", "error_context": json.RawMessage(context)},
				map[string]any{"request_id": ids.RequestID, "trace_id": ids.TraceID}))
			failure, reply := f.refused(t, client("ci"), raw)
			require.Equal(t, code, failure.Code)
			require.Equal(t, "refused", failure.Message)
			require.JSONEq(t, context, string(failure.Context))
			require.NotEqual(t, 401, reply.Status, "the token of the request was accepted")
			ended, err := f.work.Task(t.Context(), task)
			require.NoError(t, err)
			require.Equal(t, models.TaskFailed, ended.State)
		})
	}

	runCase(t, "the context of an error does not choose the code", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, _ := request(t, "infra", "run_playbook", nil, nil)
		f.accepted(t, client("ci"), raw)
		ids := read(t, raw)
		f.accepted(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError, map[string]any{
			"error_code": wire.CodeInvalidMessage, "error_message": "refused",
			"error_context": json.RawMessage(`{"field_name":"x","validation_error":"too long","code":5001,"envelope_code":5001,"envelope_context":{}}`),
		}, map[string]any{"request_id": ids.RequestID, "trace_id": ids.TraceID}))
		failure, _ := f.refused(t, client("ci"), raw)
		require.Equal(t, wire.CodeInvalidMessage, failure.Code)
	})

	runCase(t, "a connected requester gets the progress of its task", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		f.worker(t, "code-1", "code", "generate_code")
		_, stop := f.work.Inbox("code-1")
		defer stop()
		task := uuid.NewString()
		raw := message(t, "code", "infra", wire.TypeWorkRequest, map[string]any{"task_id": task, "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		f.accepted(t, agentPrincipal("code-1", models.ScopeMessagesSend), raw)
		for n := range 3 {
			f.accepted(t, agentPrincipal("infra-1"), status(t, task, 20*(n+1), map[string]any{"number": n + 1, "name": "step", "output": ""}))
		}
		got := f.drainInbox(t, "code-1")
		require.Len(t, got, 1, "the newest progress")
		require.Equal(t, wire.WorkStatus{TaskID: uuid.MustParse(task), Status: wire.StatusRunning, Progress: 60, Step: &wire.Step{Number: 3, Name: "step"}}, got[0].Payload)
		require.Equal(t, read(t, raw).RequestID, got[0].RequestID)
		require.Empty(t, f.drainInbox(t, "code-1"))
		stop()
		f.accepted(t, agentPrincipal("infra-1"), status(t, task, 80, nil))
		require.Empty(t, f.drainInbox(t, "code-1"), "nothing is stored for a requester that is not connected")
	})
}
