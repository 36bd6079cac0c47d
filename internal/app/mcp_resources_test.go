package app_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// TestMCPResources checks resources, prompts and completions in every pair of revisions.
func TestMCPResources(t *testing.T) {
	t.Parallel()
	older, newer := mcptest.NewLibrary(t, "older", sessions), mcptest.NewLibrary(t, "newer", newest)
	h := openHub(t, "sqlite", nil, older, newer)
	servers := []string{"newer", "older"}

	for _, revision := range []string{newest, sessions} {
		t.Run("ListsAndReadsIn"+revision, func(t *testing.T) {
			t.Parallel()
			who := h.holder(t, "")
			s := who.speak(t, revision, nil)
			resources, err := s.ListResources(t.Context(), nil)
			require.NoError(t, err)
			templates, err := s.ListResourceTemplates(t.Context(), nil)
			require.NoError(t, err)
			prompts, err := s.ListPrompts(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, resources.Resources, 2)
			require.Len(t, templates.ResourceTemplates, 2)
			require.Len(t, prompts.Prompts, 2)
			for i, id := range servers {
				require.Equal(t, id+"://index", resources.Resources[i].URI)
				require.Equal(t, id+"://book/{n}", templates.ResourceTemplates[i].URITemplate)
				require.Equal(t, id+"__ask", prompts.Prompts[i].Name)
				for _, uri := range []string{id + "://index", id + "://book/7"} {
					read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
					require.NoError(t, err)
					require.Equal(t, id+" has "+uri, read.Contents[0].Text)
				}
				for _, name := range []string{id + "__ask", id + ":ask"} {
					got, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"what": "why"}})
					require.NoError(t, err)
					require.Equal(t, &mcp.TextContent{Text: id + " is asked why"}, got.Messages[0].Content)
				}
				completed, err := s.Complete(t.Context(), &mcp.CompleteParams{
					Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: id + "__ask"}, Argument: mcp.CompleteParamsArgument{Name: "what", Value: "!"},
				})
				require.NoError(t, err)
				require.Equal(t, []string{id + "!"}, completed.Completion.Values)
			}
			_, err = s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "unknown://resource"})
			require.ErrorContains(t, err, "unknown://resource")
			_, err = s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "newer__nothing"})
			require.ErrorContains(t, err, "newer__nothing")
		})

		t.Run("NotifiesOfChangesIn"+revision, func(t *testing.T) {
			t.Parallel()
			for _, f := range []*mcptest.Server{older, newer} {
				changed := make(chan string, 100)
				s := h.speak(t, revision, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
					changed <- r.Params.URI
				}})
				uri := f.ID + "://index"
				require.NoError(t, s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}))
				eventually(t, func() bool {
					require.NoError(t, f.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}))
					return len(changed) > 0
				}, "the client is notified of "+uri)
				require.Equal(t, uri, <-changed)
			}
		})
	}

	t.Run("AResponseHasTheRevisionOfTheClientAndNamesComet", func(t *testing.T) {
		t.Parallel()
		for _, id := range servers {
			for method, params := range map[string]string{
				"resources/read": `"uri":"` + id + `://index"`, "prompts/get": `"name":"` + id + `__ask"`, "tools/call": `"name":"` + id + `__echo","arguments":{}`,
			} {
				name := map[string]string{"resources/read": id + "://index", "prompts/get": id + "__ask", "tools/call": id + "__echo"}[method]
				res := h.modern(t, method, name, params).result(t)
				require.Equal(t, "complete", res["resultType"], "%s of %s", method, id)
				own, _ := res["_meta"].(map[string]any)["io.modelcontextprotocol/serverInfo"].(map[string]any)
				require.Equal(t, "comet", own["name"], "%s of %s", method, id)
				if method == "resources/read" {
					require.Equal(t, "private", res["cacheScope"], "another token may not see it")
				}

				res = h.say(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, h.initialize(t)...).result(t)
				require.NotContains(t, res, "resultType", "%s of %s", method, id)
			}
		}
	})

	t.Run("ACursorOfAnotherTokenIsRejected", func(t *testing.T) {
		t.Parallel()
		w := h.modern(t, "resources/list", "", `"cursor":"nonsense"`)
		code, message := w.rpcError(t)
		require.Equal(t, -32602, code)
		require.Contains(t, message, "cursor")
	})
}
