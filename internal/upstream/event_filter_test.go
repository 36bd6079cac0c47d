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
)

func TestOversizedResponseID(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("z", 3*oversizedEnd)
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
			var o oversized
			for part := range slices.Chunk([]byte(text), step) {
				o.add(part)
			}
			id, ok := o.responseID()
			require.Equal(t, want != nil, ok, text)
			require.Equal(t, want, id.Raw(), text)
		}
	}
}

func FuzzOversizedResponseID(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":{"id":7}}`))
	f.Add([]byte(`{"result":[{}],"id":"a\"b","x":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o oversized
		o.add(text)
		got, ok := o.responseID()
		msg, err := jsonrpc.DecodeMessage(text)
		response, isResponse := msg.(*jsonrpc.Response)
		if !ok || err != nil || !isResponse || bytes.Count(text, []byte(`"id"`)) != 1 {
			return // only what is certain is compared
		}
		require.Equal(t, response.ID, got)
	})
}

func TestLines(t *testing.T) {
	t.Parallel()
	in := "a\r\n\n" + strings.Repeat("x", 10) + "\n" + strings.Repeat("y", 11) + "\nlast"
	l := newLineReader(iotest.OneByteReader(strings.NewReader(in)), 10)
	var got []string
	for {
		line, over, err := l.next()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		if over != nil {
			line = []byte("(over)")
		}
		got = append(got, string(line))
	}
	require.Equal(t, []string{"a", "", "xxxxxxxxxx", "(over)", "last"}, got)
}

// TestEventsWithoutMessage: the SDK's reader needs the id of an event whose message was taken away.
func TestEventsWithoutMessage(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"event: message\nid: 7\ndata: <html>\n\n", "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n"} {
		handled := func(jsonrpc.Message) bool { return true }
		got, err := io.ReadAll(newEventFilter(io.NopCloser(strings.NewReader(in)), 100, &invalidMessages{}, handled))
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
			var dropped invalidMessages
			got, err := io.ReadAll(newEventFilter(io.NopCloser(iotest.HalfReader(strings.NewReader(c.in))), 60, &dropped, func(jsonrpc.Message) bool { return false }))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			require.Equal(t, c.dropped, dropped.n)
		})
	}
}

func TestClipBytesKeepsWholeCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, "aé", clipBytes("aé", 3))
	require.Equal(t, "a…", clipBytes("aéb", 2))
	require.Equal(t, "aé…", clipBytes("aéb", 3))
}
