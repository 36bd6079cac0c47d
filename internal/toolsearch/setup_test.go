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

// onDatabases runs a subtest on a fresh database of each kind.
func onDatabases(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

// publishedTools returns the tools of published servers (testdata/README.md), by server.
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

// indexOf returns an index of tools without a database.
func indexOf(tools map[string][]toolsearch.Tool, opts *toolsearch.Options) *toolsearch.Index {
	x := toolsearch.New(nil, opts)
	for server, list := range tools {
		x.Replace(server, list)
	}
	return x
}

// ids returns the ids of the hits.
func ids(r toolsearch.Result) []string {
	out := make([]string, 0, len(r.Hits))
	for _, h := range r.Hits {
		out = append(out, h.ID)
	}
	return out
}
