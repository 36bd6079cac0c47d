package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestTakeTokenLeavesTheOtherCustomFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ custom, token, left string }{
		{`{"auth_token":"t"}`, "t", `{}`},
		{`{"auth_token":"t\u0041","a":1.0}`, "tA", `{"a":1.0}`},
		{`{ "z" : [1, 2], "auth_token" : "t" , "a":"\u0041" }`, "t", `{"z":[1, 2],"a":"\u0041"}`},
		{`{"auth\u005ftoken":"t","\"":0}`, "t", `{"\"":0}`},
		{`{"auth_token":7}`, "", `{}`},
		{`{ "a":1 }`, "", `{ "a":1 }`},
		{`{}`, "", `{}`},
		{`[`, "", `[`},
		{``, "", ``},
	} {
		e := envelope.Envelope{Custom: json.RawMessage(c.custom)}
		require.Equal(t, c.token, e.RemoveToken(), c.custom)
		require.Equal(t, c.left, string(e.Custom))
	}
}

func TestPutTokenIsTakenAgain(t *testing.T) {
	t.Parallel()
	for _, custom := range []string{`{}`, `{"a":1.0}`, `{"auth_token":"old","a":[]}`, ``, `[`} {
		e := around(everyPayload()["a bare heartbeat"])
		e.Custom = json.RawMessage(custom)
		e.PutToken("secret\"")
		written, err := envelope.Format(e)
		require.NoError(t, err)
		again := parse(t, string(written))
		require.Equal(t, "secret\"", again.RemoveToken())
		require.NotContains(t, string(again.Custom), "auth_token")
		require.Empty(t, again.RemoveToken())
	}
}
