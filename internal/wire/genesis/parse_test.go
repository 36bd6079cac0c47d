package genesis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

// TestParseRefusesMalformedJSON: the error has one problem; the members before it are read.
func TestParseRefusesMalformedJSON(t *testing.T) {
	t.Parallel()
	good := string(named(t, "request"))
	payload := func(value string) string { return string(changed(t, []byte(good), "/payload", value)) }
	nested := func(levels int) string {
		return payload(strings.Repeat("[", levels) + strings.Repeat("]", levels))
	}
	parse(t, []byte(nested(genesis.MaxDepth)))
	sent := func(value string) string { return strings.Replace(good, `"question"`, value+`,"question"`, 1) }
	members := func(count int) string {
		var b strings.Builder
		for i := range count {
			b.WriteString(`"x` + strconv.Itoa(i) + `":1,`)
		}
		return strings.Replace(good, `"id"`, b.String()+`"id"`, 1)
	}
	parse(t, []byte(members(genesis.MaxMembers-19)))
	for name, c := range map[string]struct{ sent, pointer, detail string }{
		"nothing":                    {"", "", "the message is empty"},
		"white space":                {" \r\n\t", "", "the message is empty"},
		"no JSON":                    {"hello", "", "is not valid JSON at byte 0"},
		"an array":                   {"[" + good + "]", "", "must be an object, not an array"},
		"null":                       {"null", "", "must be an object, not null"},
		"a truncated message":        {strings.TrimSpace(good)[:900], "", "ends before it is complete"},
		"a name without a value":     {`{"type"}`, "/type", "is not valid JSON"},
		"a trailing comma":           {strings.TrimSpace(good)[:len(good)-2] + ",}", "", "is not valid JSON"},
		"a second message":           {good + good, "", "is followed by more data"},
		"data after the message":     {good + "}", "", "is followed by more data"},
		"a byte order mark":          {"\uFEFF" + good, "", "is not valid JSON at byte 0"},
		"NaN":                        {sent(`"x":NaN`), "/payload/x", "is not valid JSON"},
		"bytes that are not UTF-8":   {sent("\"x\":\"\xff\""), "", "is not valid UTF-8"},
		"too many bytes":             {good + strings.Repeat(" ", genesis.MaxSize), "", "is longer than 8388608 bytes"},
		"too many levels":            {nested(genesis.MaxDepth + 1), "/payload", "is nested deeper than 64 levels"},
		"too many open levels":       {`{"a":` + strings.Repeat("[", 99), "/a", "is nested deeper than 64 levels"},
		"too many members":           {members(genesis.MaxMembers - 18), "", "has more than 100 members"},
		"a number beyond a double":   {sent(`"a/b":[0,-1e400]`), "/payload/a~1b/1", "is beyond the range of a double"},
		"a repeated member":          {strings.Replace(good, `"to"`, `"fr\u006fm":"x","to"`, 1), "/from", "appears twice"},
		"a repeated unknown member":  {strings.Replace(good, `"to"`, `"x":1,"x":1,"to"`, 1), "/x", "appears twice"},
		"a repeated option":          {strings.Replace(good, `"stream"`, `"stream":false,"stream"`, 1), "/options/stream", "appears twice"},
		"a repeated entity's member": {strings.Replace(good, `"endOffset"`, `"type":"x","endOffset"`, 1), "/entities/0/type", "appears twice"},
		"half a pair in a name":      {strings.Replace(good, `"to"`, `"\ud800":1,"to"`, 1), "", "half of a surrogate pair"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := genesis.Parse([]byte(c.sent))
			requireProblem(t, err, genesis.CodeInvalidMessage, c.pointer, c.detail)
			require.Nil(t, m.Body)
		})
	}
	m, err := genesis.Parse([]byte(strings.TrimSpace(good)[:900]))
	require.Error(t, err)
	require.Equal(t, "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11 REQUEST data-analyst broadcast corr-1", strings.Join([]string{m.ID, string(m.Type), m.From, m.To, m.CorrelationID}, " "))
}

