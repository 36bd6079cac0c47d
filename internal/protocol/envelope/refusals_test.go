package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

func submissionOf(capability string) orchestrator.Submission {
	return orchestrator.Submission{Capabilities: []string{capability}, Priority: models.DefaultPriority}
}

func contextOf(t *testing.T, f wire.Failure) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(f.Context, &out))
	return out
}

// TestWhoMaySayWhat: what does not fit the token is 5004, without a hint
// (Chiffon §Authentication).
func TestWhoMaySayWhat(t *testing.T) {
	t.Parallel()
	runCase(t, "ATokenThatDoesNotFitIs5004", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook")
		h.agent(t, "plain", "", "run_playbook")
		ask := func(from string) []byte {
			return message(t, from, "infra", wire.TypeWorkRequest, map[string]any{"task_id": uuid.NewString(), "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		}
		beat := func(from, id string) []byte {
			return message(t, from, "orchestrator", wire.TypeWorkStatus, map[string]any{"agent_id": id, "status": "online"}, nil)
		}
		nobody := models.Principal{TokenID: "reader", Scopes: []models.Scope{models.ScopeAgentsRead}}
		for name, c := range map[string]struct {
			who models.Principal
			raw []byte
		}{
			"the orchestrator's name with an agent's token": {agentPrincipal("infra-1", models.ScopeMessagesSend), ask("orchestrator")},
			"another type":                            {agentPrincipal("infra-1"), beat("code", "infra-1")},
			"an agent's name without its token":       {client("ci"), ask("infra")},
			"a token that may not send":               {nobody, ask("orchestrator")},
			"an agent that may not ask":               {agentPrincipal("infra-1"), ask("infra")},
			"an agent without a type":                 {agentPrincipal("plain"), beat("infra", "plain")},
			"an agent that is not registered":         {agentPrincipal("ghost"), beat("infra", "ghost")},
			"a heartbeat of another agent":            {agentPrincipal("infra-1"), beat("infra", "plain")},
			"a heartbeat of somebody who is no agent": {client("ci"), beat("orchestrator", "infra-1")},
		} {
			f, a := h.refused(t, c.who, c.raw)
			require.Equal(t, wire.CodeAuthenticationFailed, f.Code, name)
			require.Equal(t, 401, a.Status, name)
			require.Equal(t, "invalid", contextOf(t, f)["token_status"], name)
			sent := read(t, c.raw)
			e := read(t, a.Body)
			require.Equal(t, sent.TraceID, e.TraceID, name)
			require.Equal(t, sent.RequestID, e.RequestID, name)
		}
	})
}

// TestALinksRefusal: what a link has against a request is said with the code and the
// status of the document's table (Chiffon §Error Codes; docs/protocol-envelope.md).
func TestALinksRefusal(t *testing.T) {
	t.Parallel()
	runCase(t, "HasTheStatusOfItsCode", func(t *testing.T, h *fixture) {
		for name, c := range map[string]struct {
			err    error
			code   wire.Code
			status int
			wait   time.Duration
		}{
			"a token that is not accepted":      {errs.New(errs.Unauthenticated, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"an agent that is inactive":         {errs.New(errs.AgentInactive, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token without a scope":           {errs.New(errs.MissingScope, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token that is bound to nobody":   {errs.New(errs.ForeignAgent, "x"), wire.CodeAuthenticationFailed, 401, 0},
			"a token that asks too often":       {errs.New(errs.RateLimited, "x").With("retry_after", 7), wire.CodeUnavailable, 429, 7 * time.Second},
			"a server that cannot at this time": {errs.New(errs.Unavailable, "x"), wire.CodeUnavailable, 503, time.Second},
			"a message that is too long":        {errs.New(errs.BodyTooLarge, "x"), wire.CodeInvalidMessage, 413, 0},
			"a message of another type":         {errs.New(errs.UnsupportedMediaType, "x"), wire.CodeInvalidMessage, 415, 0},
			"a version nobody speaks":           {errs.New(errs.UnsupportedWork, "x"), wire.CodeUnsupportedWorkType, 422, 0},
		} {
			raw, _ := request(t, "infra", "run_playbook", nil, nil)
			a := h.Refuse(c.err, raw)
			e := read(t, a.Body)
			require.Equal(t, c.code, e.Payload.(wire.Failure).Code, name)
			require.Equal(t, c.status, a.Status, name)
			require.Equal(t, c.wait, a.RetryAfter, name)
			require.Equal(t, read(t, raw).RequestID, e.RequestID, name)
		}
	})
}

// TestRefusals: what is wrong with a message is said with the document's code and
// context (Chiffon §Error Codes).
func TestRefusals(t *testing.T) {
	t.Parallel()

	runCase(t, "AnUnknownWorkTypeIs5006AndNamesTheKnownOnes", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook", "deploy_service")
		h.worker(t, "code-1", "code", "generate_code")
		raw, task := request(t, "infra", "generate_code", nil, nil)
		f, a := h.refused(t, client("ci"), raw)
		require.Equal(t, wire.CodeUnsupportedWorkType, f.Code)
		require.Equal(t, 422, a.Status)
		require.Equal(t, map[string]any{"work_type_requested": "generate_code", "supported_types": []any{"deploy_service", "run_playbook"}}, contextOf(t, f))
		_, err := h.work.Task(t.Context(), task)
		require.Error(t, err, "nothing is left of it")
	})

	runCase(t, "ABudgetThatDoesNotCoverItIs5005", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook")
		raw, _ := request(t, "infra", "run_playbook", map[string]any{"max_tokens": 60_000}, nil)
		f, a := h.refused(t, client("ci"), raw)
		require.Equal(t, wire.CodeResourceLimit, f.Code)
		require.Equal(t, 429, a.Status)
		require.Equal(t, map[string]any{"limit_name": "token_budget", "available": 50_000.0, "required": 60_000.0}, contextOf(t, f))
	})

	runCase(t, "ARequestIDStandsForOneRequestOfOnePrincipal", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		sent := read(t, raw)
		h.accepted(t, client("ci"), raw)
		var again map[string]any
		require.NoError(t, json.Unmarshal(raw, &again))
		again["message_id"], again["trace_id"], again["timestamp"] = uuid.NewString(), uuid.NewString(), "2026-01-19T04:22:00Z"
		text, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, "/api/v1/tasks/"+task, h.accepted(t, client("ci"), text).Location, "the same, sent again")
		require.Len(t, h.drainInbox(t, "infra-1"), 1)

		other, _ := request(t, "infra", "run_playbook", nil, map[string]any{"request_id": sent.RequestID})
		f, _ := h.refused(t, client("ci"), other)
		require.Equal(t, wire.CodeInvalidMessage, f.Code)
		require.Equal(t, "request_id", contextOf(t, f)["field_name"])
		h.accepted(t, client("cd"), other)

		taken := message(t, "orchestrator", "infra", wire.TypeWorkRequest, map[string]any{"task_id": task, "work_type": "run_playbook", "parameters": map[string]any{}}, nil)
		f, a := h.refused(t, client("ci"), taken)
		require.Equal(t, wire.CodeInvalidMessage, f.Code)
		require.Equal(t, 400, a.Status)
		require.Equal(t, "payload.task_id", contextOf(t, f)["field_name"])
	})

	runCase(t, "AReportOnATaskThatIsNotTheAgentsIs5003", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook")
		h.worker(t, "infra-2", "infra")
		raw, task := request(t, "infra", "run_playbook", nil, nil)
		h.accepted(t, client("ci"), raw)
		for _, message := range [][]byte{status(t, task, 5, nil), result(t, task, "success", 0, "", 0), status(t, uuid.NewString(), 5, nil)} {
			f, _ := h.refused(t, agentPrincipal("infra-2"), message)
			require.Equal(t, wire.CodeInvalidMessage, f.Code)
			require.Equal(t, "payload.task_id", contextOf(t, f)["field_name"])
		}
		f, _ := h.refused(t, client("ci"), message(t, "orchestrator", "infra", wire.TypeWorkStatus, map[string]any{"task_id": task, "status": "running", "progress_percent": 1}, nil))
		require.Equal(t, "from_agent", contextOf(t, f)["field_name"])
		f, _ = h.refused(t, agentPrincipal("infra-1"), message(t, "infra", "code", wire.TypeWorkStatus, map[string]any{"task_id": task, "status": "running", "progress_percent": 1}, nil))
		require.Equal(t, "to_agent", contextOf(t, f)["field_name"])
	})

	runCase(t, "AnAgentsErrorEndsItsAttempt", func(t *testing.T, h *fixture) {
		h.worker(t, "infra-1", "infra", "run_playbook")
		for code, want := range map[wire.Code]int{wire.CodeInvalidMessage: 400, wire.CodeUnsupportedWorkType: 422} {
			raw, task := request(t, "infra", "run_playbook", nil, nil)
			h.accepted(t, client("ci"), raw)
			told := h.drainInbox(t, "infra-1")
			contexts := map[wire.Code]map[string]any{
				wire.CodeInvalidMessage:      {"validation_error": "no playbook", "field_name": "parameters.playbook"},
				wire.CodeUnsupportedWorkType: {"work_type_requested": "run_playbook", "supported_types": []string{}},
			}
			h.accepted(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError, map[string]any{
				"error_code": code, "error_message": "no", "error_context": contexts[code],
			}, map[string]any{"request_id": told[0].RequestID}))
			require.Equal(t, models.TaskFailed, h.waitForEnd(t, task).State)
			f, a := h.refused(t, client("ci"), raw)
			require.Equal(t, code, f.Code)
			require.Equal(t, want, a.Status)
		}
		f, _ := h.refused(t, agentPrincipal("infra-1"), message(t, "infra", "orchestrator", wire.TypeError, map[string]any{
			"error_code": 5005, "error_message": "no", "error_context": map[string]any{"limit_name": "gpu_vram_mb", "available": 128, "required": 512},
		}, nil))
		require.Equal(t, "request_id", contextOf(t, f)["field_name"])
	})
}
