package app_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// TestMCPLastListenerEndsSubscription checks that a resource subscription at the upstream ends when
// its last subscriber leaves, and not earlier.
func TestMCPLastListenerEndsSubscription(t *testing.T) {
	t.Parallel()
	const uri = "shelf://a"
	ended := make(chan string, 10)
	shelf := mcp.NewServer(&mcp.Implementation{Name: "shelf", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error { ended <- r.Params.URI; return nil },
	})
	shelf.AddResource(&mcp.Resource{URI: uri, Name: "a"}, nil)
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shelf }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	h := openHub(t, "sqlite", nil)
	h.must(t, http.StatusCreated, http.MethodPut, "/api/v1/upstreams/shelf", map[string]any{"url": srv.URL})
	first, second := h.speak(t, sessions, nil), h.speak(t, sessions, nil)
	eventually(t, func() bool { return first.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}) == nil }, "the resource is there")
	require.NoError(t, second.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}))
	require.NoError(t, first.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}))
	require.Empty(t, ended, "the other one still listens")
	require.NoError(t, second.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}))
	require.Equal(t, uri, <-ended)
}
