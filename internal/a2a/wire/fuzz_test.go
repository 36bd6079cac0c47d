package wire

import (
	"encoding/json"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"
)

// FuzzForms: an event that is read in either version is written and read again without a change, in 1.0 at once and in 0.3 after
// the first time: it has no names of files for texts, and data is an object.
func FuzzForms(f *testing.F) {
	for _, seed := range []string{
		`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-01-10T15:30:00.5","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x","filename":"f"}]}},
			"artifacts":[{"artifactId":"a","parts":[{"raw":"AP8_"},{"url":"u","mediaType":"a/b"},{"data":[1.50,12345678901234567890]}],"metadata":{"usage":{"tokens":7}}}],"history":[null]}}`,
		`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED"},"metadata":{"progress":5}}}`, `{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[]},"append":true}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":null}]}}`, `{"kind":"task","id":"t","status":{"state":"input-required"},"artifacts":[null]}`,
		`{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"file","file":{"name":"n","mimeType":"a/b","bytes":"AA","uri":null}},{"kind":"data","data":7},{"kind":"text"}]}`,
		`{"kind":"status-update","taskId":"t","final":true,"status":{"state":"TASK_STATE_FAILED"}}`, `{"kind":"artifact-update","artifact":{"parts":[{"kind":"text","text":"x"}]}}`, `{"artifactUpdate":{}}`, `null`, `[]`, `{"kind":7}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, legacy bool) {
		converted := Convert(raw, legacy)
		require.Equal(t, json.Valid(raw), json.Valid(converted), "%s", converted)
		e, err := DecodeEvent(raw, legacy, false)
		if err != nil {
			return
		}
		require.NotNil(t, e)
		_ = StatusOf(e)
		written := write(t, e)
		again, err := DecodeEvent(written, false, false)
		require.NoError(t, err, "%s", written)
		require.Equal(t, string(written), string(write(t, again)))

		old := downgrade(t, e)
		first, err := DecodeEvent(old, true, false)
		require.NoError(t, err, "%s", old)
		require.Equal(t, e.TaskInfo(), first.TaskInfo())
		second, err := DecodeEvent(downgrade(t, first), true, false)
		require.NoError(t, err)
		require.Equal(t, string(write(t, first)), string(write(t, second)))
	})
}

func write(t *testing.T, e a2a.Event) []byte {
	t.Helper()
	raw, err := json.Marshal(a2a.StreamResponse{Event: e})
	require.NoError(t, err)
	return raw
}

func downgrade(t *testing.T, e a2a.Event) []byte {
	t.Helper()
	raw, err := json.Marshal(e)
	require.NoError(t, err)
	return Convert(raw, true)
}

// FuzzMessage: the message of a client is the same after a conversion to 1.0 and back, and its content has parts.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"},{"kind":"data","data":{"n":1.50}},{"kind":"file","file":{"name":"a","bytes":"AP8="}}],"metadata":{"a":"b"}}`,
		`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{},"extensions":["e"],"referenceTaskIds":["t"],"contextId":"c","taskId":"t"}`, `{"parts":[{"kind":"file","file":{"uri":"u","bytes":"AA"}}]}`, `{"role":7,"parts":{}}`, `{"parts":[{"raw":"%"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, form := range [][]byte{raw, Convert(raw, false)} {
			var m a2a.Message
			if Decode(form, &m) != nil {
				continue
			}
			written, err := json.Marshal(m)
			require.NoError(t, err)
			var again a2a.Message
			require.NoError(t, Decode(written, &again), "%s", written)
			rewritten, err := json.Marshal(again)
			require.NoError(t, err)
			require.Equal(t, string(written), string(rewritten))
			_ = Text(m.Parts)
			content := ContentOf(m.Parts).Encode()
			if parts, ok := PartsOf(content, "message_id"); ok {
				require.JSONEq(t, string(content), string(ContentOf(parts).Encode()))
			}
		}
	})
}
