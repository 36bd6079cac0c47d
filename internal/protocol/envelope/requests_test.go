package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
	"comet/internal/testkit"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

func status(t *testing.T, task string, percent int, step map[string]any) []byte {
	t.Helper()
	payload := map[string]any{"task_id": task, "status": "running", "progress_percent": percent}
	if step != nil {
		payload["step"] = step
	}
	return message(t, "infra", "orchestrator", wire.TypeWorkStatus, payload, nil)
}

func result(t *testing.T, task, outcome string, code int, output string, tokens int) []byte {
	t.Helper()
	return message(t, "infra", "orchestrator", wire.TypeWorkResult, map[string]any{
		"task_id": task, "status": outcome, "exit_code": code, "output": output,
		"resources_used": map[string]any{"duration_seconds": 87, "gpu_vram_mb": 0, "cpu_time_ms": 12450, "tokens": tokens},
	}, nil)
}

// TestWork: a request reaches an agent, and the agent's reports reach the requester (Chiffon
// §Example: Full Workflow).
func TestWork(t *testing.T) {
	t.Parallel()

	runCase(t, "a request goes to an agent of its type and the result comes back", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		f.worker(t, "code-1", "code", "run_playbook")
		custom := map[string]any{"x_custom_fields": map[string]any{"b": 1, "a": []int{2}}}
		raw, task := request(t, "infra", "run_playbook", map[string]any{"max_duration_seconds": 300, "max_memory_mb": 512, "gpu": true}, custom)
		sent := read(t, raw)
		a := f.accepted(t, client("ci"), raw)
		require.Equal(t, 202, a.Status)
		require.Equal(t, "/api/v1/tasks/"+task, a.Location)
		require.Equal(t, sent.MessageID.String(), a.MessageID)
		taken := read(t, a.Body)
		require.Equal(t, wire.TypeWorkStatus, taken.Type)
		require.Equal(t, sent.TraceID, taken.TraceID)
		require.Equal(t, sent.RequestID, taken.RequestID)

		messages := f.drainInbox(t, "infra-1")
		require.Len(t, messages, 1)
		got := messages[0].Payload.(wire.WorkRequest)
		require.Equal(t, task, got.TaskID.String())
		require.Equal(t, "run_playbook", got.WorkType)
		require.JSONEq(t, `{"n":1}`, string(got.Parameters))
		require.Equal(t, int64(300), got.Hints.MaxDurationSeconds)
		require.Equal(t, int64(512), got.Hints.MaxMemoryMB)
		require.Equal(t, []wire.Member{{Name: "gpu", Value: json.RawMessage("true")}}, got.Hints.Other)
		require.JSONEq(t, `{"b":1,"a":[2]}`, string(messages[0].Custom))
		require.Equal(t, []string{"orchestrator", "infra"}, []string{messages[0].From, messages[0].To})
		require.Equal(t, sent.RequestID, messages[0].RequestID)
		require.Equal(t, sent.TraceID, messages[0].TraceID)
		require.Empty(t, f.drainInbox(t, "code-1"))

		for n := range 5 {
			f.accepted(t, agentPrincipal("infra-1"), status(t, task, 20*(n+1), map[string]any{"number": n + 1, "name": "step", "output": "line\n"}))
		}
		f.accepted(t, agentPrincipal("infra-1"), result(t, task, "success", 0, "Deployment completed successfully.", 1200))

		again := f.accepted(t, client("ci"), raw)
		require.Equal(t, 200, again.Status)
		end := read(t, again.Body).Payload.(wire.WorkResult)
		require.Equal(t, wire.WorkResult{
			TaskID: uuid.MustParse(task), Status: wire.OutcomeSuccess, Output: "Deployment completed successfully.",
			Resources: wire.Resources{DurationSeconds: 87, CPUTimeMS: 12450, Tokens: 1200},
		}, end)
		ended, err := f.work.Task(t.Context(), task)
		require.NoError(t, err)
		var log strings.Builder
		require.NoError(t, f.work.Output(t.Context(), ended, models.StreamLog, 0, func(o models.OutputChunk) error { log.Write(o.Data); return nil }))
		require.Equal(t, strings.Repeat("line\n", 5), log.String())
	})

	runCase(t, "a failed result is not retried", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		f.accepted(t, client("ci"), raw)
		f.accepted(t, agentPrincipal("infra-1"), result(t, task, "failed", 3, "no such image", 0))
		a := f.accepted(t, client("ci"), raw)
		require.Equal(t, 200, a.Status)
		end := read(t, a.Body).Payload.(wire.WorkResult)
		require.Equal(t, wire.OutcomeFailed, end.Status)
		require.Equal(t, int64(3), end.ExitCode)
		require.Equal(t, "no such image", end.Output)
	})

	runCase(t, "a failed result is stored with its exit code and reason", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		f.accepted(t, client("ci"), raw)
		var failed map[string]any
		require.NoError(t, json.Unmarshal(result(t, task, "failed", 124, "", 0), &failed))
		failed["x_custom_fields"] = map[string]any{"failure": "too\x00slow" + strings.Repeat("y", 2000)}
		raw, err := json.Marshal(failed)
		require.NoError(t, err)
		f.accepted(t, agentPrincipal("infra-1"), raw)
		ended, err := f.work.Task(t.Context(), task)
		require.NoError(t, err)
		reason := "too\uFFFDslow" + strings.Repeat("y", 1000-len("too\uFFFDslow")) + "…"
		require.Equal(t, reason, ended.Error)
		require.JSONEq(t, `{"duration_seconds":87,"gpu_vram_mb":0,"cpu_time_ms":12450,"exit_code":124,"message":"`+reason+`"}`, string(ended.Detail))
	})

	runCase(t, "a waiting request gets the result at once", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		ended := make(chan wire.Envelope, 1)
		go func() {
			e, _ := wire.Parse(f.Receive(t.Context(), protocol.Peer{Principal: client("ci")}, raw, time.Minute).Body)
			ended <- e
		}()
		require.Eventually(t, func() bool { _, err := f.work.Task(t.Context(), task); return err == nil }, time.Minute, 5*time.Millisecond)
		f.accepted(t, agentPrincipal("infra-1"), result(t, task, "completed", 0, "done", 0))
		e := <-ended
		require.Equal(t, "done", e.Payload.(wire.WorkResult).Output)
	})

	runCase(t, "an agent may submit a task and receives its end", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		f.worker(t, "code-1", "code", "generate_code")
		task := uuid.NewString()
		raw := message(t, "code", "infra", wire.TypeWorkRequest, map[string]any{"task_id": task, "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		f.accepted(t, agentPrincipal("code-1", models.ScopeMessagesSend), raw)
		long := strings.Repeat("0123456789abcdef", 80_000) // 1.28 MB
		f.accepted(t, agentPrincipal("infra-1"), result(t, task, "success", 0, long, 0))
		messages := f.drainInbox(t, "code-1")
		require.Len(t, messages, 6, "five chunks, then the result without them")
		var got strings.Builder
		for _, e := range messages[:5] {
			got.WriteString(e.Payload.(wire.WorkStatus).Step.Output)
		}
		require.Equal(t, long, got.String())
		require.Empty(t, messages[5].Payload.(wire.WorkResult).Output)
		reply := read(t, f.Receive(t.Context(), protocol.Peer{Principal: agentPrincipal("code-1", models.ScopeMessagesSend)}, raw, 0).Body)
		for _, e := range append(messages, reply) {
			require.Equal(t, "infra", e.From, "the sender in the inbox is that of the response to the request")
			require.Equal(t, "code", e.To)
		}
		for _, e := range f.drainInbox(t, "infra-1") {
			require.Equal(t, wire.Orchestrator, e.From)
		}
	})

	runCase(t, "a task submitted over REST is a work_request too", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		sub := submissionOf("run_playbook")
		sub.Traceparent = "00-550e8400e29b41d4a716446655440002-0102030405060708-01"
		out, err := f.work.Submit(t.Context(), client("rest"), sub, nil)
		require.NoError(t, err)
		messages := f.drainInbox(t, "infra-1")
		require.Len(t, messages, 1)
		require.Equal(t, out.Task.ID, messages[0].RequestID.String())
		require.Equal(t, "550e8400-e29b-41d4-a716-446655440002", messages[0].TraceID.String())
		f.accepted(t, agentPrincipal("infra-1"), result(t, out.Task.ID, "success", 0, "ok", 0))
		require.Equal(t, models.TaskDone, f.work.WaitForTask(t, out.Task.ID, testkit.Ended).State)
	})
}

