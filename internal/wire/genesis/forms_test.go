package genesis_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

// TestForms checks the texts of the document's interfaces: which members are signed, and how.
func TestForms(t *testing.T) {
	t.Parallel()
	const ends = `"timestamp":1767225600123456000}`
	ids := func(n, kind string) string {
		return `{"id":"8f14e45f-ceea-467f-a1d0-7c1b2f0e9a1` + n + `","type":"` + kind + `",`
	}
	for name, want := range map[string][2]string{
		"request": {
			ids("1", "REQUEST") + `"from":"data-analyst","to":"broadcast","intent":"analyze_data","payload":{"question":"Résumé?","rows":[1,2.50,9007199254740993],"10":true,"2":null},` + ends,
			ids("1", "REQUEST") + `"from":"data-analyst","to":"broadcast","intent":"analyze_data","payload":{"2":null,"10":true,"question":"Résumé?","rows":[1,2.5,9007199254740992]},` + ends,
		},
		"response": {ids("2", "RESPONSE") + `"from":"nova","to":"data-analyst",` + ends},
		"event":    {ids("3", "EVENT") + `"from":"nova","to":"broadcast","payload":{"workflow":"etl-pipeline-123"},` + ends},
		"error":    {ids("4", "ERROR") + `"from":"nova","to":"data-analyst",` + ends},
	} {
		m := parse(t, named(t, name))
		sent, err := m.Signed(genesis.AsSent)
		require.NoError(t, err)
		require.Equal(t, want[0], string(sent))
		printed, err := m.Signed(genesis.AsJavaScript)
		require.NoError(t, err)
		if want[1] == "" {
			want[1] = want[0]
		}
		require.Equal(t, want[1], string(printed))
	}
	canonical, err := parse(t, named(t, "response")).Signed(genesis.JCS)
	require.NoError(t, err)
	require.Equal(t, `{"confidence":0.5,"correlationId":"corr-1","data":{"rows":0},"error":{"code":"NO_DATA","details":{"table":"sales"},"message":"There is no data.",`+
		`"retryable":false,"stack":"at line 1"},"from":"nova","id":"8f14e45f-ceea-467f-a1d0-7c1b2f0e9a12","processingTime":12.5,`+
		`"publicKey":"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=","requestId":"8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11","sources":["warehouse"],"status":"FAILURE",`+
		`"timestamp":1767225600123456000,"to":"data-analyst","type":"RESPONSE","version":"1.0"}`, string(canonical))
}

// TestUnknownMembersAreSigned: a payload in a RESPONSE, which has none, is part of the v1 text as in
// the document's code, and members that the protocol does not know are part of JCS.
func TestUnknownMembersAreSigned(t *testing.T) {
	t.Parallel()
	m := parse(t, changed(t, changed(t, named(t, "response"), "/payload", "[1]"), "/vendor", "2.0"))
	sent, err := m.Signed(genesis.AsSent)
	require.NoError(t, err)
	require.Contains(t, string(sent), `"payload":[1]`)
	require.NotContains(t, string(sent), "vendor")
	canonical, err := m.Signed(genesis.JCS)
	require.NoError(t, err)
	require.Contains(t, string(canonical), `"vendor":2,`)
}

// TestJavaScript checks that values are printed as JSON.stringify(JSON.parse(text)) prints them.
// tools/genesis-verify compares 100,000 more values with Node.js.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	big := `{` + strings.Repeat(`"k":1,`, 40) + `"a":{"z":1,"z":2},"k":2,"7":0}`
	for text, want := range map[string]string{
		`-0`: `0`, `-0.0e5`: `0`, `1e21`: `1e+21`, `1e20`: `100000000000000000000`, `1E-7`: `1e-7`, `0.000001`: `0.000001`, `1.50`: `1.5`,
		`9007199254740993`: `9007199254740992`, `1767225600123456789`: `1767225600123456800`, `-1e400`: `null`, `5e-324`: `5e-324`, `1e-400`: `0`,
		`12345678901234567890123`: `1.2345678901234568e+22`, `999999999999999`: `999999999999999`,
		`"\u00E9\u2028\/\u007F"`: "\"é\u2028/\x7f\"", `"\u0022\u005c\u0008\u0009\u000A\u000c\u000d\u001F\u0000"`: `"\"\\\b\t\n\f\r\u001f\u0000"`,
		`"\uD83D\uDE00"`: `"😀"`, `"\uD83D"`: `"\ud83d"`, `"\uDE00\uD83D"`: `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`: `"\ud83d😀"`, `"\ud83d\u0041"`: `"\ud83dA"`,
		`"\ud83d\\ude00"`: `"\ud83d\\ude00"`,
		`"é\"\uDC00\/\u000A\\\uD83D\uDE00\n\ud800"`:                `"é\"\udc00/\n\\😀\n\ud800"`,
		` { "b" : [ 1 , 2 ] , "a" : { } } `:                        `{"b":[1,2],"a":{}}`,
		`{"b":1,"10":2,"9":3,"a":4}`:                               `{"9":3,"10":2,"b":1,"a":4}`,
		`{"01":1,"-1":2,"4294967295":3,"4294967294":4,"\u0030":5}`: `{"0":5,"4294967294":4,"01":1,"-1":2,"4294967295":3}`,
		`{"4294967296":1,"4294967295":2,"99999999999":3}`:          `{"4294967296":1,"4294967295":2,"99999999999":3}`,
		`{"a":1,"b":2,"\u0061":3}`:                                 `{"a":3,"b":2}`, `{"__proto__":1,"a":2,"__proto__":{"b":0}}`: `{"__proto__":{"b":0},"a":2}`,
		`{"\ud800":1,"\ufffd":2,"\uD800":3}`: "{\"\\ud800\":3,\"\ufffd\":2}",
		big:                                  `{"7":0,"k":2,"a":{"z":2}}`,
		`[]`:                                 `[]`, `[[],{}]`: `[[],{}]`, `null`: `null`, `{"":0}`: `{"":0}`,
	} {
		got, err := genesis.JavaScript([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, string(got), text)
	}
}

// TestCanonical checks the example of RFC 8785 §3.2, and values that have no canonical form.
func TestCanonical(t *testing.T) {
	t.Parallel()
	got, err := genesis.Canonical([]byte(`{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001, -0],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false], "\uFB33": 1, "\uD83D\uDE00": 2, "signature": 0, "signatureJcs": 0
}`))
	require.NoError(t, err)
	require.Equal(t, `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0],"string":"€$\u000f\nA'B\"\\\\\"/","😀":2,"`+"\ufb33"+`":1}`, string(got))
	for _, text := range []string{`{"a":{"b":1,"b":1}}`, `{"a":"\ud800"}`, `{"a":{"\udc00":1}}`, `{"a":1e400}`} {
		_, err := genesis.Canonical([]byte(text))
		require.Error(t, err, text)
	}
}
