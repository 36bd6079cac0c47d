package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// spaceless returns the envelope with its raw parts as Format writes them.
func spaceless(e envelope.Envelope) envelope.Envelope {
	e.Custom = compact(e.Custom)
	switch p := e.Payload.(type) {
	case envelope.WorkRequest:
		p.Parameters = compact(p.Parameters)
		var other []envelope.Member
		for _, m := range p.Hints.Other {
			other = append(other, envelope.Member{Name: m.Name, Value: compact(m.Value)})
		}
		p.Hints.Other = other
		e.Payload = p
	case envelope.Failure:
		p.Context = compact(p.Context)
		e.Payload = p
	}
	return e
}

func compact(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	v := jsontext.Value(raw).Clone()
	if err := v.Compact(); err != nil {
		panic(err) // not JSON, which Parse does not return
	}
	return json.RawMessage(v)
}

// everyPayload returns each type of payload with all members set.
func everyPayload() map[string]envelope.Payload {
	task := uuid.MustParse(taskID)
	return map[string]envelope.Payload{
		"a work request": envelope.WorkRequest{
			TaskID: task, WorkType: "custom:docs:read_file", Parameters: json.RawMessage(`{"b":1.10,"a":[1e400,"\u0041<&>"],"":null}`),
			Hints: envelope.Hints{
				MaxDurationSeconds: 1, MaxMemoryMB: 2, MaxTokens: 3,
				Other: []envelope.Member{{Name: "z", Value: json.RawMessage(`1.0`)}, {Name: "gpu \"x\"", Value: json.RawMessage(`{"k":[]}`)}},
			},
		},
		"a cancellation": envelope.WorkRequest{TaskID: task, WorkType: envelope.WorkTypeCancel},
		"a status":       envelope.WorkStatus{TaskID: task, Status: envelope.StatusPaused},
		"a status with a step": envelope.WorkStatus{
			TaskID: task, Status: envelope.StatusStepCompleted, Progress: 100,
			Step: &envelope.Step{Number: envelope.MaxStep, Name: "Größe <&> \u2028", Output: "\x00\x1b[1m", Chunk: envelope.Range{From: 0, To: 5, Total: 9}},
		},
		"a chunk of an unknown total": envelope.WorkStatus{
			TaskID: task, Status: envelope.StatusRunning,
			Step: &envelope.Step{Name: "s", Output: "x", Chunk: envelope.Range{From: 262144, To: 262145}},
		},
		"a bare heartbeat": envelope.Heartbeat{AgentID: "agent-7", Status: envelope.PresenceOnline},
		"a heartbeat":      envelope.Heartbeat{AgentID: "a", Status: envelope.PresenceBusy, Load: new(100), Queue: new(0)},
		"a result": envelope.WorkResult{
			TaskID: task, Status: envelope.OutcomeFailed, ExitCode: envelope.MaxExitCode, Output: "no",
			Resources: envelope.Resources{DurationSeconds: 1, GPUVRAMMB: 2, CPUTimeMS: 3, Tokens: envelope.MaxTokens},
		},
		"a cancelled result":              envelope.WorkResult{TaskID: task, Status: envelope.OutcomeCancelled, ExitCode: 143},
		"an error":                        envelope.ResourceLimit("gpu_vram_mb", 128, 512),
		"an error with an unknown code":   envelope.Failure{Code: 5999, Message: "?"},
		"an error with a further context": envelope.Failure{Code: 5007, Message: "?", Context: json.RawMessage(`{"limit_name":7}`)},
	}
}

func around(p envelope.Payload) envelope.Envelope {
	return envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.MustParse(messageID), From: "infra", To: "orchestrator",
		Timestamp: time.Date(2026, 1, 19, 4, 21, 4, 123456789, time.UTC),
		TraceID:   uuid.MustParse(traceID), RequestID: uuid.MustParse(requestID),
		Type: p.Type(), Payload: p, Custom: json.RawMessage(`{"b":1.0,"a":12345678901234567890}`),
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, p := range everyPayload() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := around(p)
			written, err := envelope.Format(e)
			require.NoError(t, err)
			require.NotContains(t, string(written), "\n")
			again := parse(t, string(written))
			require.True(t, jsontext.Value(again.Raw).IsValid())
			again.Raw = nil
			require.Equal(t, e, again)
		})
	}
}

// TestRawPartsStayUnchanged: order, number notation and escapes stay those of the sender.
func TestRawPartsStayUnchanged(t *testing.T) {
	t.Parallel()
	const custom = "{ \"z\" : 1.00,\n\"a\":[ 1E+2 , \"\\u0041\\/\" ],\"n\": -0, \"big\":123456789012345678901234567890}"
	sent := strings.TrimSuffix(message("work_request", `{"task_id":"`+taskID+`","work_type":"w","parameters":`+custom+`}`), "}") +
		`,"x_custom_fields":` + custom + `}`
	e := parse(t, sent)
	require.Equal(t, custom, string(e.Custom))
	require.Equal(t, custom, string(e.Payload.(envelope.WorkRequest).Parameters))

	written, err := envelope.Format(e)
	require.NoError(t, err)
	const bare = `{"z":1.00,"a":[1E+2,"\u0041\/"],"n":-0,"big":123456789012345678901234567890}`
	require.Equal(t, 2, strings.Count(string(written), bare), string(written))
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	t.Parallel()
	head, payload, _ := strings.Cut(message("work_result", `{"exit_code":0,"status":"success","task_id":"`+taskID+`"}`), `"payload":`)
	turned := `{"payload":` + strings.TrimSuffix(payload, "}") + "," + strings.TrimSuffix(strings.TrimPrefix(head, "{"), ",") + "}"
	require.Equal(t, parse(t, message("work_result", `{"exit_code":0,"status":"success","task_id":"`+taskID+`"}`)), parse(t, turned))
}

func TestNamesMayBeEscaped(t *testing.T) {
	t.Parallel()
	sent := message("work_result", `{"exit_code":0,"st\u0061tus":"succ\u0065ss","task_id":"`+taskID+`"}`)
	sent = strings.ReplaceAll(strings.ReplaceAll(sent, "payload", `pa\u0079load`), "infra", `infr\u0061`)
	e := parse(t, sent)
	require.Equal(t, envelope.OutcomeSuccess, e.Payload.(envelope.WorkResult).Status)
	require.Equal(t, "infra", e.To)
}

func TestUnknownMembersAreIgnored(t *testing.T) {
	t.Parallel()
	sent := message("work_status", `{"task_id":"`+taskID+`","status":"running","progress_percent":0,"eta":[{"a":"]}"}],`+
		`"step":{"number":0,"name":"","of":5,"Output":7}}`)
	e := parse(t, strings.TrimSuffix(sent, "}")+`,"Type":null,"priority":{"x":["\\\"",{}]}}`)
	require.Equal(t, envelope.WorkStatus{
		TaskID: uuid.MustParse(taskID), Status: envelope.StatusRunning, Step: &envelope.Step{},
	}, e.Payload)
	require.Contains(t, string(e.Raw), `"eta"`, "Raw keeps unknown members")
}
