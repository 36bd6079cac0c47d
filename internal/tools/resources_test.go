package tools_test

import (
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/store/storetest"
)

// runLibraries runs a test on every database with an upstream of each revision that has resources.
func runLibraries(t *testing.T, fn func(t *testing.T, s *toolstest.Tools)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		fn(t, toolstest.Start(t, db, nil, mcptest.NewLibrary(t, "older", mcptest.Sessions), mcptest.NewLibrary(t, "newer", mcptest.Newest)))
	})
}

// requireNoServerInfo requires that a response does not name the upstream as the server.
func requireNoServerInfo(t *testing.T, meta mcp.Meta) {
	t.Helper()
	require.NotContains(t, meta, mcp.MetaKeyServerInfo)
}

func TestResources(t *testing.T) {
	t.Parallel()
	runLibraries(t, func(t *testing.T, s *toolstest.Tools) {
		by, ctx := s.Client(t, "").Caller, t.Context()
		resources, err := s.Resources(ctx, by)
		require.NoError(t, err)
		templates, err := s.ResourceTemplates(ctx, by)
		require.NoError(t, err)
		prompts, err := s.Prompts(ctx, by)
		require.NoError(t, err)
		require.Len(t, resources, 2)
		require.Len(t, templates, 2)
		require.Len(t, prompts, 2)
		for i, id := range []string{"newer", "older"} {
			require.Equal(t, id+" "+id+"://index", resources[i].Key)
			require.Equal(t, id+"://index", resources[i].Item.URI)
			require.Equal(t, id+"://book/{n}", templates[i].Item.URITemplate)
			require.Equal(t, id+"__ask", prompts[i].Item.Name)
			for _, uri := range []string{id + "://index", id + "://book/7"} {
				read, err := s.ReadResource(ctx, by, uri, nil)
				require.NoError(t, err)
				require.Equal(t, id+" has "+uri, read.Contents[0].Text)
				requireNoServerInfo(t, read.Meta)
			}
			for _, name := range []string{id + "__ask", id + ":ask"} {
				got, err := s.Prompt(ctx, by, &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"what": "why"}}, nil)
				require.NoError(t, err)
				require.Equal(t, &mcp.TextContent{Text: id + " is asked why"}, got.Messages[0].Content)
				requireNoServerInfo(t, got.Meta)
			}
			for _, ref := range []mcp.CompleteReference{
				{Type: "ref/prompt", Name: id + "__ask"}, {Type: "ref/resource", URI: id + "://book/{n}"}, {Type: "ref/resource", URI: id + "://index"},
			} {
				completed, err := s.Complete(ctx, by, &mcp.CompleteParams{Ref: &ref, Argument: mcp.CompleteParamsArgument{Name: "what", Value: "!"}})
				require.NoError(t, err)
				require.Equal(t, []string{id + "!"}, completed.Completion.Values)
			}
		}

		_, err = s.ReadResource(ctx, by, "unknown://resource", nil)
		require.Equal(t, "RESOURCE_NOT_FOUND", tools.ErrorName(err), "%v", err)
		require.Equal(t, map[string]any{"uri": "unknown://resource"}, tools.ErrorDetails(err))
		_, err = s.Prompt(ctx, by, &mcp.GetPromptParams{Name: "newer__nothing"}, nil)
		require.Equal(t, "PROMPT_NOT_FOUND", tools.ErrorName(err), "%v", err)
		require.ErrorContains(t, err, "newer__nothing")
		_, err = s.Complete(ctx, by, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "unknown://{n}"}})
		require.Equal(t, "RESOURCE_NOT_FOUND", tools.ErrorName(err), "%v", err)
	})
}

func TestPolicyOfResources(t *testing.T) {
	t.Parallel()
	runLibraries(t, func(t *testing.T, s *toolstest.Tools) {
		c, ctx := s.Client(t, ""), t.Context()
		c.SetPolicy(t, `{"allow":[{"tool":"newer:*"}],"deny":[{"tool":"newer:prompt:ask"},{"tool":"newer:resource:newer://book/*"}]}`)
		resources, err := s.Resources(ctx, c.Caller)
		require.NoError(t, err)
		require.Len(t, resources, 1)
		prompts, err := s.Prompts(ctx, c.Caller)
		require.NoError(t, err)
		require.Empty(t, prompts)
		for _, uri := range []string{"older://index", "newer://book/7"} {
			_, err = s.ReadResource(ctx, c.Caller, uri, nil)
			require.Equal(t, "RESOURCE_NOT_FOUND", tools.ErrorName(err), "%s: %v", uri, err)
			_, err = s.SubscribeResource(ctx, c.Caller, uri)
			require.Equal(t, "RESOURCE_NOT_FOUND", tools.ErrorName(err), "%s: %v", uri, err)
		}
		_, err = s.Prompt(ctx, c.Caller, &mcp.GetPromptParams{Name: "newer__ask"}, nil)
		require.Equal(t, "PROMPT_NOT_FOUND", tools.ErrorName(err), "%v", err)

		c.SetPolicy(t, `{"deny":[{"tool":"newer:prompt:ask","arguments":{"what":"secret*"}}]}`)
		_, err = s.Prompt(ctx, c.Caller, &mcp.GetPromptParams{Name: "newer__ask", Arguments: map[string]string{"what": "secrets"}}, nil)
		require.Equal(t, "PERMISSION_DENIED", tools.ErrorName(err), "%v", err)
		_, err = s.Prompt(ctx, c.Caller, &mcp.GetPromptParams{Name: "newer__ask", Arguments: map[string]string{"what": "why"}}, nil)
		require.NoError(t, err)
	})
}

func TestRequestsOfResourcesAreChargedAndLogged(t *testing.T) {
	t.Parallel()
	runLibraries(t, func(t *testing.T, s *toolstest.Tools) {
		s.AddAgent(t, "reader", 1000)
		c := s.Client(t, "reader")
		_, err := s.ReadResource(t.Context(), c.Caller, "older://book/7", nil)
		require.NoError(t, err)
		calls := s.Admin().Calls(t, tools.ToolCallQuery{AgentID: "reader"})
		require.Equal(t, []string{"older:resource:older://book/7"}, idsOf(calls))
		require.Equal(t, "success", calls[0].Outcome)
		require.Positive(t, calls[0].Tokens)
		require.Equal(t, calls[0].Tokens, used(t, s, "reader"))
	})
}

// TestSubscriptionsOfResources checks that an update of a resource is reported to OnChange while
// there is a subscription.
func TestSubscriptionsOfResources(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var updated sync.Map // by upstream and URI
		opts := tools.Options{OnChange: func(c upstream.Change) {
			if c.Kind == upstream.ResourceUpdated {
				updated.Store(c.Server+" "+c.URI, true)
			}
		}}
		older, newer := mcptest.NewLibrary(t, "older", mcptest.Sessions), mcptest.NewLibrary(t, "newer", mcptest.Newest)
		s := toolstest.Start(t, db, &toolstest.Options{Tools: opts}, older, newer)
		by := s.Client(t, "").Caller
		for _, server := range []*mcptest.Server{older, newer} {
			uri := server.ID + "://index"
			first, err := s.SubscribeResource(t.Context(), by, uri)
			require.NoError(t, err)
			second, err := s.SubscribeResource(t.Context(), by, uri)
			require.NoError(t, err)
			first(t.Context())
			first(t.Context()) // again is fine
			toolstest.Eventually(t, func() bool {
				require.NoError(t, server.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}))
				_, ok := updated.Load(server.ID + " " + uri)
				return ok
			}, "the update of "+uri+" is reported to the second subscriber")
			second(t.Context())
		}
	})
}
