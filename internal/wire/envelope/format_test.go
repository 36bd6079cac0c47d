package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// TestFormatRefusesWhatParseRefuses: a mistake is reported to the sender, not to the recipient.
func TestFormatRefusesWhatParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change        func(e *envelope.Envelope)
		field, detail string
	}{
		"no payload":               {func(e *envelope.Envelope) { e.Payload = nil }, "payload", "is required"},
		"another type":             {func(e *envelope.Envelope) { e.Type = envelope.TypeError }, "type", "must be work_request to match the payload"},
		"no version":               {func(e *envelope.Envelope) { e.ProtocolVersion = "" }, "protocol_version", "must be two numbers"},
		"no id":                    {func(e *envelope.Envelope) { e.MessageID = uuid.Nil }, "message_id", "must not be the nil UUID"},
		"no time":                  {func(e *envelope.Envelope) { e.Timestamp = time.Time{} }, "timestamp", "is required"},
		"a year over 9999":         {func(e *envelope.Envelope) { e.Timestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "timestamp", "cannot be written: year outside of range"},
		"no sender":                {func(e *envelope.Envelope) { e.From = "" }, "from_agent", "must be an agent type"},
		"custom that is a list":    {func(e *envelope.Envelope) { e.Custom = []byte(`[]`) }, "x_custom_fields", "must be an object"},
		"custom that is malformed": {func(e *envelope.Envelope) { e.Custom = []byte(`{`) }, "x_custom_fields", "cannot be written"},
		"custom that is empty":     {func(e *envelope.Envelope) { e.Custom = []byte{} }, "x_custom_fields", "cannot be written"},
		"custom with more members": {func(e *envelope.Envelope) { e.Custom = []byte(`{},"type":"error"`) },
			"x_custom_fields", "cannot be written"},
		"custom with a name twice": {func(e *envelope.Envelope) { e.Custom = []byte(`{"a":1,"a":2}`) }, "x_custom_fields.a", "cannot be written"},
		"custom too deep": {func(e *envelope.Envelope) {
			e.Custom = []byte(`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`)
		}, "", "nested deeper"},
		"a duplicate hint": {func(e *envelope.Envelope) {
			e.Payload = envelope.WorkRequest{
				TaskID: e.MessageID, WorkType: "w", Parameters: []byte(`{}`),
				Hints: envelope.Hints{MaxTokens: 1, Other: []envelope.Member{{Name: "max_tokens", Value: []byte("2")}}},
			}
		}, "payload.hints.max_tokens", "cannot be written"},
		"a missing value": {func(e *envelope.Envelope) {
			e.Payload = envelope.WorkRequest{TaskID: e.MessageID, WorkType: "w"}
		}, "payload.parameters", "is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := around(everyPayload()["a work request"])
			c.change(&e)
			written, err := envelope.Format(e)
			require.Nil(t, written)
			requireProblem(t, err, c.field, c.detail)
		})
	}
}

func TestFormatRefusesInvalidUTF8(t *testing.T) {
	t.Parallel()
	_, err := envelope.Format(around(envelope.WorkResult{TaskID: uuid.MustParse(taskID), Status: envelope.OutcomeSuccess, Output: "a\xffb"}))
	requireProblem(t, err, "payload.output", "cannot be written")
}

func TestFormatWritesUTC(t *testing.T) {
	t.Parallel()
	e := around(envelope.Heartbeat{AgentID: "a", Status: envelope.PresenceOnline})
	e.Timestamp = e.Timestamp.In(time.FixedZone("", 3600))
	written, err := envelope.Format(e)
	require.NoError(t, err)
	require.Contains(t, string(written), `"timestamp":"2026-01-19T04:21:04.123456789Z"`)
}

func TestFormatEscapesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	written, err := envelope.Format(around(everyPayload()["a status with a step"]))
	require.NoError(t, err)
	require.Contains(t, string(written), "\"name\":\"Größe <&> \u2028\",\"output\":\"\\u0000\\u001b[1m\"")
}
