package tools_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/store/storetest"
)

// newNames starts two upstreams with names that MCP clients do not accept as they are.
func newNames(t *testing.T) (paper, ink *mcptest.Server) {
	t.Helper()
	paper = mcptest.New(t, "paper").Echo().Says("read.page", "a page", mcptest.Reads()).Says(strings.Repeat("long_", 20), "long", nil)
	return paper, mcptest.New(t, "ink-2").Echo()
}

// runNames runs a test with these upstreams on every database.
func runNames(t *testing.T, opts tools.Options, fn func(t *testing.T, c *toolstest.Client), more ...*mcptest.Server) {
	t.Helper()
	paper, ink := newNames(t)
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		fn(t, toolstest.Start(t, db, &toolstest.Options{Tools: opts}, append(more, paper, ink)...).Admin())
	})
}

func TestEveryFormOfANameCanBeCalled(t *testing.T) {
	t.Parallel()
	runNames(t, tools.Options{Expose: tools.ExposeAll}, func(t *testing.T, c *toolstest.Client) {
		for _, name := range []string{"paper:echo", "paper__echo", "ink-2:echo", "ink-2__echo"} {
			c.RequireSays(t, `{"a":1}`, name, map[string]any{"a": 1})
		}
		names, _ := c.Listed(t)
		for _, name := range names {
			require.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, name, "the strictest client accepts it")
		}
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "paper__read_page_") })
		require.GreaterOrEqual(t, i, 0, names)
		for _, name := range []string{"paper:read.page", names[i]} {
			c.RequireSays(t, "a page", name, nil)
		}
		for _, name := range []string{"agentcards:search_tools", "agentcards__search_tools"} {
			require.False(t, c.Call(t, name, map[string]any{"query": "page"}).IsError)
		}
		for _, name := range []string{"echo", "paper__read_page", "comet-every-tool"} {
			c.RequireFails(t, "TOOL_NOT_FOUND", name, nil)
		}
	})
}

// metaTools returns the listed names of comet's own tools.
func metaTools() []string {
	return []string{"agentcards__search_tools", "agentcards__execute_code", "agentcards__execute_dag", "agentcards__continue", "agentcards__abort", "agentcards__replan", "agentcards__approval_response", "comet__submit_task"}
}

func TestOnlyTheMetaToolsAreListedAndTheyNameTheServers(t *testing.T) {
	t.Parallel()
	runNames(t, tools.Options{}, func(t *testing.T, c *toolstest.Client) {
		names, descriptions := c.Listed(t)
		require.Equal(t, metaTools(), names)
		for _, name := range names[:2] {
			require.Contains(t, descriptions[name], "Connected servers: ink-2, paper.", name)
		}
	})
	t.Run("at most forty servers", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			var many []*mcptest.Server
			for n := range 42 {
				many = append(many, mcptest.New(t, fmt.Sprintf("s%02d", n)).Echo())
			}
			_, descriptions := toolstest.Start(t, db, nil, many...).Admin().Listed(t)
			require.Contains(t, descriptions["agentcards__search_tools"], ", s39 and 2 more.")
		})
	})
	t.Run("without a server", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			_, descriptions := toolstest.Start(t, db, nil).Admin().Listed(t)
			require.Contains(t, descriptions["agentcards__search_tools"], "No server is connected.")
		})
	})
}

func TestPinnedToolsAreListedToo(t *testing.T) {
	t.Parallel()
	runNames(t, tools.Options{Pinned: []string{"paper:re*", "ink-2__echo"}}, func(t *testing.T, c *toolstest.Client) {
		names, _ := c.Listed(t)
		own := len(metaTools())
		require.Len(t, names, own+2)
		require.Equal(t, metaTools(), names[:own])
		require.Equal(t, "ink-2__echo", names[own])
		require.Regexp(t, "^paper__read_page_", names[own+1])
	})
}

func TestAllToolsAreListedInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	big := mcptest.New(t, "big")
	var want []string
	for n := range 450 {
		name := fmt.Sprintf("t%03d", n)
		big.Says(name, name, nil)
		want = append(want, "big:"+name)
	}
	runNames(t, tools.Options{Expose: tools.ExposeAll, Names: tools.NamesDocumented}, func(t *testing.T, c *toolstest.Client) {
		names, _ := c.Listed(t)
		require.Equal(t, []string{"agentcards:search_tools", "agentcards:execute_code", "agentcards:execute_dag", "agentcards:continue", "agentcards:abort", "agentcards:replan", "agentcards:approval_response", "comet:submit_task", "comet:task_status", "comet:reply_task", "comet:cancel_task"}, names[:11])
		require.Equal(t, want, names[11:461])
		require.Equal(t, []string{"ink-2:echo", "paper:echo", "paper:" + strings.Repeat("long_", 20), "paper:read.page"}, names[461:])
		again, _ := c.Listed(t)
		require.Equal(t, names, again)
		require.Equal(t, names, c.Tools(t, ""), "the list of the REST API has the same order")
		c.RequireSays(t, "{}", "ink-2__echo", nil)
	}, big)
}
