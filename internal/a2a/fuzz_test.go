package a2a

import (
	"encoding/json"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"
)

// FuzzRequest: a request of a client is converted to valid JSON, and an accepted message can be stored and read again.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x"},{"raw":"AP8"},{"url":"u","media_type":"a/b"},{"data":{"a_b":[1e400]}}],"metadata":{"x_y":1}}}`,
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"AA"}},{"kind":"data","data":7}]}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[null]}}`, `[[[[[[[[[[]]]]]]]]]]`, `{"a_":{"_b":{"__":null}}}`, `{"message":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		converted := camelCase(body, 0)
		require.True(t, json.Valid(converted), "%s", converted)
		_, old, err := fromLegacy("message/send", body)
		for _, params := range [][]byte{converted, old} {
			req, wrong := decode[sendRequest](params)
			if err != nil || wrong != nil {
				continue
			}
			m, wrong := readMessage(req)
			if wrong != nil {
				continue
			}
			_, _ = m.parameters()
			stored, wrong := json.Marshal(m.Message)
			require.NoError(t, wrong)
			again, wrong := readMessage(sendRequest{Message: stored, Tenant: req.Tenant, Metadata: req.Metadata})
			require.NoError(t, wrong, "%s", stored)
			require.Equal(t, m.digest, again.digest)
			_, wrong = json.Marshal(toLegacy(m.Message))
			require.NoError(t, wrong)
		}
	})
}

// FuzzResult: any result has parts that can be encoded, in both versions.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{`{"files":[{"name":"a","bytes":"AA"}],"text":"x"}`, `{"message":"m"}`, `[1]`, `{"a":1}`, "text", "\xff", `{"text":1}`, `{"files":null,"data":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		parts := resultParts(output)
		require.NotEmpty(t, parts)
		_, err := json.Marshal(parts)
		require.NoError(t, err)
		_, err = json.Marshal(toLegacy(&a2a.Artifact{Parts: parts}))
		require.NoError(t, err)
		_, _ = messageOf(output)
	})
}

// FuzzPlace: an id of an event that is accepted names the same place again.
func FuzzPlace(f *testing.F) {
	for _, seed := range []string{"7", "7.1.5", "7.0.0.3", "7.1", "x", "-1", "1.1.1.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		p, ok := readPlace(id)
		if !ok {
			return
		}
		if p.sent == 0 && p.version == 0 {
			p.attempt = 0 // it means nothing without a part of the result
		}
		again, ok := readPlace(p.String())
		require.True(t, ok)
		require.Equal(t, p, again)
	})
}