// TestCancel (decisions: “Cancel is a work_request with work_type: cancel_task”).
func TestCancel(t *testing.T) {
	t.Parallel()
	runCase(t, "cancels the task and notifies the agent", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		f.accepted(t, client("ci"), raw)
		f.accepted(t, agentPrincipal("infra-1"), status(t, task, 10, nil))
		cancel := message(t, "orchestrator", "infra", wire.TypeWorkRequest, map[string]any{"task_id": task, "work_type": "cancel_task"}, nil)
		failure, _ := f.refused(t, client("other"), cancel)
		require.Equal(t, wire.CodeInvalidMessage, failure.Code, "it is the task of another client")
		a := f.accepted(t, client("ci"), cancel)
		require.Equal(t, 200, a.Status)
		require.Equal(t, wire.OutcomeFailed, read(t, a.Body).Payload.(wire.WorkResult).Status)
		messages := f.drainInbox(t, "infra-1")
		require.Len(t, messages, 1)
		require.Equal(t, wire.WorkTypeCancel, messages[0].Payload.(wire.WorkRequest).WorkType)
		require.Equal(t, task, messages[0].Payload.(wire.WorkRequest).TaskID.String())
		f.accepted(t, agentPrincipal("infra-1"), result(t, task, "cancelled", 130, "", 5))
		require.Equal(t, models.TaskCancelled, f.work.WaitForTask(t, task, testkit.Ended).State)
	})
}