// TestParseRefusesValues: the error has one problem, with the pointer of the value.
func TestParseRefusesValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct{ message, pointer, value, at, detail string }{
		{"request", "/id", `"00000000-0000-0000-0000-000000000000"`, "", "must be a UUID"},
		{"request", "/id", `"8f14e45fceea467fa1d07c1b2f0e9a11"`, "", "must be a UUID"},
		{"request", "/type", `"request"`, "", `not "request"`},
		{"request", "/from", `""`, "", "the id of an agent"},
		{"request", "/from", `"a\u0000b"`, "", "no control characters"},
		{"request", "/from", `"\ud800"`, "", "half of a surrogate pair"},
		{"request", "/from", `"broadcast"`, "", "must be the id of one agent"},
		{"request", "/to", `"` + strings.Repeat("é", 65) + `"`, "", "1 to 128 bytes"},
		{"request", "/intent", `"` + strings.Repeat("x", genesis.MaxIntent+1) + `"`, "", "1 to 64 bytes"},
		{"request", "/confidence", `1.1`, "", "from 0 to 1, not 1.1"},
		{"request", "/confidence", `-0.1`, "", "from 0 to 1, not -0.1"},
		{"request", "/entities/0/confidence", `2`, "", "from 0 to 1, not 2"},
		{"request", "/entities/0/startOffset", `21`, "/entities/0/endOffset", "must not be less than startOffset, which is 21"},
		{"request", "/entities/0/startOffset", `-1`, "", "must be from 0 to 9007199254740991, not -1"},
		{"request", "/entities/0/value", `"\u0000"`, "", "no NUL character"},
		{"request", "/entities", "[" + strings.Repeat(`{"type":"t","value":"","confidence":0},`, genesis.MaxEntities) + `{}]`, "", "has more than 100 elements"},
		{"request", "/context", `{"x":"` + long[:genesis.MaxContext] + `"}`, "", "is longer than 65536 bytes"},
		{"request", "/priority", `"high"`, "", `not "high"`},
		{"request", "/priority", `4`, "", "not 4"},
		{"request", "/timeout", `0`, "", "must be from 1 to 9223372036854, not 0"},
		{"request", "/ttl", `-1`, "", "must be from 1 to"},
		{"request", "/ttl", `1.5`, "", "an integer without a fraction or an exponent, not 1.5"},
		{"request", "/timeout", `99999999999999999999`, "", "must be from 1 to"},
		{"request", "/timestamp", `0`, "", "must be from 1 to 9223372036854775807, not 0"},
		{"request", "/timestamp", `1.767e18`, "", "an integer without a fraction or an exponent, not 1.767e18"},
		{"request", "/timestamp", `1e400`, "", "is beyond the range of a double"},
		{"request", "/signature", `"AAAA"`, "", "64 bytes in base64"},
		{"request", "/signatureJcs", `"!"`, "", "64 bytes in base64"},
		{"request", "/publicKey", `"AAAA"`, "", "it has 3 bytes"},
		{"request", "/publicKey", `"` + long + `"`, "", "must be an Ed25519 public key"},
		{"response", "/to", `"broadcast"`, "", "must be the id of one agent"},
		{"response", "/status", `"SUCCESS"`, "/error", "must be left out if status is SUCCESS"},
		{"response", "/sources/0", `"\u0000"`, "", "no NUL character"},
		{"response", "/processingTime", `-1`, "", "0 or more, not -1"},
		{"error", "/to", `"broadcast"`, "", "must be the id of one agent"},
		{"error", "/retryAfter", `-1`, "", "must be from 0 to"},
		{"event", "/eventType", `"completed"`, "", "words separated by full stops"},
		{"event", "/eventType", `"a..b"`, "", "words separated by full stops"},
		{"event", "/payload", `"` + long + `"`, "", "is longer than 1048576 bytes"},
		{"event", "/deliveryGuarantee", `"once"`, "", `not "once"`},
		{"event", "/metadata/schemaVersion", `""`, "", "the version of the payload's schema"},
	} {
		_, err := genesis.Parse(changed(t, named(t, c.message), c.pointer, c.value))
		if c.at == "" {
			c.at = c.pointer
		}
		requireProblem(t, err, genesis.CodeInvalidMessage, c.at, c.detail)
		require.Less(t, len(err.Error()), 1000)
	}
}

