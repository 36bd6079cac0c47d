package envelope_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// bases returns valid messages that TestParseRefuses modifies in one place.
func bases() map[string]string {
	const task = `{"task_id":"` + taskID + `",`
	return map[string]string{
		"request":   message("work_request", task+`"work_type":"w","parameters":{},"hints":{"max_duration_seconds":1,"max_memory_mb":1,"max_tokens":1}}`),
		"status":    message("work_status", task+`"status":"running","progress_percent":1,"step":{"number":1,"name":"n","output":"o","output_chunk":"bytes 0-1"}}`),
		"heartbeat": message("work_status", `{"agent_id":"a","status":"online","load":1,"queue":1}`),
		"result":    message("work_result", task+`"status":"failed","exit_code":1,"output":"o","resources_used":{"duration_seconds":1,"gpu_vram_mb":1,"cpu_time_ms":1,"tokens":1}}`),
		"5001":      message("error", `{"error_code":5001,"error_message":"m","error_context":{"attempted_retries":3,"last_attempt":"2026-01-19T04:21:04Z"}}`),
		"5002":      message("error", `{"error_code":5002,"error_message":"m","error_context":{"agent_id":"a","last_heartbeat":null}}`),
		"5003":      message("error", `{"error_code":5003,"error_message":"m","error_context":{"validation_error":"v","field_name":"f"}}`),
		"5004":      message("error", `{"error_code":5004,"error_message":"m","error_context":{"agent_id":"a","token_status":"invalid"}}`),
		"5005":      message("error", `{"error_code":5005,"error_message":"m","error_context":{"limit_name":"l","available":-1,"required":1}}`),
		"5006":      message("error", `{"error_code":5006,"error_message":"m","error_context":{"work_type_requested":"w","supported_types":["a","b"]}}`),
		"5999":      message("error", `{"error_code":5999,"error_message":"m"}`),
	}
}

