package tools

import (
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	t.Parallel()

	t.Run("portable names are valid for all clients and unique", func(t *testing.T) {
		t.Parallel()
		allowed, seen := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`), map[string]string{}
		for _, server := range []string{"fs", "my-server", strings.Repeat("s", 64)} {
			for _, tool := range []string{"read_file", "read-file", "read.file", "read/file", "lire_é", "x y", strings.Repeat("t", 128), strings.Repeat("t", 127) + "u", "a__b"} {
				name := portable(server, tool)
				require.Regexp(t, allowed, name)
				require.Empty(t, seen[name], "%s is also %s", name, toolID(server, tool))
				seen[name] = toolID(server, tool)
			}
		}
		require.Equal(t, "filesystem__read_file", portable("filesystem", "read_file"))
	})

	t.Run("every form of a name finds the tool", func(t *testing.T) {
		t.Parallel()
		own := []*tool{{id: "agentcards:search_tools", server: "agentcards", name: "search_tools", def: &mcp.Tool{}}}
		odd := &tool{id: "fs:read/file", server: "fs", name: "read/file", def: &mcp.Tool{}}
		for _, style := range []NameStyle{NamesPortable, NamesDocumented} {
			odd.listed = style.listed(odd.server, odd.name)
			c := newCatalogue(own, map[string][]*tool{"fs": {odd}})
			for _, name := range []string{"agentcards:search_tools", "agentcards__search_tools"} {
				require.Same(t, own[0], c.find(name), name)
			}
			for _, name := range []string{"fs:read/file", portable("fs", "read/file")} {
				require.Same(t, odd, c.find(name), name)
			}
			require.Nil(t, c.find("read/file"))
			require.Equal(t, style == NamesDocumented, c.all[1].listed == "fs:read/file")
		}
	})

	t.Run("tools are sorted by id", func(t *testing.T) {
		t.Parallel()
		of := func(server string, names ...string) (out []*tool) {
			for _, n := range names {
				out = append(out, &tool{id: toolID(server, n), server: server, name: n, def: &mcp.Tool{}})
			}
			return out
		}
		for range 10 {
			c := newCatalogue(of("comet", "z"), map[string][]*tool{"b": of("b", "2", "1"), "a": of("a", "1"), "c": of("c", "1")})
			var ids []string
			for _, t := range c.all {
				ids = append(ids, t.id)
			}
			require.Equal(t, []string{"comet:z", "a:1", "b:1", "b:2", "c:1"}, ids)
			require.Equal(t, []string{"a", "b", "c"}, c.servers)
		}
	})
}

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
		require.Equal(t, c.want, stubOf(&tool{server: c.server, name: c.name, def: &mcp.Tool{InputSchema: schema}}), c.schema)
	}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }
