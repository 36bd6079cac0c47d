package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// listed returns the names of all pages of tools/list.
func listed(t *testing.T, s *mcp.ClientSession) (names []string, descriptions map[string]string) {
	t.Helper()
	descriptions = map[string]string{}
	for tool, err := range s.Tools(t.Context(), nil) {
		require.NoError(t, err)
		names = append(names, tool.Name)
		descriptions[tool.Name] = tool.Description
	}
	return names, descriptions
}

func TestMCPNames(t *testing.T) {
	t.Parallel()
	paper := mcptest.New(t, "paper").Echo().Says("read.page", "a page", mcptest.Reads()).Says(strings.Repeat("long_", 20), "long", nil)
	ink := mcptest.New(t, "ink-2").Echo()
	meta := []string{"agentcards__search_tools", "agentcards__execute_code", "comet__submit_task"}

	t.Run("EveryFormOfANameCanBeCalled", func(t *testing.T) {
		t.Parallel()
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Tools.Expose = "all" }, paper, ink)
		s := h.speak(t, sessions, nil)
		for _, name := range []string{"paper:echo", "paper__echo", "ink-2:echo", "ink-2__echo"} {
			mcptest.RequireSays(t, `{"a":1}`, called(t, s, name, map[string]any{"a": 1}))
		}
		names, _ := listed(t, s)
		for _, name := range names {
			require.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, name, "what the strictest client takes")
		}
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "paper__read_page_") })
		require.GreaterOrEqual(t, i, 0, names)
		for _, name := range []string{"paper:read.page", names[i]} {
			mcptest.RequireSays(t, "a page", called(t, s, name, nil))
		}
		for _, name := range []string{"agentcards:search_tools", "agentcards__search_tools"} {
			require.False(t, called(t, s, name, map[string]any{"query": "page"}).IsError)
		}
		requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "echo", nil))
		requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper__read_page", nil))
		requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "comet-every-tool", nil))
	})

	t.Run("OnlyTheMetaToolsAreListedAndTheyNameTheServers", func(t *testing.T) {
		t.Parallel()
		h := openHub(t, "sqlite", nil, paper, ink)
		names, descriptions := listed(t, h.speak(t, newest, nil))
		require.Equal(t, meta, names)
		for _, name := range meta[:2] {
			require.Contains(t, descriptions[name], "Connected servers: ink-2, paper.", name)
		}
	})

	t.Run("PinnedToolsAreListedToo", func(t *testing.T) {
		t.Parallel()
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Tools.Pinned = []string{"paper:re*", "ink-2__echo"} }, paper, ink)
		names, _ := listed(t, h.speak(t, newest, nil))
		require.Len(t, names, 5)
		require.Equal(t, meta, names[:3])
		require.Equal(t, "ink-2__echo", names[3])
		require.Regexp(t, "^paper__read_page_", names[4])
	})

	t.Run("AllAreListedPageByPageInTheOrderOfTheirIds", func(t *testing.T) {
		t.Parallel()
		big := mcptest.New(t, "big")
		var want []string
		for n := range 450 {
			name := fmt.Sprintf("t%03d", n)
			big.Says(name, name, nil)
			want = append(want, "big:"+name)
		}
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Tools.Expose, cfg.Tools.Names = "all", "documented" }, ink, big, paper)
		s := h.speak(t, newest, nil)
		first, err := s.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, first.Tools, 200)
		require.NotEmpty(t, first.NextCursor)
		names, _ := listed(t, s)
		require.Equal(t, []string{"agentcards:search_tools", "agentcards:execute_code", "comet:submit_task", "comet:task_status", "comet:reply_task", "comet:cancel_task"}, names[:6])
		require.Equal(t, want, names[6:456])
		require.Equal(t, []string{"ink-2:echo", "paper:echo", "paper:" + strings.Repeat("long_", 20), "paper:read.page"}, names[456:])
		again, _ := listed(t, s)
		require.Equal(t, names, again)
		mcptest.RequireSays(t, "{}", called(t, s, "ink-2__echo", nil))
	})
}

// TestMCPToolPages checks that over REST a cursor returns the next page, and that the cursor of
// another token is rejected.
func TestMCPToolPages(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.NewPaper(t, "paper"))
	all, got := h.tools(t, ""), []string{}
	for path := "/api/v1/tools?limit=2"; path != ""; {
		page := get[struct {
			Tools      []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}](t, h.client, path)
		for _, tool := range page.Tools {
			got = append(got, tool.ID)
		}
		if path = ""; page.NextCursor != "" {
			path = "/api/v1/tools?limit=2&cursor=" + page.NextCursor
		}
	}
	require.Greater(t, len(all), 4)
	require.Equal(t, all, got)
	for _, cursor := range []string{"zzz", "bm9uc2Vuc2U", "%20", "~"} {
		require.Contains(t, string(h.must(t, http.StatusBadRequest, http.MethodGet, "/api/v1/tools?cursor="+cursor, nil)), "cursor", cursor)
	}
}