// TestParseRefuses: each invalid member is reported with its path.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const nilUUID = `"00000000-0000-0000-0000-000000000000"`
	for _, c := range []struct{ base, field, value, detail string }{
		{"request", "protocol_version", absent, "is required"},
		{"request", "protocol_version", `1.0`, "must be a string, not a number"},
		{"request", "protocol_version", `""`, "must be two numbers"},
		{"request", "protocol_version", `"1"`, `not "1"`},
		{"request", "protocol_version", `"v1.0"`, "must be two numbers"},
		{"request", "protocol_version", `"1.00"`, "must be two numbers"},
		{"request", "protocol_version", `"1.0.0"`, "must be two numbers"},
		{"request", "protocol_version", `"1234567.0"`, "must be two numbers"},
		{"request", "message_id", absent, "is required"},
		{"request", "message_id", `null`, "must be a string, not null"},
		{"request", "message_id", `"x"`, `must be a UUID such as 8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11, not "x"`},
		{"request", "message_id", `"550e8400e29b41d4a716446655440001"`, "must be a UUID"},
		{"request", "message_id", `"{550e8400-e29b-41d4-a716-446655440001}"`, "must be a UUID"},
		{"request", "message_id", `"urn:uuid:550e8400-e29b-41d4-a716-446655440001"`, "must be a UUID"},
		{"request", "message_id", `"550e8400-e29b-41d4-a716-44665544000g"`, "must be a UUID"},
		{"request", "message_id", `"550e8400-e29b-41d4-a716+446655440001"`, "must be a UUID"},
		{"request", "message_id", nilUUID, "must not be the nil UUID"},
		{"5005", "message_id", nilUUID, "must not be the nil UUID"},
		{"request", "from_agent", absent, "is required"},
		{"request", "from_agent", `""`, "must be an agent type"},
		{"request", "from_agent", `"Infra"`, `not "Infra"`},
		{"request", "from_agent", `"-infra"`, "must be an agent type"},
		{"request", "from_agent", `"in fra"`, "must be an agent type"},
		{"request", "from_agent", `"` + strings.Repeat("a", envelope.MaxAgentType+1) + `"`, "must be an agent type"},
		{"request", "to_agent", absent, "is required"},
		{"request", "to_agent", `["infra"]`, "must be a string, not an array"},
		{"request", "to_agent", `"é"`, "must be an agent type"},
		{"request", "timestamp", absent, "is required"},
		{"request", "timestamp", `1768796464`, "must be a string, not a number"},
		{"request", "timestamp", `"2026-01-19T04:21:04"`, "must be an RFC 3339 time with an offset"},
		{"request", "trace_id", absent, "is required"},
		{"request", "trace_id", nilUUID, "must not be the nil UUID"},
		{"request", "request_id", absent, "is required"},
		{"request", "request_id", nilUUID, "must not be the nil UUID"},
		{"request", "request_id", `"xyz123"`, "must be a UUID"},
		{"request", "type", absent, "is required"},
		{"request", "type", `"work_requests"`, `must be one of work_request, work_status, work_result, error, not "work_requests"`},
		{"request", "payload", absent, "is required"},
		{"request", "payload", `[]`, "must be an object, not an array"},
		{"request", "payload", `null`, "must be an object, not null"},
		{"request", "x_custom_fields", `[]`, "must be an object, not an array"},
		{"request", "x_custom_fields", `null`, "must be an object, not null"},
		{"request", "x_custom_fields", `"{}"`, "must be an object, not a string"},

		{"request", "payload.task_id", absent, "is required"},
		{"request", "payload.task_id", `"1"`, "must be a UUID"},
		{"request", "payload.task_id", nilUUID, "must not be the nil UUID"},
		{"request", "payload.work_type", absent, "is required"},
		{"request", "payload.work_type", `""`, "must be the name of a capability"},
		{"request", "payload.work_type", `"deploy service"`, "must be the name of a capability"},
		{"request", "payload.work_type", `"` + strings.Repeat("w", 129) + `"`, "must be the name of a capability"},
		{"request", "payload.parameters", absent, "is required"},
		{"request", "payload.parameters", `"{}"`, "must be an object, not a string"},
		{"request", "payload.hints", `[]`, "must be an object, not an array"},
		{"request", "payload.hints.max_duration_seconds", `"300"`, "must be a number, not a string"},
		{"request", "payload.hints.max_duration_seconds", `0`, "must be from 1 to 2147483647, not 0"},
		{"request", "payload.hints.max_duration_seconds", `2147483648`, "must be from 1 to"},
		{"request", "payload.hints.max_duration_seconds", `1.5`, "must be an integer, not 1.5"},
		{"request", "payload.hints.max_duration_seconds", `1e2`, "must be an integer, not 1e2"},
		{"request", "payload.hints.max_duration_seconds", `99999999999999999999`, "must be from 1 to"},
		{"request", "payload.hints.max_memory_mb", `-1`, "must be from 1 to"},
		{"request", "payload.hints.max_memory_mb", `null`, "must be a number, not null"},
		{"request", "payload.hints.max_tokens", `1000000000001`, "must be from 1 to 1000000000000"},

		{"status", "payload.task_id", absent, "is required"},
		{"status", "payload.status", absent, "is required"},
		{"status", "payload.status", `"done"`, "must be one of running, step_completed, paused"},
		{"status", "payload.status", `"online"`, "must be one of running, step_completed, paused"},
		{"status", "payload.progress_percent", absent, "is required"},
		{"status", "payload.progress_percent", `101`, "must be from 0 to 100, not 101"},
		{"status", "payload.progress_percent", `-1`, "must be from 0 to 100, not -1"},
		{"status", "payload.progress_percent", `50.0`, "must be an integer"},
		{"status", "payload.progress_percent", `true`, "must be a number, not a boolean"},
		{"status", "payload.step", `2`, "must be an object, not a number"},
		{"status", "payload.step.number", absent, "is required"},
		{"status", "payload.step.number", `"2"`, "must be a number, not a string"},
		{"status", "payload.step.number", `-1`, "must be from 0"},
		{"status", "payload.step.name", absent, "is required"},
		{"status", "payload.step.name", `"a\u0000b"`, "must not contain the NUL character"},
		{"status", "payload.step.output", `{}`, "must be a string, not an object"},
		{"status", "payload.step.output_chunk", `1`, "must be a string, not a number"},
		{"status", "payload.step.output_chunk", `""`, "must be a range such as"},
		{"status", "payload.step.output_chunk", `"bytes 0-262145"`, "must have at most 262144 bytes"},

		{"heartbeat", "payload.agent_id", `7`, "must be a string, not a number"},
		{"heartbeat", "payload.agent_id", `""`, "must be an agent's id"},
		{"heartbeat", "payload.agent_id", `"a--b"`, "must be an agent's id"},
		{"heartbeat", "payload.agent_id", `"-a"`, "must be an agent's id"},
		{"heartbeat", "payload.agent_id", `"a-"`, "must be an agent's id"},
		{"heartbeat", "payload.agent_id", `"a_b"`, "must be an agent's id"},
		{"heartbeat", "payload.agent_id", `"` + strings.Repeat("a", 65) + `"`, "must be an agent's id"},
		{"heartbeat", "payload.status", absent, "is required"},
		{"heartbeat", "payload.status", `"running"`, "must be one of online, offline, busy"},
		{"heartbeat", "payload.load", `101`, "must be from 0 to 100"},
		{"heartbeat", "payload.load", `"7%"`, "must be a number"},
		{"heartbeat", "payload.queue", `-1`, "must be from 0"},

		{"result", "payload.task_id", absent, "is required"},
		{"result", "payload.status", absent, "is required"},
		{"result", "payload.status", `"error"`, "must be one of success, failed, completed, cancelled"},
		{"result", "payload.exit_code", absent, "is required"},
		{"result", "payload.exit_code", `-9`, "must be from 0 to 4294967295, not -9"},
		{"result", "payload.exit_code", `"1"`, "must be a number"},
		{"result", "payload.exit_code", `0`, "must not be 0 if the status is failed"},
		{"result", "payload.output", `null`, "must be a string, not null"},
		{"result", "payload.resources_used", `null`, "must be an object, not null"},
		{"result", "payload.resources_used.duration_seconds", `-1`, "must be from 0"},
		{"result", "payload.resources_used.duration_seconds", `87.5`, "must be an integer"},
		{"result", "payload.resources_used.gpu_vram_mb", `9223372036854775808`, "must be from 0"},
		{"result", "payload.resources_used.cpu_time_ms", `[]`, "must be a number, not an array"},
		{"result", "payload.resources_used.tokens", `1000000000001`, "must be from 0 to 1000000000000"},

		{"5999", "payload.error_code", absent, "is required"},
		{"5999", "payload.error_code", `5000`, "must be from 5001 to 5999"},
		{"5999", "payload.error_code", `6000`, "must be from 5001 to 5999"},
		{"5999", "payload.error_code", `"5001"`, "must be a number"},
		{"5999", "payload.error_message", absent, "is required"},
		{"5999", "payload.error_message", `"\u0000"`, "must not contain the NUL character"},
		{"5999", "payload.error_context", `null`, "must be an object, not null"},
		{"5005", "payload.error_context", absent, "is required"},
		{"5001", "payload.error_context.attempted_retries", absent, "is required"},
		{"5001", "payload.error_context.attempted_retries", `-1`, "must be from 0"},
		{"5001", "payload.error_context.last_attempt", absent, "is required"},
		{"5001", "payload.error_context.last_attempt", `null`, "must be a string, not null"},
		{"5001", "payload.error_context.last_attempt", `"yesterday"`, "must be an RFC 3339 time"},
		{"5002", "payload.error_context.agent_id", absent, "is required"},
		{"5002", "payload.error_context.last_heartbeat", `0`, "must be a string, not a number"},
		{"5003", "payload.error_context.validation_error", absent, "is required"},
		{"5003", "payload.error_context.field_name", `[]`, "must be a string, not an array"},
		{"5004", "payload.error_context.agent_id", `null`, "must be a string, not null"},
		{"5004", "payload.error_context.token_status", absent, "is required"},
		{"5005", "payload.error_context.limit_name", absent, "is required"},
		{"5005", "payload.error_context.available", `"128"`, "must be a number"},
		{"5005", "payload.error_context.required", `1.5`, "must be an integer"},
		{"5006", "payload.error_context.work_type_requested", absent, "is required"},
		{"5006", "payload.error_context.supported_types", `"a"`, "must be an array, not a string"},
		{"5006", "payload.error_context.supported_types", `[ "a" , 1 ]`, "must contain only strings, not a number"},
	} {
		t.Run(c.base+" "+c.field+" "+c.value, func(t *testing.T) {
			t.Parallel()
			good := bases()[c.base]
			parse(t, good)
			e, err := envelope.Parse([]byte(change(t, good, c.field, c.value)))
			requireProblem(t, err, c.field, c.detail)
			require.True(t, strings.HasPrefix(problems(t, err)[0].Detail, c.field+" "))
			require.Nil(t, e.Payload)
		})
	}
}

