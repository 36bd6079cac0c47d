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
		own := []*Tool{{ID: "agentcards:search_tools", Server: "agentcards", Name: "search_tools", Definition: &mcp.Tool{}}}
		odd := &Tool{ID: "fs:read/file", Server: "fs", Name: "read/file", Definition: &mcp.Tool{}}
		for _, style := range []NameStyle{NamesPortable, NamesDocumented} {
			odd.ListedName = style.listed(odd.Server, odd.Name)
			c := newCatalogue(own, map[string][]*Tool{"fs": {odd}})
			for _, name := range []string{"agentcards:search_tools", "agentcards__search_tools"} {
				require.Same(t, own[0], c.byName[name], name)
			}
			for _, name := range []string{"fs:read/file", portable("fs", "read/file")} {
				require.Same(t, odd, c.byName[name], name)
			}
			require.Nil(t, c.byName["read/file"])
			require.Equal(t, style == NamesDocumented, c.all[1].ListedName == "fs:read/file")
		}
	})

	t.Run("tools are sorted by id", func(t *testing.T) {
		t.Parallel()
		of := func(server string, names ...string) (out []*Tool) {
			for _, n := range names {
				out = append(out, &Tool{ID: toolID(server, n), Server: server, Name: n, Definition: &mcp.Tool{}})
			}
			return out
		}
		for range 10 {
			c := newCatalogue(of("comet", "z"), map[string][]*Tool{"b": of("b", "2", "1"), "a": of("a", "1"), "c": of("c", "1")})
			var ids []string
			for _, t := range c.all {
				ids = append(ids, t.ID)
			}
			require.Equal(t, []string{"comet:z", "a:1", "b:1", "b:2", "c:1"}, ids)
			require.Equal(t, []string{"a", "b", "c"}, c.servers)
		}
	})
}
