package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestRemoveTokenKeepsOtherFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ custom, token, left string }{
		{`{"auth_token":"t"}`, "t", `{}`},
		{`{"auth_token":"t\u0041","a":1.0}`, "tA", `{"a":1.0}`},
		{`{ "z" : [1, 2], "auth_token" : "t" , "a":"\u0041" }`, "t", `{"z":[1, 2],"a":"\u0041"}`},
		{`{"auth\u005ftoken":"t","\"":0}`, "t", `{"\"":0}`},
		{`{"auth_token":7}`, "", `{}`},
		{`{ "a":1 }`, "", `{ "a":1 }`},
		{`{}`, "", `{}`},
		{``, "", ``},
	} {
		e := envelope.Envelope{Custom: json.RawMessage(c.custom)}
		require.Equal(t, c.token, e.RemoveToken(), c.custom)
		require.Equal(t, c.left, string(e.Custom))
	}
}
