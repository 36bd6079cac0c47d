package toolsearch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/toolsearch"
)

// tool returns a tool of the server fs, or of the server before the colon of its name.
func tool(name, description string, parameters ...string) toolsearch.Tool {
	server, own, found := strings.Cut(name, ":")
	if !found {
		server, own = "fs", name
	}
	properties := map[string]map[string]string{}
	for _, p := range parameters {
		properties[p] = map[string]string{"type": "string"}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties})
	if err != nil {
		panic(err)
	}
	return toolsearch.Tool{ID: server + ":" + own, Server: server, Name: own, Description: description, InputSchema: schema}
}

// search returns the ids of the hits of a query.
func search(t *testing.T, x *toolsearch.Index, text string) []string {
	t.Helper()
	a, err := x.Search(t.Context(), toolsearch.Query{Text: text})
	require.NoError(t, err)
	return ids(a)
}

// indexOne returns an index of the tools of the server fs.
func indexOne(tools ...toolsearch.Tool) *toolsearch.Index {
	return indexOf(map[string][]toolsearch.Tool{"fs": tools}, nil)
}

func TestSearch(t *testing.T) {
	t.Parallel()

	t.Run("finds the words of identifiers", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("readHTTPFile2", "x"), tool("list_issues", "x"), tool("do", "x", "imageURL"), tool("other", "nothing of that"))
		for text, want := range map[string]string{"http": "fs:readHTTPFile2", "file 2": "fs:readHTTPFile2", "issue": "fs:list_issues", "IMAGE": "fs:do", "listIssues": "fs:list_issues"} {
			require.Equal(t, []string{want}, search(t, x, text), text)
		}
	})

	t.Run("understands French with and without accents", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_file", "Reads a file"), tool("create_directory", "Makes a directory"), tool("delete_file", "Deletes a file"), tool("search", "Finds files"))
		for text, want := range map[string]string{
			"lire un fichier": "fs:read_file", "créer un répertoire": "fs:create_directory", "CREER UN REPERTOIRE": "fs:create_directory",
			"je veux supprimer des fichiers": "fs:delete_file", "comment est-ce que je peux rechercher quelque chose ?": "fs:search", "l’écriture d’un dossier": "fs:create_directory",
		} {
			require.Equal(t, want, search(t, x, text)[0], text)
		}
	})

	t.Run("finds tools described in French", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("factures", "Affiche les factures impayées d'un client"), tool("clients", "Donne la liste des clients"))
		require.Equal(t, "fs:factures", search(t, x, "facture impayée")[0])
		require.Equal(t, "fs:factures", search(t, x, "factures impayees")[0])
	})

	t.Run("does not translate an English query", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("add_comment", "Adds a comment"), tool("list", "Lists files"), tool("reply_to_thread", "Replies in a thread"))
		require.Equal(t, "fs:add_comment", search(t, x, "a comment on this")[0], "comment means how in French")
		require.NotContains(t, search(t, x, "the files"), "fs:reply_to_thread", "fil means thread in French")
	})

	t.Run("corrects one mistake in a short word and two in a long one", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_file", "Reads a file"), tool("elevation", "Height of a place"), tool("sum", "Adds up"))
		for text, want := range map[string]string{
			"raed": "fs:read_file", "elvatoin": "fs:elevation", "relevation": "fs:elevation",
			"dispaly fiel":    "fs:read_file", // display is a word of the vocabulary, not of a tool
			"lier un fihcier": "fs:read_file",
		} {
			require.Equal(t, want, search(t, x, text)[0], text)
		}
		for _, text := range []string{"sun", "rxxd", "bead", "elvtoin"} {
			require.Empty(t, search(t, x, text), "%s: too short or too many mistakes", text)
		}
	})

	t.Run("corrects one mistake", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("elevation", "Height of a place"), tool("screenshot", "Takes a picture"))
		require.Equal(t, []string{"fs:elevation"}, search(t, x, "elevatoin"))
		require.Empty(t, search(t, x, "xylophone"))
	})

	t.Run("ranks tools that delete last unless the query deletes", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("delete_note", "Deletes a note"), tool("show_the_content_of_one_note", "Shows it"), tool("closed_notes", "Notes that are closed"))
		for _, text := range []string{"note", "a note about Bob", "renommer une note"} {
			all := search(t, x, text)
			require.Equal(t, "fs:delete_note", all[len(all)-1], text)
			require.Len(t, all, 3, "it is not hidden")
		}
		for _, text := range []string{"delete a note", "remove notes", "supprimer une note", "effacer des notes", "delte a note", "DeleteNote", "I would like help to delete a note"} {
			require.Equal(t, "fs:delete_note", search(t, x, text)[0], text)
		}
	})

	t.Run("keeps a hit that is ranked lower", func(t *testing.T) {
		t.Parallel()
		const about = "Ends a process. All that it has in memory goes too"
		neutral, deleting := indexOne(tool("turn_process", about), tool("show", "Shows it")), indexOne(tool("kill_process", about), tool("show", "Shows it"))
		hits := 0
		for n := range 60 {
			text := "memory " + strings.Repeat("zzz ", n)
			require.Len(t, search(t, deleting, text), len(search(t, neutral, text)), text)
			hits += len(search(t, neutral, text))
		}
		require.Greater(t, hits, 5)
		require.Less(t, hits, 60, "with enough unknown words nothing is a hit")
	})

	t.Run("prefers the server that the query names", func(t *testing.T) {
		t.Parallel()
		x := indexOf(map[string][]toolsearch.Tool{
			"acme":   {tool("acme:create_issue", "Create an issue"), tool("acme:list_issues", "List issues")},
			"globex": {tool("globex:create_issue", "Create an issue"), tool("globex:list_issues", "List issues")},
		}, nil)
		require.Equal(t, "globex:create_issue", search(t, x, "create an issue on globex")[0])
		require.Equal(t, []string{"acme:create_issue", "globex:create_issue"}, search(t, x, "create an issue")[:2], "equal hits are sorted by id")
	})

	t.Run("weighs a corrected word less", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("elevation", "Height of a place"), tool("screenshot", "Takes a picture"))
		require.Equal(t, []string{"fs:screenshot", "fs:elevation"}, search(t, x, "elevatoin screenshot"))
		require.Equal(t, []string{"fs:elevation", "fs:screenshot"}, search(t, x, "elevation screenshto"))
	})

	t.Run("does not correct known words", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("add_node", "Adds one"), tool("weather", "Tells the forecast"), tool("shout", "Is loud"))
		require.Empty(t, search(t, x, "whether"), "two mistakes in seven letters")
		require.Empty(t, search(t, x, "shoud zzz"), "should is a stop word and as near as shout")
		x = indexOne(tool("branch_list", "Lists them"), tool("fold", "Folds"))
		require.Empty(t, search(t, x, "fork"), "fork is a word of the vocabulary, even though no tool has it")
	})

	t.Run("ranks deprecated tools lower", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_old", "Reads a file. DEPRECATED: use read_new"), tool("read_new", "Reads a file. Fast and well"))
		require.Equal(t, []string{"fs:read_new", "fs:read_old"}, search(t, x, "read file"))
	})

	t.Run("gives the best of bad hits a low score", func(t *testing.T) {
		t.Parallel()
		x := indexOf(publishedTools(t), nil)
		best := func(text string) float64 {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: text, Limit: 1})
			require.NoError(t, err)
			require.NotEmpty(t, a.Hits, text)
			return a.Hits[0].Score
		}
		require.Greater(t, best("create directory"), 0.85)
		require.Less(t, best("paint the garden fence green with a file"), 0.4)
	})

	t.Run("returns the parts of the score", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_file", "Reads a file"), tool("write_file", "Writes a file"))
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:write_file"}})
		require.NoError(t, err)
		require.Equal(t, toolsearch.Meta{Alpha: 1, Tools: 2, Took: a.Meta.Took}, a.Meta, "the graph does not know the context, so the text alone counts")
		require.Equal(t, "Reads a file", a.Hits[0].Description)
		require.Equal(t, a.Hits[0].SemanticScore, a.Hits[0].Score) //nolint:testifylint // exactly the same number
		require.False(t, a.Hits[0].Related)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	var many []toolsearch.Tool
	for i := range 150 {
		many = append(many, tool(fmt.Sprintf("read_%03d", i), "Reads"))
	}
	x := indexOne(many...)
	for name, c := range map[string]struct {
		q    toolsearch.Query
		hits int // 0 for an error
	}{
		"rejects an empty text":           {toolsearch.Query{Text: " \n"}, 0},
		"returns five hits by default":    {toolsearch.Query{Text: "read"}, 5},
		"returns up to a hundred hits":    {toolsearch.Query{Text: "read", Limit: 100}, 100},
		"rejects a limit above a hundred": {toolsearch.Query{Text: "read", Limit: 101}, 0},
		"rejects a negative limit":        {toolsearch.Query{Text: "read", Limit: -1}, 0},
		"accepts the longest text":        {toolsearch.Query{Text: "read" + strings.Repeat(" ", toolsearch.MaxText-4)}, 5},
		"rejects a longer text":           {toolsearch.Query{Text: "read" + strings.Repeat(" ", toolsearch.MaxText-3)}, 0},
		"accepts a hundred context tools": {toolsearch.Query{Text: "read", ContextTools: make([]string, toolsearch.MaxContext)}, 5},
		"rejects more context tools":      {toolsearch.Query{Text: "read", ContextTools: make([]string, toolsearch.MaxContext+1)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := x.Search(t.Context(), c.q)
			if c.hits == 0 {
				require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
				return
			}
			require.NoError(t, err)
			require.Len(t, a.Hits, c.hits)
		})
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	only := func(id string) func(string) bool { return func(tool string) bool { return tool == id } }

	t.Run("is applied to cached rankings", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_a", "Reads"), tool("read_b", "Reads"))
		for i, id := range []string{"fs:read_a", "fs:read_b", "fs:read_a"} {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", Allowed: only(id)})
			require.NoError(t, err)
			require.Equal(t, []string{id}, ids(a))
			require.Equal(t, i > 0, a.Meta.Cached)
		}
	})

	t.Run("finds the allowed tool behind a thousand others", func(t *testing.T) {
		t.Parallel()
		var many []toolsearch.Tool
		for i := range 1000 {
			many = append(many, tool(fmt.Sprintf("read_%04d", i), "Reads"))
		}
		x := indexOne(many...)
		for range 2 {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", Allowed: only("fs:read_0999")})
			require.NoError(t, err)
			require.Equal(t, []string{"fs:read_0999"}, ids(a))
		}
	})
}