// TestParseAccepts: unusual but valid members.
func TestParseAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, field, value string }{
		{"request", "from_agent", `"my_agent-2"`},
		{"request", "from_agent", `"` + strings.Repeat("a", envelope.MaxAgentType) + `"`},
		{"request", "message_id", `"550E8400-E29B-41D4-A716-446655440001"`},
		{"request", "x_custom_fields", absent},
		{"request", "payload.hints", absent},
		{"request", "payload.hints.max_tokens", `1000000000000`},
		{"request", "payload.hints.cpu", `null`},
		{"request", "payload.work_type", `"custom:docs.v2/a:read_file"`},
		{"status", "payload.step", absent},
		{"status", "payload.step.output", absent},
		{"status", "payload.step.output_chunk", absent},
		{"status", "payload.agent_id", `"a task's status may name the agent"`},
		{"status", "payload.progress_percent", `-0`},
		{"heartbeat", "payload.load", absent},
		{"heartbeat", "payload.queue", absent},
		{"result", "payload.output", absent},
		{"result", "payload.output", `"\u0000\ud83d\ude00"`},
		{"result", "payload.resources_used", absent},
		{"result", "payload.resources_used.tokens", absent},
		{"result", "payload.exit_code", `4294967295`},
		{"result", "payload.status", `"cancelled"`},
		{"5002", "payload.error_context.last_heartbeat", absent},
		{"5002", "payload.error_context.last_heartbeat", `"2026-01-19T04:21:04Z"`},
		{"5003", "payload.error_context.field_name", `null`},
		{"5005", "payload.error_context.hint", `{"anything":[]}`},
		{"5006", "payload.error_context.supported_types", `[]`},
		{"5005", "trace_id", `"00000000-0000-0000-0000-000000000000"`},
		{"5005", "request_id", `"00000000-0000-0000-0000-000000000000"`},
	} {
		t.Run(c.base+" "+c.field+" "+c.value, func(t *testing.T) {
			t.Parallel()
			parse(t, change(t, bases()[c.base], c.field, c.value))
		})
	}
}