// TestParseAcceptsValues: values at the bounds of the rules.
func TestParseAcceptsValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ message, pointer, value string }{
		{"request", "/id", `"8F14E45F-CEEA-467F-A1D0-7C1B2F0E9A11"`},
		{"request", "/version", `"1.0.0"`},
		{"request", "/confidence", `0`},
		{"request", "/confidence", `1.0`},
		{"request", "/entities", `[]`},
		{"request", "/entities/0/endOffset", `4`},
		{"request", "/priority", `3`},
		{"request", "/priority", `"\u004cOW"`},
		{"request", "/timeout", strconv.FormatInt(genesis.MaxMilliseconds, 10)},
		{"request", "/timestamp", `9223372036854775807`},
		{"request", "/options", `{"custom":null}`},
		{"request", "/vendor", `{"a":1}`},
		{"response", "/intent", `"x"`},
		{"response", "/sources", `[]`},
		{"event", "/correlationId", `7`},
		{"event", "/correlationId", `"x"`},
		{"event", "/payload", `"` + strings.Repeat("x", genesis.MaxEventPayload-2) + `"`},
	} {
		m := parse(t, changed(t, named(t, c.message), c.pointer, c.value))
		text, err := m.Format()
		require.NoError(t, err, c.pointer)
		parse(t, text)
	}
	require.Empty(t, parse(t, changed(t, named(t, "event"), "/correlationId", `"x"`)).CorrelationID, "an EVENT has none")
	upper := parse(t, changed(t, named(t, "request"), "/id", `"8F14E45F-CEEA-467F-A1D0-7C1B2F0E9A11"`))
	require.Equal(t, "8F14E45F-CEEA-467F-A1D0-7C1B2F0E9A11", upper.ID, "the signature covers the spelling")
	for i, name := range []string{"LOW", "NORMAL", "HIGH", "CRITICAL"} {
		for _, value := range []string{`"` + name + `"`, strconv.Itoa(i)} {
			request, _ := parse(t, changed(t, named(t, "request"), "/priority", value)).Body.(genesis.Request)
			require.Equal(t, name, request.Priority.String())
		}
	}
	require.Equal(t, "Priority(4)", genesis.Priority(4).String())
}

// TestMisspeltMembers: a name that differs from a known one only in case, _ and - is rejected in every object of the protocol.
func TestMisspeltMembers(t *testing.T) {
	t.Parallel()
	for pointer, name := range map[string]string{
		"/correlation_id": "correlationId", "/Payload": "payload", "/time-out": "timeout", "/SIGNATURE": "signature", "/signature_jcs": "signatureJcs",
		"/options/requires_ack": "requiresAck", "/entities/0/start_offset": "startOffset",
	} {
		_, err := genesis.Parse(changed(t, named(t, "request"), pointer, "1"))
		requireProblem(t, err, genesis.CodeInvalidMessage, pointer, "is not a member of the protocol; use "+name)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.0", "1.1", "1", "1.0.1"} {
		m, err := genesis.Parse(changed(t, named(t, "event"), "/version", strconv.Quote(version)))
		requireProblem(t, err, genesis.CodeUnsupportedVersion, "/version", `must be "1.0", not "`+version+`"`)
		require.Equal(t, "nova", m.From)
	}
}

