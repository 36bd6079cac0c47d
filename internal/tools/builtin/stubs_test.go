package builtin

import (
	"strings"
	"testing"

	"comet/internal/tools"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestStubs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ server, name, schema, want string }{
		{"fs", "read_file", `{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"}},"required":["path"]}`, `fs.read_file(args: { head?: number; path: string }): Promise<any>`},
		{"my-fs", "read/file", `{"type":"object"}`, `mcp["my-fs"]["read/file"](args?: {}): Promise<any>`},
		{"a", "b", `{"type":"object","properties":{"kind":{"enum":["x","y"]},"many":{"type":"array","items":{"type":["string","null"]}},"a-b":{"anyOf":[{"type":"number"},{"const":"auto"}]}}}`,
			`a.b(args?: { "a-b"?: number | "auto"; kind?: "x" | "y"; many?: (string | null)[] }): Promise<any>`},
		{"a", "b", `{"type":"object","additionalProperties":{"type":"boolean"}}`, `a.b(args?: Record<string, boolean>): Promise<any>`},
		{"a", "b", `7`, `a.b(args?: any): Promise<any>`},
		{"a", "deep", strings.Repeat(`{"type":"object","properties":{"x":`, 10) + `{}` + strings.Repeat(`}}`, 10), `a.deep(args?: { x?: { x?: { x?: { x?: { x?: any } } } } }): Promise<any>`},
	} {
		var schema any = rawJSON(c.schema)
		require.Equal(t, c.want, stubOf(&tools.Tool{Server: c.server, Name: c.name, Definition: &mcp.Tool{InputSchema: schema}}), c.schema)
	}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }
