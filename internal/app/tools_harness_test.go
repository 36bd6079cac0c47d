package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// toolsEnv is the variable that turns the test binary into an MCP server.
const toolsEnv = "COMET_TEST_TOOLS"

// serveToolsIfAsked is an MCP server over standard input and output, if that is what this
// process is for.
func serveToolsIfAsked() bool {
	if os.Getenv(toolsEnv) == "" {
		return false
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: object}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "panics", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("it does")
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	return true
}

// toolsFile is an mcpServers file that names that server "tools".
func toolsFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers.json")
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"tools": map[string]any{"command": os.Args[0], "env": map[string]string{toolsEnv: "yes"}},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// withTools has a process serve them.
func withTools(t *testing.T) setting {
	t.Helper()
	return env("COMET_MCP_SERVERS=" + toolsFile(t))
}

// carrying adds the token of a client to its requests.
type carrying struct{ *client }

func (c carrying) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+c.Token)
	return c.HTTP.Transport.RoundTrip(r)
}

// mcpClient connects a client of the SDK to /mcp and waits until the tools are there.
func (c *client) mcpClient(t testing.TB) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: c.URL + "/mcp", HTTPClient: &http.Client{Transport: carrying{c}}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Eventually(t, func() bool { return echo(t.Context(), s, "ready") == nil }, long, tickOf, "the tools are there")
	return s
}

// echo calls the tool and checks its result.
func echo(ctx context.Context, s *mcp.ClientSession, text string) error {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "tools:echo", Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if said, ok := res.Content[0].(*mcp.TextContent); res.IsError || !ok || said.Text != echoed(text) {
		return fmt.Errorf("%q is answered with %+v", text, res.Content[0])
	}
	return nil
}

// echoed are the arguments of that call.
func echoed(text string) string { return fmt.Sprintf(`{"text":%q}`, text) }

// digestOf is how the audit trail knows them.
func echoDigest(text string) string {
	sum := sha256.Sum256([]byte(echoed(text)))
	return hex.EncodeToString(sum[:])
}

// trail is how often each digest stands in the audit trail of the tool, with what all of
// them cost. To read it has it written.
func (c *client) trail(t *testing.T) (calls map[string]int, tokens int64) {
	t.Helper()
	calls = map[string]int{}
	for next := "/api/v1/tools/calls?limit=1000&server=tools"; next != ""; {
		page := get[struct {
			Calls []struct {
				Digest string `json:"arguments_digest"`
				Tokens int64
			}
			NextCursor string `json:"next_cursor"`
		}](t, c, next)
		for _, one := range page.Calls {
			calls[one.Digest]++
			tokens += one.Tokens
		}
		if next = ""; page.NextCursor != "" {
			next = "/api/v1/tools/calls?limit=1000&server=tools&cursor=" + page.NextCursor
		}
	}
	return calls, tokens
}
