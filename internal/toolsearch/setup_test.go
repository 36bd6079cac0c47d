package toolsearch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/toolsearch"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

// publishedTools returns the tools of servers as they are published, by server. Where the files
// come from is in testdata/README.md.
func publishedTools(tb testing.TB) map[string][]toolsearch.Tool {
	tb.Helper()
	files, err := filepath.Glob("testdata/tools/*.json")
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	out := map[string][]toolsearch.Tool{}
	for _, file := range files {
		var list struct {
			Server string
			Tools  []struct {
				Name, Title, Description string
				InputSchema              json.RawMessage
			}
		}
		text, err := os.ReadFile(file)
		require.NoError(tb, err)
		require.NoError(tb, json.Unmarshal(text, &list), file)
		for _, one := range list.Tools {
			out[list.Server] = append(out[list.Server], toolsearch.Tool{
				ID: list.Server + ":" + one.Name, Server: list.Server, Name: one.Name, Title: one.Title, Description: one.Description, InputSchema: one.InputSchema,
			})
		}
	}
	return out
}

// indexOf returns an index of these tools that is only searched.
func indexOf(tools map[string][]toolsearch.Tool, opts *toolsearch.Options) *toolsearch.Index {
	x := toolsearch.New(nil, opts)
	for server, list := range tools {
		x.Replace(server, list)
	}
	return x
}

// ids are those of hits.
func ids(a toolsearch.Result) []string {
	out := make([]string, 0, len(a.Hits))
	for _, h := range a.Hits {
		out = append(out, h.ID)
	}
	return out
}
