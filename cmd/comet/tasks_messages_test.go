package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTaskMessages prints messages in the form of PROTOCOL_V5 §10.3, from all pages, each
// indented below the message that caused it.
func TestTaskMessages(t *testing.T) {
	t.Parallel()
	message := func(id, from, to, kind, code, data, parent string) string {
		return `{"id":"` + id + `","at":"1970-01-01T00:00:14.523Z","ctx":"S1","tid":"T1","number":5,"from":"` + from + `","to":"` + to +
			`","type":"` + kind + `","state":null,"err":` + code + `,"depth":0,"data":"` + data + `","pid":null,"parent_id":` + parent + `}`
	}
	pages := map[string]string{
		"": `{"messages":[` + message("a", "O1", "W1", "R", "null", "call=web_search", "null") + "," +
			message("b", "W1", "O1", "U", "null", "progress=50%", `"a"`) + `],"next_cursor":"x"}`,
		"x": `{"messages":[` + message("c", "W1", "O1", "E", `"E31"`, "BUSY\\u001b[2J", `"b"`) + "," +
			message("d", "W1", "O1", "A", "null", "-", `"elsewhere"`) + `]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("cursor")])
	}))
	defer server.Close()
	shown := func(args ...string) string {
		var out bytes.Buffer
		root, _ := newRootCommand()
		root.SetOut(&out)
		root.SetArgs(append([]string{"tasks", "messages", "t", "--server", server.URL, "--token", "x"}, args...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		return out.String()
	}
	require.Equal(t, `[14523] [INFO] [S1] [T1] O1>W1 R - call=web_search
  [14523] [INFO] [S1] [T1] W1>O1 U - progress=50%
    [14523] [WARN] [S1] [T1] W1>O1 E E31 BUSY [2J
[14523] [INFO] [S1] [T1] W1>O1 A - -
`, shown())
	require.Contains(t, shown("-o", "json"), `"parent_id": "elsewhere"`)
}
