package upstream

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"

	"comet/internal/input"
)

func TestOversizedResponseID(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("z", 3*input.LongTextEnd)
	for text, want := range map[string]any{
		`{"jsonrpc":"2.0","id":5,"result":{"id":7,"t":"` + big + `"}}`:                     int64(5),
		`{"jsonrpc":"2.0","id":5,"result":{"t":"` + big + `","id":7}}`:                     int64(5),
		`{"result":{"content":[{"id":1},"}]"],"t":"` + big + `"},"jsonrpc":"2.0","id":12}`: int64(12),
		`{"result":{"t":"` + big + `"},"id":12,"jsonrpc":"2.0"}`:                           int64(12),
		` { "result" : "a\"id\":3` + big + `" , "id" : "x,y" } ` + "\n":                    "x,y",
		`{"result":"` + big + `,\"id\":3}`:                                                 nil,
		`{"id":5,"method":"ping","params":"` + big + `"}`:                                  nil,
		`{"method":"ping","params":"` + big + `","id":5}`:                                  nil,
		`{"id":null,"error":{"message":"` + big + `"}}`:                                    nil,
		`{"result":{"t":"` + big + `","id":7}}`:                                            nil,
		`["id",5,"` + big + `"]`:                                                           nil,
		`id:5}` + big:                                                                      nil,
	} {
		for _, step := range []int{1, 100, len(text)} {
			var o input.LongText
			for part := range slices.Chunk([]byte(text), step) {
				o.Add(part)
			}
			id, ok := responseIDOf(&o)
			require.Equal(t, want != nil, ok, text)
			require.Equal(t, want, id.Raw(), text)
		}
	}
}

func FuzzOversizedResponseID(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":{"id":7}}`))
	f.Add([]byte(`{"result":[{}],"id":"a\"b","x":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o input.LongText
		o.Add(text)
		got, ok := responseIDOf(&o)
		msg, err := jsonrpc.DecodeMessage(text)
		response, isResponse := msg.(*jsonrpc.Response)
		if !ok || err != nil || !isResponse || bytes.Count(text, []byte(`"id"`)) != 1 {
			return // the SDK rejects such streams in another way
		}
		require.Equal(t, response.ID, got)
	})
}

// TestEventsWithoutMessage checks that an event keeps its id, which the SDK reads, when its message
// is removed.
func TestEventsWithoutMessage(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"event: message\nid: 7\ndata: <html>\n\n", "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n"} {
		handled := func(jsonrpc.Message, string) bool { return true }
		got, err := io.ReadAll(newEventFilter(io.NopCloser(strings.NewReader(in)), &inbound{limit: 100, hook: handled}))
		require.NoError(t, err)
		require.Equal(t, "id: 7\n\n", string(got), in)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("z", 100)
	for name, c := range map[string]struct {
		in, want string
		dropped  int64
	}{
		"a message":             {"event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n", "event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n", 0},
		"in several lines":      {"data:{\"jsonrpc\":\"2.0\",\ndata: \"method\":\"m\"}\r\n\r\n", "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"m\"}\n\n", 0},
		"of another name":       {"event: endpoint\ndata: /x\n\n", "event: endpoint\ndata: /x\n\n", 0},
		"a place in the stream": {"id: 7\nretry: 10\ndata:\n\n", "id: 7\nretry: 10\ndata: \n\n", 0},
		"a comment, nonsense":   {": hello\nnonsense\n\n", "", 0},
		"no message":            {"data: <html>\n\n", "", 1},
		"without an end":        {"data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}", "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n", 0},
		"too large an answer":   {"data: {\"jsonrpc\":\"2.0\",\"result\":\"" + big + "\",\"id\":4}\n\n", `data: {"jsonrpc":"2.0","id":4,"error":{"code":-32097,"message":"the response is larger than 60 bytes"}}` + "\n\n", 0},
		"in many lines":         {"data: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":[\"" + big[:40] + "\",\ndata: \"" + big[:40] + "\"]}\n\n", `data: {"jsonrpc":"2.0","id":4,"error":{"code":-32097,"message":"the response is larger than 60 bytes"}}` + "\n\n", 0},
		"too large a notice":    {"data: {\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":\"" + big + "\"}\n\n", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := inbound{limit: 60, hook: func(jsonrpc.Message, string) bool { return false }}
			got, err := io.ReadAll(newEventFilter(io.NopCloser(iotest.HalfReader(strings.NewReader(c.in))), &rules))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.Equal(t, c.dropped, rules.invalid.n)
		})
	}
}
