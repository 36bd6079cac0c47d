package genesis_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
)

var update = flag.Bool("update", false, "write testdata/errors.txtar")

// example is a message of testdata/messages.txtar.
type example struct {
	name string
	data []byte
}

func examples(tb testing.TB) []example {
	tb.Helper()
	archive, err := txtar.ParseFile("testdata/messages.txtar")
	require.NoError(tb, err)
	require.Len(tb, archive.Files, 4)
	var all []example
	for _, f := range archive.Files {
		all = append(all, example{f.Name, f.Data})
	}
	return all
}

func named(tb testing.TB, name string) []byte {
	tb.Helper()
	for _, x := range examples(tb) {
		if x.name == name {
			return x.data
		}
	}
	require.Fail(tb, "no such example", name)
	return nil
}

func parse(tb testing.TB, data []byte) genesis.Message {
	tb.Helper()
	m, err := genesis.Parse(data)
	require.NoError(tb, err)
	return m
}

// TestInterfaces checks every field of the document's interfaces.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	key, err := genesis.ParsePublicKey("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
	require.NoError(t, err)
	around := func(n int, kind genesis.Type, body genesis.Body) genesis.Message {
		return genesis.Message{
			ID: fmt.Sprintf("8f14e45f-ceea-467f-a1d0-7c1b2f0e9a1%d", n), Type: kind, From: "nova", To: "data-analyst", CorrelationID: "corr-1",
			Timestamp: 1767225600123456000, Signature: make([]byte, ed25519.SignatureSize), PublicKey: key, Body: body,
		}
	}
	request := around(1, genesis.TypeRequest, genesis.Request{
		Intent: "analyze_data", Confidence: 0.98,
		Entities: []genesis.Entity{
			{Type: "workflow_id", Value: "etl-pipeline-123", Confidence: 0.98, StartOffset: new(int64(4)), EndOffset: new(int64(20))},
			{Type: "date_range", Value: "2024-01-01 to 2024-01-31", Confidence: 0.95, Metadata: []byte(`{"startDate":"2024-01-01","endDate":"2024-01-31"}`)},
			{Type: "agent_name", Value: "data-analyst", Confidence: 0.99},
		},
		Payload: []byte(`{"question":"Résumé?","rows":[1,2.50,9007199254740993],"10":true,"2":null}`),
		Context: []byte(`{"tenant":"blue"}`), Priority: genesis.High, TimeoutMS: 30000, TTLMS: 60000,
		Options: genesis.Options{RequiresAck: true, RequiresResponse: new(true), AllowPartialResponse: true, MaxResponseTimeMS: 10000, Stream: true},
	})
	request.From, request.To, request.SignatureJCS = "data-analyst", genesis.Broadcast, make([]byte, ed25519.SignatureSize)
	response := around(2, genesis.TypeResponse, genesis.Response{
		RequestID: request.ID, Status: genesis.Failed, Data: []byte(`{"rows":0}`),
		Error:      &genesis.ErrorDetails{Code: "NO_DATA", Message: "There is no data.", Details: []byte(`{"table":"sales"}`)},
		Confidence: new(0.5), Sources: []string{"warehouse"}, ProcessingTimeMS: new(12.5),
	})
	event := around(3, genesis.TypeEvent, genesis.Event{
		EventType: "workflow.completed", EventName: "Workflow completed", Payload: []byte(`{"workflow":"etl-pipeline-123"}`),
		Metadata:          genesis.Metadata{SchemaVersion: "1", ContentType: "application/json"},
		DeliveryGuarantee: genesis.ExactlyOnce, DeduplicationID: "etl-pipeline-123",
	})
	event.To, event.CorrelationID = genesis.Broadcast, ""
	failure := around(4, genesis.TypeError, genesis.Failure{
		OriginalMessageID: request.ID, ErrorType: genesis.ErrorRouting, ErrorCode: "UNAVAILABLE", Message: "All agents with this capability are away.",
		Details: []byte(`{"supported":["query_data"]}`), RetryAfterMS: new(int64(0)), FallbackSuggestion: "data-analyst-2",
	})
	want := map[string]genesis.Message{"request": request, "response": response, "event": event, "error": failure}
	for _, x := range examples(t) {
		var spaceless bytes.Buffer
		require.NoError(t, json.Compact(&spaceless, x.data))
		got := parse(t, spaceless.Bytes())
		require.Equal(t, want[x.name], withoutMembers(got), x.name)
		require.Equal(t, "2026-01-01T00:00:00.123456Z", got.Time().Format("2006-01-02T15:04:05.999999999Z07:00"))

		written, err := got.Format()
		require.NoError(t, err)
		again := parse(t, written)
		require.Equal(t, inJavaScript(t, want[x.name]), withoutMembers(again), x.name)
	}
}

// TestErrors compares the errors for each member of the interfaces that is missing, null or of another type with
// testdata/errors.txtar, which shows the texts to readers. With -update it writes the file.
func TestErrors(t *testing.T) {
	t.Parallel()
	var golden txtar.Archive
	for _, x := range examples(t) {
		var text strings.Builder
		for _, path := range paths(x.data, "") {
			for _, c := range []struct{ name, value string }{{"missing", ""}, {"null", "null"}, {"wrong", wrong(at(t, x.data, path))}} {
				_, err := genesis.Parse(changed(t, x.data, path, c.value))
				said := "valid"
				if err != nil {
					var invalid *genesis.Error
					require.ErrorAs(t, err, &invalid)
					said = invalid.Error()
				}
				fmt.Fprintf(&text, "%s %s: %s\n", path, strings.TrimSpace(c.name+" "+strings.TrimPrefix(c.value, "null")), said)
			}
		}
		golden.Files = append(golden.Files, txtar.File{Name: x.name, Data: []byte(text.String())})
	}
	const file = "testdata/errors.txtar"
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(&golden), 0o600))
	}
	stored, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(stored), string(txtar.Format(&golden)))
}

// paths returns the JSON pointers of all members that the protocol defines.
func paths(data []byte, path string) []string {
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token()
	var all []string
	for dec.More() {
		token, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		name := fmt.Sprint(token)
		all = append(all, path+"/"+name)
		switch name {
		case "entities":
			var entities []json.RawMessage
			_ = json.Unmarshal(value, &entities)
			all = append(all, path+"/entities/0")
			all = append(all, paths(entities[0], path+"/entities/0")...)
			all = append(all, path+"/entities/1/metadata")
		case "error", "options":
			all = append(all, paths(value, path+"/"+name)...)
		case "metadata":
			if bytes.Contains(value, []byte("schemaVersion")) {
				all = append(all, paths(value, path+"/"+name)...)
			}
		case "sources":
			all = append(all, path+"/sources/0")
		}
	}
	return all
}

// wrong returns a value of another type.
func wrong(value any) string {
	switch value.(type) {
	case string, map[string]any:
		return "7"
	case bool:
		return "1"
	}
	return `"x"`
}

// at returns the value at a JSON pointer.
func at(tb testing.TB, data []byte, path string) any {
	tb.Helper()
	var value any
	require.NoError(tb, json.Unmarshal(data, &value))
	for token := range strings.SplitSeq(path[1:], "/") {
		switch v := value.(type) {
		case map[string]any:
			value = v[token]
		case []any:
			value = v[token[0]-'0']
		}
	}
	return value
}

// changed returns data with the value at a JSON pointer replaced by value, or removed if that is "".
func changed(tb testing.TB, data []byte, path, value string) []byte {
	tb.Helper()
	token, rest, inner := strings.Cut(path[1:], "/")
	replace := func(old json.RawMessage) json.RawMessage {
		if inner {
			return changed(tb, old, "/"+rest, value)
		}
		return json.RawMessage(value)
	}
	if data[0] == '[' {
		var array []json.RawMessage
		require.NoError(tb, json.Unmarshal(data, &array))
		i := int(token[0] - '0')
		if array[i] = replace(array[i]); len(array[i]) == 0 {
			array = append(array[:i], array[i+1:]...)
		}
		text, err := json.Marshal(array)
		require.NoError(tb, err)
		return text
	}
	var object map[string]json.RawMessage
	require.NoError(tb, json.Unmarshal(data, &object))
	if object[token] = replace(object[token]); len(object[token]) == 0 {
		delete(object, token)
	}
	text, err := json.Marshal(object)
	require.NoError(tb, err)
	return text
}

// requireProblem checks that err has one problem, with the pointer and a part of its text.
func requireProblem(tb testing.TB, err error, code genesis.Code, pointer, detail string) {
	tb.Helper()
	invalid, ok := errors.AsType[*genesis.Error](err)
	require.True(tb, ok, "%v", err)
	require.Len(tb, invalid.Problems, 1, err)
	require.Equal(tb, code, invalid.Code, err)
	require.Equal(tb, pointer, invalid.Problems[0].Pointer, err)
	require.Contains(tb, invalid.Problems[0].Detail, detail)
}

// withoutMembers returns a message that equals one that was not parsed.
func withoutMembers(m genesis.Message) genesis.Message {
	return genesis.Message{
		ID: m.ID, Type: m.Type, From: m.From, To: m.To, CorrelationID: m.CorrelationID, Timestamp: m.Timestamp,
		Signature: m.Signature, SignatureJCS: m.SignatureJCS, PublicKey: m.PublicKey, Body: m.Body,
	}
}

// inJavaScript returns a message whose raw values are as JavaScript prints them.
func inJavaScript(tb testing.TB, m genesis.Message) genesis.Message {
	tb.Helper()
	printed := func(value []byte) []byte {
		if value == nil {
			return nil
		}
		text, err := genesis.JavaScript(value)
		require.NoError(tb, err)
		return text
	}
	switch b := m.Body.(type) {
	case genesis.Request:
		b.Payload, b.Context = printed(b.Payload), printed(b.Context)
		b.Entities = append([]genesis.Entity{}, b.Entities...)
		for i := range b.Entities {
			b.Entities[i].Metadata = printed(b.Entities[i].Metadata)
		}
		m.Body = b
	case genesis.Response:
		b.Data = printed(b.Data)
		if b.Error != nil {
			e := *b.Error
			e.Details = printed(e.Details)
			b.Error = &e
		}
		m.Body = b
	case genesis.Event:
		b.Payload = printed(b.Payload)
		m.Body = b
	case genesis.Failure:
		b.Details = printed(b.Details)
		m.Body = b
	}
	return m
}
