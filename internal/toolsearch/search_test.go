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

// tool is one of the server fs, or of the one its name says.
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

// found are the ids that a query finds.
func found(t *testing.T, x *toolsearch.Index, text string) []string {
	t.Helper()
	a, err := x.Search(t.Context(), toolsearch.Query{Text: text})
	require.NoError(t, err)
	return ids(a)
}

func one(tools ...toolsearch.Tool) *toolsearch.Index {
	return indexOf(map[string][]toolsearch.Tool{"fs": tools}, nil)
}

func TestSearch(t *testing.T) {
	t.Parallel()

	t.Run("FindsWordsWhereverIdentifiersHideThem", func(t *testing.T) {
		t.Parallel()
		x := one(tool("readHTTPFile2", "x"), tool("list_issues", "x"), tool("do", "x", "imageURL"), tool("other", "nothing of that"))
		for text, want := range map[string]string{"http": "fs:readHTTPFile2", "file 2": "fs:readHTTPFile2", "issue": "fs:list_issues", "IMAGE": "fs:do", "listIssues": "fs:list_issues"} {
			require.Equal(t, []string{want}, found(t, x, text), text)
		}
	})

	t.Run("UnderstandsFrenchWithAndWithoutAccents", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_file", "Reads a file"), tool("create_directory", "Makes a directory"), tool("delete_file", "Deletes a file"), tool("search", "Finds files"))
		for text, want := range map[string]string{
			"lire un fichier": "fs:read_file", "créer un répertoire": "fs:create_directory", "CREER UN REPERTOIRE": "fs:create_directory",
			"je veux supprimer des fichiers": "fs:delete_file", "comment est-ce que je peux rechercher quelque chose ?": "fs:search", "l’écriture d’un dossier": "fs:create_directory",
		} {
			require.Equal(t, want, found(t, x, text)[0], text)
		}
	})

	t.Run("FindsToolsThatAreDescribedInFrench", func(t *testing.T) {
		t.Parallel()
		x := one(tool("factures", "Affiche les factures impayées d'un client"), tool("clients", "Donne la liste des clients"))
		require.Equal(t, "fs:factures", found(t, x, "facture impayée")[0])
		require.Equal(t, "fs:factures", found(t, x, "factures impayees")[0])
	})

	t.Run("LeavesAnEnglishQueryEnglish", func(t *testing.T) {
		t.Parallel()
		x := one(tool("add_comment", "Adds a comment"), tool("list", "Lists files"), tool("reply_to_thread", "Replies in a thread"))
		require.Equal(t, "fs:add_comment", found(t, x, "a comment on this")[0], "comment is how in French")
		require.NotContains(t, found(t, x, "the files"), "fs:reply_to_thread", "fil is a thread in French")
	})

	t.Run("ForgivesOneMistakeAndHalfAWord", func(t *testing.T) {
		t.Parallel()
		x := one(tool("elevation", "Height of a place"), tool("screenshot", "Takes a picture"))
		require.Equal(t, []string{"fs:elevation"}, found(t, x, "elevatoin"))
		require.Equal(t, []string{"fs:screenshot"}, found(t, x, "screensh"))
		require.Empty(t, found(t, x, "xylophone"))
	})

	t.Run("ForgivesOneMistakeInAShortWordAndTwoInALongOne", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_file", "Reads a file"), tool("elevation", "Height of a place"), tool("sum", "Adds up"))
		for text, want := range map[string]string{
			"raed": "fs:read_file", "elvatoin": "fs:elevation", "relevation": "fs:elevation",
			"dispaly fiel":    "fs:read_file", // a word of the vocabulary, not of a tool
			"lier un fihcier": "fs:read_file",
		} {
			require.Equal(t, want, found(t, x, text)[0], text)
		}
		for _, text := range []string{"sun", "rxxd", "bead", "elvtoin"} {
			require.Empty(t, found(t, x, text), "%s is another word: too short, or with too many mistakes", text)
		}
	})

	t.Run("CountsAMistypedWordLess", func(t *testing.T) {
		t.Parallel()
		x := one(tool("elevation", "Height of a place"), tool("screenshot", "Takes a picture"))
		require.Equal(t, []string{"fs:screenshot", "fs:elevation"}, found(t, x, "elevatoin screenshot"))
		require.Equal(t, []string{"fs:elevation", "fs:screenshot"}, found(t, x, "elevation screenshto"))
	})

	t.Run("TakesNoWordForMistypedThatItKnows", func(t *testing.T) {
		t.Parallel()
		x := one(tool("add_node", "Adds one"), tool("weather", "Tells the forecast"), tool("shout", "Is loud"))
		require.Empty(t, found(t, x, "whether"), "two mistakes in seven letters")
		require.Empty(t, found(t, x, "shoud zzz"), "should is a small word, and as near as shout")
		x = one(tool("branch_list", "Lists them"), tool("fold", "Folds"))
		require.Empty(t, found(t, x, "fork"), "the vocabulary knows fork, and no tool forks")
	})

	t.Run("PutsWhatDestroysBackUnlessItIsAskedFor", func(t *testing.T) {
		t.Parallel()
		x := one(tool("delete_note", "Deletes a note"), tool("show_the_content_of_one_note", "Shows it"), tool("closed_notes", "Notes that are closed"))
		for _, text := range []string{"note", "a note about Bob", "renommer une note"} {
			all := found(t, x, text)
			require.Equal(t, "fs:delete_note", all[len(all)-1], text)
			require.Len(t, all, 3, "it is not hidden")
		}
		for _, text := range []string{"delete a note", "remove notes", "supprimer une note", "effacer des notes", "delte a note", "DeleteNote"} {
			require.Equal(t, "fs:delete_note", found(t, x, text)[0], text)
		}
	})

	t.Run("KeepsAHitThatIsPutBackAHit", func(t *testing.T) {
		t.Parallel()
		const about = "Ends a process. All that it has in memory goes too"
		kind, unkind := one(tool("turn_process", about), tool("show", "Shows it")), one(tool("kill_process", about), tool("show", "Shows it"))
		hits := 0
		for n := range 60 {
			text := "memory " + strings.Repeat("zzz ", n)
			require.Len(t, found(t, unkind, text), len(found(t, kind, text)), text)
			hits += len(found(t, kind, text))
		}
		require.Greater(t, hits, 5)
		require.Less(t, hits, 60, "at last it is none")
	})

	t.Run("KnowsWhatSomebodyWantsWhoSaysIt", func(t *testing.T) {
		t.Parallel()
		x := one(
			tool("add_observations", "Adds observations"), tool("delete_observations", "Deletes observations"), tool("search_memory", "Searches what is kept"),
			tool("create_relations", "Creates relations between entities"), tool("delete_entities", "Deletes entities"), tool("submit_task", "Hands over work"), tool("get_file_info", "Size and times of a file"),
		)
		for text, want := range map[string]string{
			"remember that Bob works at Acme": "fs:add_observations", "note that Alice likes tea": "fs:add_observations", "se souvenir de Paul": "fs:add_observations", "noter que Paul est là": "fs:add_observations",
			"what do you remember about Paul": "fs:search_memory", "te souviens-tu de Paul": "fs:search_memory",
			"connect two entities": "fs:create_relations", "relier deux personnes": "fs:create_relations",
			"confier un travail": "fs:submit_task", "quand le fichier a-t-il été modifié": "fs:get_file_info",
		} {
			require.Equal(t, want, found(t, x, text)[0], text)
		}
	})

	t.Run("IsFoundByKeywords", func(t *testing.T) {
		t.Parallel()
		with := tool("run", "Runs it")
		with.Keywords = []string{"backup", "sauvegarde"}
		x := one(with, tool("other", "Does something else"))
		require.Equal(t, []string{"fs:run"}, found(t, x, "backup"))
		require.Equal(t, []string{"fs:run"}, found(t, x, "sauvegarde"))
	})

	t.Run("ForgetsWhatAllToolsOfAServerSay", func(t *testing.T) {
		t.Parallel()
		const every = " Error responses: 400."
		x := one(tool("fs_one", "Reads."+every), tool("fs_two", "Writes."+every), tool("fs_three", "Deletes."+every), tool("errors", "Shows errors."+every))
		require.Equal(t, []string{"fs:errors"}, found(t, x, "error"))
	})

	t.Run("NamesTheServerThatIsMeant", func(t *testing.T) {
		t.Parallel()
		x := indexOf(map[string][]toolsearch.Tool{
			"acme":   {tool("acme:create_issue", "Create an issue"), tool("acme:list_issues", "List issues")},
			"globex": {tool("globex:create_issue", "Create an issue"), tool("globex:list_issues", "List issues")},
		}, nil)
		require.Equal(t, []string{"globex:create_issue", "globex:list_issues"}, found(t, x, "create an issue on globex")[:2])
		require.Equal(t, []string{"acme:create_issue", "globex:create_issue"}, found(t, x, "create an issue")[:2], "equals are in the order of their ids")
	})

	t.Run("PrefersWhatIsNotDeprecated", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_old", "Reads a file. DEPRECATED: use read_new"), tool("read_new", "Reads a file. Fast and well"))
		require.Equal(t, []string{"fs:read_new", "fs:read_old"}, found(t, x, "read file"))
	})

	t.Run("KeepsTheBestOfBadHitsABadOne", func(t *testing.T) {
		t.Parallel()
		x := indexOf(realTools(t), nil)
		best := func(text string) float64 {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: text, Limit: 1})
			require.NoError(t, err)
			require.NotEmpty(t, a.Hits, text)
			return a.Hits[0].Score
		}
		require.Greater(t, best("create directory"), 0.85)
		require.Less(t, best("paint the garden fence green with a file"), 0.4)
	})

	t.Run("SaysHowTheScoreCameAbout", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_file", "Reads a file"), tool("write_file", "Writes a file"))
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:write_file"}})
		require.NoError(t, err)
		require.Equal(t, toolsearch.Meta{Alpha: 1, Tools: 2, Took: a.Meta.Took}, a.Meta, "nothing is known of the context, so the text alone counts")
		require.Equal(t, "Reads a file", a.Hits[0].Description)
		require.Equal(t, a.Hits[0].SemanticScore, a.Hits[0].Score) //nolint:testifylint // the very same number is meant
		require.False(t, a.Hits[0].Related)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	var many []toolsearch.Tool
	for i := range 150 {
		many = append(many, tool(fmt.Sprintf("read_%03d", i), "Reads"))
	}
	x := one(many...)
	for name, c := range map[string]struct {
		q    toolsearch.Query
		hits int // 0 for an error
	}{
		"NoTextIsRefused":              {toolsearch.Query{Text: " \n"}, 0},
		"FiveHitsByDefault":            {toolsearch.Query{Text: "read"}, 5},
		"AHundredHits":                 {toolsearch.Query{Text: "read", Limit: 100}, 100},
		"MoreThanAHundredAreRefused":   {toolsearch.Query{Text: "read", Limit: 101}, 0},
		"LessThanNoneAreRefused":       {toolsearch.Query{Text: "read", Limit: -1}, 0},
		"ALongText":                    {toolsearch.Query{Text: "read" + strings.Repeat(" ", toolsearch.MaxText-4)}, 5},
		"ALongerTextIsRefused":         {toolsearch.Query{Text: "read" + strings.Repeat(" ", toolsearch.MaxText-3)}, 0},
		"ManyToolsOfContext":           {toolsearch.Query{Text: "read", ContextTools: make([]string, toolsearch.MaxContext)}, 5},
		"MoreToolsOfContextAreRefused": {toolsearch.Query{Text: "read", ContextTools: make([]string, toolsearch.MaxContext+1)}, 0},
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

	t.Run("IsAskedForEachCallerAlsoWhereTheRankingIsRemembered", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_a", "Reads"), tool("read_b", "Reads"))
		for i, id := range []string{"fs:read_a", "fs:read_b", "fs:read_a"} {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", Allowed: only(id)})
			require.NoError(t, err)
			require.Equal(t, []string{id}, ids(a))
			require.Equal(t, i > 0, a.Meta.Cached)
		}
	})

	t.Run("FindsTheOneThatIsAllowedBehindAThousandThatAreNot", func(t *testing.T) {
		t.Parallel()
		var many []toolsearch.Tool
		for i := range 1000 {
			many = append(many, tool(fmt.Sprintf("read_%04d", i), "Reads"))
		}
		x := one(many...)
		for range 2 {
			a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", Allowed: only("fs:read_0999")})
			require.NoError(t, err)
			require.Equal(t, []string{"fs:read_0999"}, ids(a))
		}
	})
}

