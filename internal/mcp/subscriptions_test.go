package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"comet/internal/upstream"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// TestSweep checks that the subscription of a disconnected client ends at the upstream, and others
// continue.
func TestSweep(t *testing.T) {
	t.Parallel()
	unsubscribed := make(chan string, 10)
	library := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
			unsubscribed <- r.Params.URI
			return nil
		},
	})
	library.AddResource(&mcp.Resource{URI: "lib://a", Name: "a"}, nil)
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return library }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	ups := upstream.New(&upstream.Options{Version: "1"})
	require.NoError(t, ups.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, ups.Stop(context.WithoutCancel(t.Context()))) })
	require.NoError(t, ups.Put(t.Context(), "test", upstream.Server{ID: "library", URL: srv.URL}))

	g := &Server{log: slog.New(slog.DiscardHandler)}
	g.subs = newSubscriptions(g)
	own := mcp.NewServer(&mcp.Implementation{Name: "comet", Version: "1"}, nil)
	g.servers = []*mcp.Server{own}
	subscribed := func(uri string) *mcp.ServerSession {
		ours, theirs := mcp.NewInMemoryTransports()
		s, err := own.Connect(t.Context(), ours, nil)
		require.NoError(t, err)
		c, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, ups.Subscribe(t.Context(), "library", uri))
		known, err := g.subs.has(s, uri)
		require.NoError(t, err)
		require.False(t, known)
		g.subs.add(s, uri, func(ctx context.Context) { _ = ups.Unsubscribe(ctx, "library", uri) })
		return s
	}
	library.AddResource(&mcp.Resource{URI: "lib://b", Name: "b"}, nil)
	gone := subscribed("lib://a")
	other := subscribed("lib://b")
	g.subs.sweep(t.Context())
	require.Len(t, g.subs.ends, 2, "both clients are connected")

	require.NoError(t, gone.Close())
	g.subs.sweep(t.Context())
	require.Equal(t, "lib://a", <-unsubscribed)
	require.Len(t, g.subs.ends, 1)
	require.NotNil(t, g.subs.ends[other]) // require.Contains would read what the sessions change
	require.Empty(t, unsubscribed)
}