// TestUnsignedMessages: a message without signature or key is complete, for a caller that accepts it.
func TestUnsignedMessages(t *testing.T) {
	t.Parallel()
	without := changed(t, changed(t, named(t, "response"), "/signature", ""), "/publicKey", "")
	m, err := genesis.Parse(without)
	requireCode(t, err, genesis.CodeSignatureRequired)
	require.NotNil(t, m.Body)
	_, err = m.Verify(make([]byte, 32), genesis.AsSent)
	requireProblem(t, err, genesis.CodeSignatureRequired, "/signature", "is missing")

	m, err = genesis.Parse(changed(t, without, "/requestId", "7"))
	requireCode(t, err, genesis.CodeInvalidMessage)
	require.Nil(t, m.Body)
}

// TestRepeatedNamesInFreeValues: the last one counts, for every reader of the value.
func TestRepeatedNamesInFreeValues(t *testing.T) {
	t.Parallel()
	sent := strings.Replace(string(named(t, "event")), `{"workflow": "etl-pipeline-123"}`, `{"a":1.0,"b":2.0,"\u0061":3.0}`, 1)
	m := parse(t, []byte(sent))
	event, _ := m.Body.(genesis.Event)
	require.Equal(t, `{"a":3,"b":2}`, string(event.Payload))
	require.Equal(t, `{"a":3,"b":2}`, string(m.SignedValue("payload", genesis.AsSent)))
	text, err := m.Signed(genesis.AsSent)
	require.NoError(t, err)
	require.Contains(t, string(text), `"payload":{"a":1.0,"b":2.0,"\u0061":3.0}`)
	_, err = m.Signed(genesis.JCS)
	requireProblem(t, err, genesis.CodeInvalidMessage, "/payload/a", "has no canonical form (RFC 8785)")
}

// TestRepeatedNamesChangeNoOtherMember: the other members stay as they were sent.
func TestRepeatedNamesChangeNoOtherMember(t *testing.T) {
	t.Parallel()
	sent := strings.NewReplacer(`"question"`, `"10":1,"question"`, `{"tenant": "blue"}`, `{"n":1.0}`).Replace(string(named(t, "request")))
	request, _ := parse(t, []byte(sent)).Body.(genesis.Request)
	require.Equal(t, `{"2":null,"10":true,"question":"Résumé?","rows":[1,2.5,9007199254740992]}`, string(request.Payload))
	require.Equal(t, `{"n":1.0}`, string(request.Context))
}

// TestErrorMessage: the ERROR that answers a rejected message is valid and names the problems.
func TestErrorMessage(t *testing.T) {
	t.Parallel()
	_, err := genesis.Parse([]byte(`{"id":1,"\u00e9":2}`))
	invalid, ok := errors.AsType[*genesis.Error](err)
	require.True(t, ok)
	require.Greater(t, len(invalid.Problems), 5)
	m := genesis.Message{ID: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11", From: "nova", To: "x", Timestamp: 1e9, Body: invalid.Failure()}
	require.NoError(t, m.Sign(testKey(), genesis.ProfileJCS))
	text, err := m.Format()
	require.NoError(t, err)
	require.Contains(t, string(text), `"errorType":"VALIDATION_ERROR","errorCode":"INVALID_MESSAGE","message":"/id must be a UUID`)
	require.Contains(t, string(text), `"details":{"problems":[{"pointer":"/id","detail":"/id must be a UUID`)

	for _, text := range []string{`{"\u0000":1,"\u0000":2}`, `{"\u0000":1e999}`, `{"a":{"\u0000":}}`} {
		_, err = genesis.Parse([]byte(text))
		invalid, _ = errors.AsType[*genesis.Error](err)
		m.Body = invalid.Failure()
		require.NoError(t, m.Sign(testKey(), genesis.ProfileV1), "the names contain NUL, the message does not")
	}
	problems := make([]genesis.Problem, 12)
	require.Contains(t, (&genesis.Error{Code: "X", Problems: problems}).Error(), "; and 2 more")
}

func requireCode(t *testing.T, err error, code genesis.Code) {
	t.Helper()
	invalid, ok := errors.AsType[*genesis.Error](err)
	require.True(t, ok)
	require.Equal(t, code, invalid.Code)
}
