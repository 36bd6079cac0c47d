package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

func submissionOf(capability string) orchestrator.Submission {
	return orchestrator.Submission{Capabilities: []string{capability}, Priority: orchestrator.DefaultPriority}
}

func contextOf(t *testing.T, failure wire.Failure) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(failure.Context, &out))
	return out
}

// TestSender: a sender that does not match its token is 5004 without details (Chiffon
// §Authentication).
func TestSender(t *testing.T) {
	t.Parallel()
	runCase(t, "a mismatch is 5004", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		f.work.AddAgent(t, "plain", "", "run_playbook")
		ask := func(from string) []byte {
			return message(t, from, "infra", wire.TypeWorkRequest, map[string]any{"task_id": uuid.NewString(), "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		}
		beat := func(from, id string) []byte {
			return message(t, from, "orchestrator", wire.TypeWorkStatus, map[string]any{"agent_id": id, "status": "online"}, nil)
		}
		reader := models.Principal{TokenID: "reader", Scopes: []models.Scope{models.ScopeAgentsRead}}
		for name, c := range map[string]struct {
			from models.Principal
			raw  []byte
		}{
			"the orchestrator's name with an agent's token": {agentPrincipal("infra-1", models.ScopeMessagesSend), ask("orchestrator")},
			"another type":                         {agentPrincipal("infra-1"), beat("code", "infra-1")},
			"an agent's name without its token":    {client("ci"), ask("infra")},
			"a token without messages:send":        {reader, ask("orchestrator")},
			"an agent without messages:send":       {agentPrincipal("infra-1"), ask("infra")},
			"an agent without a type":              {agentPrincipal("plain"), beat("infra", "plain")},
			"an unregistered agent":                {agentPrincipal("ghost"), beat("infra", "ghost")},
			"a heartbeat that names another agent": {agentPrincipal("infra-1"), beat("infra", "plain")},
			"a heartbeat of a client":              {client("ci"), beat("orchestrator", "infra-1")},
		} {
			failure, a := f.refused(t, c.from, c.raw)
			require.Equal(t, wire.CodeAuthenticationFailed, failure.Code, name)
			require.Equal(t, 401, a.Status, name)
			require.Equal(t, "invalid", contextOf(t, failure)["token_status"], name)
			sent := read(t, c.raw)
			e := read(t, a.Body)
			require.Equal(t, sent.TraceID, e.TraceID, name)
			require.Equal(t, sent.RequestID, e.RequestID, name)
		}
	})
}

// TestRefuse: an error of a transport gets the code and status of the document's table (Chiffon
// §Error Codes; docs/protocol-envelope.md).
func TestRefuse(t *testing.T) {
	t.Parallel()
	runCase(t, "has the status of its code", func(t *testing.T, f *fixture) {
		for name, c := range map[string]struct {
			err    error
			code   wire.Code
			status int
			wait   time.Duration
		}{
			"a rejected token":            {errs.New(errs.Unauthenticated, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"an inactive agent":           {errs.New(errs.AgentInactive, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token without a scope":     {errs.New(errs.MissingScope, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token bound to no agent":   {errs.New(errs.ForeignAgent, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token over its rate limit": {errs.New(errs.RateLimited, "x").With("retry_after", 7), wire.CodeUnavailable, 429, 7 * time.Second},
			"an unavailable server":       {errs.New(errs.Unavailable, "x"), wire.CodeUnavailable, 503, time.Second},
			"a message that is too long":  {errs.New(errs.BodyTooLarge, "x"), wire.CodeInvalidMessage, 413, 0},
			"another media type":          {errs.New(errs.UnsupportedMediaType, "x"), wire.CodeInvalidMessage, 415, 0},
			"an unsupported version":      {errs.New(errs.UnsupportedWork, "x"), wire.CodeUnsupportedWorkType, 422, 0},
		} {
			raw, _ := request(t, "infra", "run_playbook", nil, nil)
			a := f.Refuse(c.err, raw)
			e := read(t, a.Body)
			require.Equal(t, c.code, e.Payload.(wire.Failure).Code, name)
			require.Equal(t, c.status, a.Status, name)
			require.Equal(t, c.wait, a.RetryAfter, name)
			require.Equal(t, read(t, raw).RequestID, e.RequestID, name)
		}
	})
}

// TestRefusedField: a field is in the payload of a message, or in the body of a request without one.
func TestRefusedField(t *testing.T) {
	t.Parallel()
	runCase(t, "is named by its path", func(t *testing.T, f *fixture) {
		err := errs.New(errs.InvalidRequest, "x")
		err.Fields = []errs.Field{{Pointer: "/step/ids", Detail: "x"}}
		raw, _ := request(t, "infra", "run_playbook", nil, nil)
		for body, field := range map[string]string{string(raw): "payload.step.ids", "": "step.ids"} {
			failure := read(t, f.Refuse(err, []byte(body)).Body).Payload.(wire.Failure)
			require.Equal(t, field, contextOf(t, failure)["field_name"])
		}
	})
}

// TestRefusals: an error gets the document's code and context (Chiffon §Error Codes).
func TestRefusals(t *testing.T) {
	t.Parallel()

	runCase(t, "an unknown work type is 5006 and names the supported ones", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook", "deploy_service")
		f.worker(t, "code-1", "code", "generate_code")
		raw, task := request(t, "infra", "generate_code", nil, nil)
		failure, a := f.refused(t, client("ci"), raw)
		require.Equal(t, wire.CodeUnsupportedWorkType, failure.Code)
		require.Equal(t, 422, a.Status)
		require.Equal(t, map[string]any{"work_type_requested": "generate_code", "supported_types": []any{"deploy_service", "run_playbook"}}, contextOf(t, failure))
		_, err := f.work.Task(t.Context(), task)
		require.Error(t, err, "the task does not exist")
	})

	runCase(t, "an insufficient budget is 5005", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, _ := request(t, "infra", "run_playbook", map[string]any{"max_tokens": 60_000}, nil)
		failure, a := f.refused(t, client("ci"), raw)
		require.Equal(t, wire.CodeResourceLimit, failure.Code)
		require.Equal(t, 429, a.Status)
		require.Equal(t, map[string]any{"limit_name": "token_budget", "available": 50_000.0, "required": 60_000.0}, contextOf(t, failure))
	})

	runCase(t, "a request_id identifies one request of one principal", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		sent := read(t, raw)
		f.accepted(t, client("ci"), raw)
		var again map[string]any
		require.NoError(t, json.Unmarshal(raw, &again))
		again["message_id"], again["trace_id"], again["timestamp"] = uuid.NewString(), uuid.NewString(), "2026-01-19T04:22:00Z"
		text, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, "/api/v1/tasks/"+task, f.accepted(t, client("ci"), text).Location, "the same request again")
		require.Len(t, f.drainInbox(t, "infra-1"), 1)

		other, _ := request(t, "infra", "run_playbook", nil, map[string]any{"request_id": sent.RequestID})
		failure, _ := f.refused(t, client("ci"), other)
		require.Equal(t, wire.CodeInvalidMessage, failure.Code)
		require.Equal(t, "request_id", contextOf(t, failure)["field_name"])
		f.accepted(t, client("cd"), other)

		taken := message(t, "orchestrator", "infra", wire.TypeWorkRequest, map[string]any{"task_id": task, "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		failure, a := f.refused(t, client("ci"), taken)
		require.Equal(t, wire.CodeInvalidMessage, failure.Code)
		require.Equal(t, 400, a.Status)
		require.Equal(t, "payload.task_id", contextOf(t, failure)["field_name"])
	})

	runCase(t, "a report on a task of another agent is 5003", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		f.worker(t, "infra-2", "infra")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		f.accepted(t, client("ci"), raw)
		for _, message := range [][]byte{status(t, task, 5, nil), result(t, task, "success", 0, "", 0), status(t, uuid.NewString(), 5, nil)} {
			failure, _ := f.refused(t, agentPrincipal("infra-2"), message)
			require.Equal(t, wire.CodeInvalidMessage, failure.Code)
			require.Equal(t, "payload.task_id", contextOf(t, failure)["field_name"])
		}
		failure, _ := f.refused(t, client("ci"), message(t, "orchestrator", "infra", wire.TypeWorkStatus, map[string]any{"task_id": task, "status": "running", "progress_percent": 1}, nil))
		require.Equal(t, "from_agent", contextOf(t, failure)["field_name"])
		failure, _ = f.refused(t, agentPrincipal("infra-1"), message(t, "infra", "code", wire.TypeWorkStatus, map[string]any{"task_id": task, "status": "running", "progress_percent": 1}, nil))
		require.Equal(t, "to_agent", contextOf(t, failure)["field_name"])
	})

	runCase(t, "an error from an agent ends its attempt", func(t *testing.T, f *fixture) {
		f.worker(t, "infra-1", "infra", "run_playbook")
		for code, want := range map[wire.Code]int{wire.CodeInvalidMessage: 400, wire.CodeUnsupportedWorkType: 422} {
			raw, task := request(t, "infra", "run_playbook", nil, nil)
			f.accepted(t, client("ci"), raw)
			messages := f.drainInbox(t, "infra-1")
			contexts := map[wire.Code]map[string]any{
				wire.CodeInvalidMessage:      {"validation_error": "no playbook", "field_name": "parameters.playbook"},
				wire.CodeUnsupportedWorkType: {"work_type_requested": "run_playbook", "supported_types": []string{}},
			}
			f.accepted(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError, map[string]any{
				"error_code": code, "error_message": "no", "error_context": contexts[code],
			}, map[string]any{"request_id": messages[0].RequestID}))
			require.Equal(t, models.TaskFailed, f.work.WaitForTask(t, task, testkit.Ended).State)
			failure, a := f.refused(t, client("ci"), raw)
			require.Equal(t, code, failure.Code)
			require.Equal(t, want, a.Status)
		}
		failure, _ := f.refused(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError, map[string]any{
			"error_code": 5005, "error_message": "no", "error_context": map[string]any{"limit_name": "gpu_vram_mb", "available": 128, "required": 512},
		}, nil))
		require.Equal(t, "request_id", contextOf(t, failure)["field_name"])
	})
}
