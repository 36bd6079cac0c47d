package builtin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/store/storetest"
)

// search searches tools as a client.
func search(t *testing.T, s *toolstest.Tools, c *toolstest.Client, q builtin.SearchQuery) builtin.SearchResult {
	t.Helper()
	found, err := builtin.Search(t.Context(), s.Service, c.Caller, q)
	require.NoError(t, err)
	return found
}

// TestSearchFindsExecuteCode checks that the search finds the tool that runs code, although every
// client lists it: once, and without a declaration, because code cannot call it.
func TestSearchFindsExecuteCode(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil, mcptest.New(t, "paper").Echo())
		c := s.Admin()
		found := search(t, s, c, builtin.SearchQuery{Query: "run javascript code", Limit: new(100), IncludeStubs: true})
		require.Equal(t, "agentcards:execute_code", found.Tools[0].Name)
		require.Equal(t, "agentcards__execute_code", found.Tools[0].Listed)
		require.Empty(t, found.Tools[0].Stub)
		for _, other := range found.Tools[1:] {
			require.NotContains(t, []string{"agentcards:execute_code", "agentcards:search_tools", "agentcards:continue"}, other.Name)
			require.Equal(t, other.Name == "agentcards:execute_dag", other.Stub == "", "code cannot call it")
		}
		names, _ := c.Listed(t)
		require.Equal(t, []string{"agentcards__search_tools", "agentcards__execute_code", "agentcards__execute_dag", "agentcards__continue", "agentcards__abort", "agentcards__replan", "agentcards__approval_response", "comet__submit_task"}, names)
		require.Equal(t, "undefined", c.Run(t, "typeof agentcards", map[string]any{"intent": "run javascript code"}), "code does not run code")
	})
}

// TestSearchUsesToolsUsedTogether checks that tools that were called one after the other are related,
// under each form of their names.
func TestSearchUsesToolsUsedTogether(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil, mcptest.NewPaper(t, "paper"), mcptest.NewGithub(t))
		c := s.Client(t, "")
		for range 3 {
			c.Call(t, "github:list_commits", nil)
			c.Call(t, "paper:note", nil)
			c.Run(t, `await github.list_commits({}); await paper.note({}); return 1`, nil)
		}
		for _, used := range []string{"paper:note", "paper__note"} {
			var found builtin.SearchResult
			toolstest.Eventually(t, func() bool {
				found = search(t, s, c, builtin.SearchQuery{Query: "list commits of a repository", ContextTools: []string{used}, IncludeRelated: true})
				return found.Tools[0].GraphScore > 0
			}, "the graph has the calls")
			require.Equal(t, "github:list_commits", found.Tools[0].Name)
			require.Contains(t, found.Tools[0].RelatedTools, "paper:note")
			require.Positive(t, found.Meta.Total)
		}
	})
}

func TestInvalidSearchIsRejected(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil)
		for says, args := range map[string]map[string]any{
			"limit must be 1 to 100": {"query": "x", "limit": 101},
			"query":                  {"query": ""},
			"colour":                 {"query": "x", "colour": "red"},
		} {
			require.Contains(t, s.Admin().RequireFails(t, "INVALID_ARGUMENTS", "agentcards:search_tools", args), says)
			_, err := s.Admin().TryCall(t, "agentcards:search_tools", args)
			require.ErrorIs(t, err, tools.ErrInvalidArguments)
		}
	})
}