func TestReplace(t *testing.T) {
	t.Parallel()

	t.Run("sets all tools of one server", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_a", "Reads"), tool("read_b", "Reads"))
		x.Replace("other", []toolsearch.Tool{tool("other:read", "Reads")})
		require.Len(t, search(t, x, "read"), 3)
		x.Replace("fs", []toolsearch.Tool{tool("read_c", "Reads")})
		require.ElementsMatch(t, []string{"fs:read_c", "other:read"}, search(t, x, "read"), "and nothing from the cache")
		x.Replace("fs", nil)
		require.Equal(t, []string{"other:read"}, search(t, x, "read"))
		x.Replace("other", nil)
		require.Empty(t, search(t, x, "read"))
	})

	t.Run("accepts any schema", func(t *testing.T) {
		t.Parallel()
		for _, schema := range []string{"", "null", "[]", "{", `{"properties": 3}`, `{"properties": {"a": null}}`, `{"properties": {"a": {"enum": [1, null, "green"]}}}`} {
			x := indexOne(toolsearch.Tool{ID: "fs:read", Server: "fs", Name: "read", InputSchema: json.RawMessage(schema)})
			require.Equal(t, []string{"fs:read"}, search(t, x, "read"), schema)
		}
	})

	t.Run("is safe during searches", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("read_a", "Reads"))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					a, err := x.Search(context.Background(), toolsearch.Query{Text: "read"})
					require.NoError(t, err)
					require.Contains(t, []int{1, 2}, len(a.Hits), "all tools of one call of Replace, never some of two")
				}
			})
		}
		for i := range 300 {
			x.Replace("fs", []toolsearch.Tool{tool("read_a", "Reads"), tool("read_b", "Reads")}[:1+i%2])
		}
		cancel()
		all.Wait()
	})
}
