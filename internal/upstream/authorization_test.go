package upstream_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
)

// unscopedTokens has a token without the scopes that are required.
type unscopedTokens struct{}

func (unscopedTokens) Token(context.Context, string) (string, error) { return "token", nil }

func (unscopedTokens) Require(_ context.Context, scopes []string) (missing, all []string, err error) {
	return scopes, scopes, nil
}

// TestScopesOfAnotherRequest rejects the request for log messages that precedes a call, which fails for another reason.
func TestScopesOfAnotherRequest(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "logs", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "fail", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: 7, Message: "no paper"}
	})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"logging/setLevel"`)) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="logs"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))
	b := setup(t, upstream.Options{Tokens: func(context.Context, string, string) (upstream.TokenSource, error) {
		return unscopedTokens{}, nil
	}}, upstream.Server{ID: "a", URL: server.URL})
	b.ready(t, "a")
	_, err := b.Call(t.Context(), "a", "fail", nil, &upstream.CallOptions{Log: func(*mcp.LoggingMessageParams) {}}) //nolint:staticcheck // revision 2025-11-25 has it
	requireReason(t, upstream.ReasonProtocol, err)
	require.ErrorContains(t, err, "no paper")
	require.Contains(t, b.status(t, "a").Warnings[0], `lacks the scopes "logs"`)
}
