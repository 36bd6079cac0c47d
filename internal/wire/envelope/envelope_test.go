package envelope_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// The UUIDs of the document's first example.
const (
	messageID = "550e8400-e29b-41d4-a716-446655440001"
	traceID   = "550e8400-e29b-41d4-a716-446655440002"
	requestID = "550e8400-e29b-41d4-a716-446655440003"
	taskID    = "550e8400-e29b-41d4-a716-446655440004"
)

// example is an example of the document and how comet formats it.
type example struct {
	name string
	sent string
	want string
}

// examples returns the document's examples as complete messages.
func examples(tb testing.TB) []example {
	tb.Helper()
	archive, err := txtar.ParseFile("testdata/document.txtar")
	require.NoError(tb, err)
	first := string(archive.Files[0].Data)
	var all []example
	for i := 0; i < len(archive.Files); i += 2 {
		printed, want := archive.Files[i], archive.Files[i+1]
		name := strings.TrimSuffix(printed.Name, ".json")
		require.Equal(tb, want.Name, name+".want")
		all = append(all, example{name, wrap(tb, first, string(printed.Data)), strings.TrimSuffix(string(want.Data), "\n")})
	}
	return all
}

// wrap replaces members of the first example by those of another one.
func wrap(tb testing.TB, first, printed string) string {
	tb.Helper()
	printed = strings.ReplaceAll(printed, `"..."`, `"`+taskID+`"`)
	if printed == first {
		return first
	}
	if strings.HasPrefix(printed, `"hints"`) {
		var hints struct{ Hints json.RawMessage }
		require.NoError(tb, json.Unmarshal([]byte("{"+printed+"}"), &hints))
		return change(tb, first, "payload.hints", string(hints.Hints))
	}
	// The values stay as they are printed: decoding and encoding would sort their members.
	var top map[string]json.RawMessage
	require.NoError(tb, json.Unmarshal([]byte(first), &top))
	require.NoError(tb, json.Unmarshal([]byte(printed), &top))
	changed, err := json.Marshal(top)
	require.NoError(tb, err)
	return string(changed)
}

// absent as a value removes a member.
const absent = ""

// change returns the message with another value at a dotted path.
func change(tb testing.TB, message, path, value string) string {
	tb.Helper()
	var top map[string]any
	dec := json.NewDecoder(strings.NewReader(message))
	dec.UseNumber()
	require.NoError(tb, dec.Decode(&top))
	at, names := top, strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		at = at[name].(map[string]any)
	}
	if last := names[len(names)-1]; value == absent {
		delete(at, last)
	} else {
		at[last] = json.RawMessage(value)
	}
	changed, err := json.Marshal(top)
	require.NoError(tb, err)
	return string(changed)
}

// message returns a complete message with a payload.
func message(kind, payload string) string {
	return `{"protocol_version":"1.0","message_id":"` + messageID + `","from_agent":"orchestrator","to_agent":"infra",` +
		`"timestamp":"2026-01-19T04:21:04Z","trace_id":"` + traceID + `","request_id":"` + requestID + `",` +
		`"type":"` + kind + `","payload":` + payload + `}`
}

// parse parses a valid message.
func parse(tb testing.TB, message string) envelope.Envelope {
	tb.Helper()
	e, err := envelope.Parse([]byte(message))
	require.NoError(tb, err)
	return e
}

// problems returns the problems of an *envelope.Error.
func problems(tb testing.TB, err error) []envelope.Problem {
	tb.Helper()
	var e *envelope.Error
	require.ErrorAs(tb, err, &e)
	require.NotEmpty(tb, e.Problems)
	return e.Problems
}

// requireProblem checks that err has one problem with the given field and text.
func requireProblem(tb testing.TB, err error, field, detail string) {
	tb.Helper()
	all := problems(tb, err)
	require.Len(tb, all, 1, "%v", err)
	require.Equal(tb, field, all[0].Field)
	require.Contains(tb, all[0].Detail, detail)
}

func TestHead(t *testing.T) {
	t.Parallel()
	type head struct {
		kind   envelope.Type
		taskID string
	}
	for raw, want := range map[string]head{
		`{"type":"work_status","payload":{"task_id":"A","x":{"task_id":"b"}}}`:                    {"work_status", "a"},
		`{"payload":{"parameters":{"task_id":"b"},"task_id":"a"},"type":"work_request"}`:          {"work_request", "a"},
		`{"x_custom_fields":{"type":"x","task_id":"b"},"payload":{"task_id":"a"},"type":"error"}`: {"error", "a"},
		`{"type":"work_status" , "payload": {"task_id" : "a b"`:                                   {"work_status", "a b"},
		`{"type":5,"payload":{"task_id":5}}`:                                                      {},
		`{"payload":{"task_id":`:                                                                  {},
		`{"type":"open`:                                                                           {},
		`{"task_id":"a"}`:                                                                         {},
		`{"payload":"a"}`:                                                                         {},
		`[{"type":"a"}]`:                                                                          {},
		``:                                                                                        {},
		`{"payload":{"task_id":"` + strings.Repeat("x", 65) + `"}}`:                               {},
	} {
		kind, taskID := envelope.Head([]byte(raw))
		require.Equal(t, want, head{kind, taskID}, raw)
	}
}
