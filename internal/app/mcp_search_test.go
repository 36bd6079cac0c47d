package app_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/tools/builtin"
)

// TestMCPSearchFindsExecuteCode checks that the search finds the tool that runs code, although
// every client lists it: once, and without a declaration, because code cannot call it.
func TestMCPSearchFindsExecuteCode(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.New(t, "paper").Echo())
	s := h.speak(t, newest, nil)
	text, err := json.Marshal(called(t, s, "agentcards:search_tools", map[string]any{"query": "run javascript code", "limit": 100, "include_stubs": true}).StructuredContent)
	require.NoError(t, err)
	var found builtin.SearchResult
	require.NoError(t, json.Unmarshal(text, &found))
	require.Equal(t, "agentcards:execute_code", found.Tools[0].Name)
	require.Equal(t, "agentcards__execute_code", found.Tools[0].Listed)
	require.Empty(t, found.Tools[0].Stub)
	for _, other := range found.Tools[1:] {
		require.NotContains(t, other.Name, "agentcards:", "not again, and not the search itself")
		require.NotEmpty(t, other.Stub)
	}
	names, _ := listed(t, s)
	require.Equal(t, []string{"agentcards__search_tools", "agentcards__execute_code", "comet__submit_task"}, names)

	intent := called(t, s, "agentcards:execute_code", map[string]any{"code": "typeof agentcards", "intent": "run javascript code"})
	text, err = json.Marshal(intent.StructuredContent)
	require.NoError(t, err)
	require.Contains(t, string(text), `"undefined"`, "code does not run code")
}