func TestSuccessNeedsExitCodeZero(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"success", "completed"} {
		_, err := envelope.Parse([]byte(change(t, bases()["result"], "payload.status", `"`+status+`"`)))
		requireProblem(t, err, "payload.exit_code", "must be 0 if the status is "+status+", not 1")
	}
}

func TestOnlyCancelNeedsNoParameters(t *testing.T) {
	t.Parallel()
	cancel := change(t, bases()["request"], "payload.work_type", `"cancel_task"`)
	e := parse(t, change(t, cancel, "payload.parameters", absent))
	require.Nil(t, e.Payload.(envelope.WorkRequest).Parameters)
}

// TestStatusWithoutTaskAndAgent: the message may be a status or a heartbeat, and the error asks for
// the task.
func TestStatusWithoutTaskAndAgent(t *testing.T) {
	t.Parallel()
	_, err := envelope.Parse([]byte(message("work_status", `{"status":"running","progress_percent":1}`)))
	requireProblem(t, err, "payload.task_id", "is required")
}

// TestProblemsFollowTheDocumentsOrder, whatever the order in the message.
func TestProblemsFollowTheDocumentsOrder(t *testing.T) {
	t.Parallel()
	_, err := envelope.Parse([]byte(`{"x_custom_fields":1,"payload":{"output":1,"exit_code":-1},"type":"work_result","from_agent":"","protocol_version":"1.0"}`))
	var fields []string
	for _, p := range problems(t, err) {
		fields = append(fields, p.Field)
	}
	require.Equal(t, []string{
		"message_id", "from_agent", "to_agent", "timestamp", "trace_id", "request_id",
		"payload.task_id", "payload.status", "payload.exit_code", "payload.output", "x_custom_fields",
	}, fields)
	require.ErrorContains(t, err, "5003 Invalid Message: message_id is required; from_agent must be")
	require.ErrorContains(t, err, "; and 1 more")
}

// TestParseReturnsReadableMembers, so that a reply can echo them.
func TestParseReturnsReadableMembers(t *testing.T) {
	t.Parallel()
	good := bases()["result"]
	for name, bad := range map[string]string{
		"an invalid payload":     change(t, good, "payload.status", `7`),
		"another invalid member": change(t, good, "timestamp", `"now"`),
		"an unknown type":        change(t, good, "type", `"x"`),
		"another version":        change(t, good, "protocol_version", `"2.0"`),
		"truncated JSON":         good[:len(good)-3],
		"data after the JSON":    good + "}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := envelope.Parse([]byte(bad))
			require.Error(t, err)
			require.Equal(t, uuid.MustParse(traceID), e.TraceID)
			require.Equal(t, uuid.MustParse(requestID), e.RequestID)
			require.Equal(t, "orchestrator", e.From)
			require.Equal(t, "infra", e.To)
			require.Nil(t, e.Payload)
		})
	}
}

func TestUnsupportedVersionIs5006(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.0", "1.1", "0.9"} {
		// The rest of such a message cannot be checked.
		_, err := envelope.Parse([]byte(`{"protocol_version":"` + version + `","payload":7}`))
		requireProblem(t, err, "protocol_version", "must be 1.0, not "+version)
		var e *envelope.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, envelope.CodeUnsupportedWorkType, e.Failure.Code)
		require.JSONEq(t, `{"work_type_requested":"protocol_version `+version+`","supported_types":["protocol_version 1.0"]}`, string(e.Failure.Context))
	}
}