func TestReplace(t *testing.T) {
	t.Parallel()

	t.Run("SetsAllToolsOfAServerAndLeavesTheOthers", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_a", "Reads"), tool("read_b", "Reads"))
		x.Replace("other", []toolsearch.Tool{tool("other:read", "Reads")})
		require.Len(t, found(t, x, "read"), 3)
		x.Replace("fs", []toolsearch.Tool{tool("read_c", "Reads")})
		require.ElementsMatch(t, []string{"fs:read_c", "other:read"}, found(t, x, "read"), "and nothing that was remembered")
		x.Replace("fs", nil)
		require.Equal(t, []string{"other:read"}, found(t, x, "read"))
		x.Replace("other", nil)
		require.Empty(t, found(t, x, "read"))
	})

	t.Run("BearsWhatServersSendForASchema", func(t *testing.T) {
		t.Parallel()
		for _, schema := range []string{"", "null", "[]", "{", `{"properties": 3}`, `{"properties": {"a": null}}`, `{"properties": {"a": {"enum": [1, null, "green"]}}}`} {
			x := one(toolsearch.Tool{ID: "fs:read", Server: "fs", Name: "read", InputSchema: json.RawMessage(schema)})
			require.Equal(t, []string{"fs:read"}, found(t, x, "read"), schema)
		}
	})

	t.Run("IsSafeBesideSearches", func(t *testing.T) {
		t.Parallel()
		x := one(tool("read_a", "Reads"))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					a, err := x.Search(context.Background(), toolsearch.Query{Text: "read"})
					require.NoError(t, err)
					require.Contains(t, []int{1, 2}, len(a.Hits), "one or the other, never half of it")
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
