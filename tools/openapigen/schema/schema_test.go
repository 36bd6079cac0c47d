package schema

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// target returns a value of the schema's type for a message.
func target(messageType, payload string) any {
	switch {
	case messageType == "work_request":
		return &WorkRequestEnvelope{}
	case messageType == "work_result":
		return &WorkResultEnvelope{}
	case messageType == "error":
		return &ErrorEnvelope{}
	case bytes.Contains([]byte(payload), []byte(`"task_id"`)):
		return &struct {
			Head
			Type    string     `json:"type"`
			Payload WorkStatus `json:"payload"`
		}{}
	}
	return &struct {
		Head
		Type    string    `json:"type"`
		Payload Heartbeat `json:"payload"`
	}{}
}

// TestSchemaMatchesCodec checks that the schema has every member of the messages that comet writes,
// and writes the same messages. A null may be left out.
func TestSchemaMatchesCodec(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../internal/wire/envelope/testdata/messages.json")
	require.NoError(t, err)
	var messages map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &messages))
	for name, message := range messages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var head struct {
				Type    string
				Payload json.RawMessage
			}
			require.NoError(t, json.Unmarshal(message, &head))
			into := target(head.Type, string(head.Payload))
			dec := json.NewDecoder(bytes.NewReader(message))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(into), "%s", message)
			again, err := json.Marshal(into)
			require.NoError(t, err)
			require.Equal(t, withoutNulls(t, message), withoutNulls(t, again))
		})
	}
}

// withoutNulls returns a JSON object without its members that are null, recursively.
func withoutNulls(t *testing.T, text []byte) (out map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &out))
	prune(out)
	return out
}

func prune(object map[string]any) {
	for name, value := range object {
		if value == nil {
			delete(object, name)
		} else if inner, ok := value.(map[string]any); ok {
			prune(inner)
		}
	}
}
