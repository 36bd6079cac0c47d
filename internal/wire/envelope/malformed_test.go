package envelope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// TestParseRefusesMalformedJSON: the error has one problem, with a field only for a duplicate name.
func TestParseRefusesMalformedJSON(t *testing.T) {
	t.Parallel()
	good := bases()["status"]
	inPayload := func(members string) string { return strings.Replace(good, `"step":{`, `"step":{`+members+",", 1) }
	nested := func(levels int) string {
		return change(t, good, "x_custom_fields", `{"a":`+strings.Repeat("[", levels)+strings.Repeat("]", levels)+`}`)
	}
	parse(t, nested(envelope.MaxDepth-2))
	parse(t, change(t, good, "x_custom_fields", `{"a":"`+strings.Repeat(`[\"`, 99)+`"}`))
	for name, c := range map[string]struct{ sent, field, detail string }{
		"nothing":                  {"", "", "the message is empty"},
		"white space":              {" \r\n\t", "", "the message is empty"},
		"no JSON":                  {"hello", "", "not valid JSON at byte 0"},
		"an array":                 {"[" + good + "]", "", "must be an object, not an array"},
		"null":                     {"null", "", "must be an object, not null"},
		"a string":                 {`"x"`, "", "must be an object, not a string"},
		"a truncated message":      {good[:len(good)-1], "", "ends before it is complete"},
		"a truncated string":       {`{"type":"wor`, "", "ends before it is complete"},
		"a name without a value":   {`{"type"}`, "", "not valid JSON"},
		"a trailing comma":         {good[:len(good)-1] + ",}", "", "not valid JSON"},
		"a second message":         {good + "\n" + good, "", "data after the message"},
		"an extra brace":           {good + "}", "", "data after the message"},
		"a trailing NUL":           {good + "\x00", "", "data after the message"},
		"a byte order mark":        {"\uFEFF" + good, "", "not valid JSON at byte 0"},
		"a raw line break":         {inPayload("\"x\":\"a\nb\""), "", "not valid JSON"},
		"NaN":                      {inPayload(`"x":NaN`), "", "not valid JSON"},
		"a leading zero":           {inPayload(`"x":01`), "", "not valid JSON"},
		"bytes that are not UTF-8": {inPayload("\"x\":\"\xff\""), "", "not valid UTF-8"},
		"half a surrogate pair":    {inPayload(`"x":"\ud83d"`), "", "not valid JSON"},
		"a name that is not UTF-8": {inPayload("\"\xc3\x28\":1"), "", "not valid UTF-8"},
		"a duplicate name":         {good[:len(good)-1] + `,"type":"error"}`, "type", "type appears twice"},
		"a nested duplicate":       {inPayload(`"number":2`), "payload.step.number", "payload.step.number appears twice"},
		"an escaped duplicate":     {inPayload(`"n\u0061me":"x"`), "payload.step.name", "appears twice"},
		"an unknown duplicate":     {inPayload(`"x":[{"y":1,"y":2}]`), "payload.step.x[0].y", "appears twice"},
		"too many levels":          {nested(envelope.MaxDepth - 1), "", "nested deeper than 64 levels"},
		"too many open levels":     {strings.Repeat("[", 65), "", "nested deeper than 64 levels"},
		"too many bytes":           {good + strings.Repeat(" ", envelope.MaxSize), "", "longer than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := envelope.Parse([]byte(c.sent))
			requireProblem(t, err, c.field, c.detail)
			var e *envelope.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, envelope.CodeInvalidMessage, e.Failure.Code)
		})
	}
}

// TestErrorsStaySmall: text from the message is truncated in errors.
func TestErrorsStaySmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, sent := range map[string]string{
		"a long value":            change(t, bases()["result"], "payload.status", `"`+long+`"`),
		"a long number":           change(t, bases()["result"], "payload.exit_code", strings.Repeat("9", 1<<20)),
		"a long name, twice":      `{"payload":{"` + long + `":1,"` + long + `":2}}`,
		"every member is invalid": `{"protocol_version":"` + long + `","message_id":"` + long + `","from_agent":"` + long + `","timestamp":"` + long + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := envelope.Parse([]byte(sent))
			var e *envelope.Error
			require.ErrorAs(t, err, &e)
			require.Less(t, len(e.Error())+len(e.Failure.Message)+len(e.Failure.Context), 8<<10)
		})
	}
}
