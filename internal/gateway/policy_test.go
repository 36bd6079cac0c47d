package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "anything/at all", true}, {"a", "a", true}, {"a", "b", false},
		{"read_*", "read_file", true}, {"read_*", "write_file", false}, {"*_file", "read_file", true}, {"*_file", "read_files", false},
		{"*a*b", "xaxxb", true}, {"*a*b", "xbxa", false}, {"r?ad", "read", true}, {"r?ad", "rad", false}, {"**", "x", true}, {"a*", "a", true},
		{"[ab]", "a", false}, {"[ab]", "[ab]", true},
	} {
		require.Equal(t, c.want, matches(c.pattern, c.text), "%q %q", c.pattern, c.text)
	}
	require.False(t, matches(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 50_000)), "and it ends")
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	of := func(text string) *policy {
		var p policy
		require.NoError(t, json.Unmarshal([]byte(text), &p.ToolPolicy))
		return &p
	}
	type call struct{ server, tool, class, args string }
	read := call{"filesystem", "read_file", "read", `{"path":"/srv/data/a"}`}
	write := call{"filesystem", "write_file", "destructive", `{"path":"/srv/data/a","content":"x"}`}
	for _, c := range []struct {
		rule, policy   string
		call           call
		shown, allowed bool
	}{
		{"no policy allows everything", `{}`, write, true, true},
		{"a rule without a colon is for a server", `{"allow":[{"tool":"filesystem"}]}`, read, true, true},
		{"what no rule allows is not shown", `{"allow":[{"tool":"memory:*"}]}`, read, false, false},
		{"a pattern is for all of the name", `{"allow":[{"tool":"filesystem:read"}]}`, read, false, false},
		{"deny wins", `{"allow":[{"tool":"*"}],"deny":[{"tool":"filesystem:write_*"}]}`, write, false, false},
		{"and leaves the others", `{"deny":[{"tool":"filesystem:write_*"}]}`, read, true, true},
		{"classes select", `{"classes":["read"]}`, write, false, false},
		{"and let through", `{"classes":["read","write"]}`, read, true, true},
		{"an argument that matches", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/data/*"}}]}`, write, true, true},
		{"one that does not is shown, and refused", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/other/*"}}]}`, write, true, false},
		{"one that is missing matches no rule of allow", `{"allow":[{"tool":"filesystem:*","arguments":{"name":"*"}}]}`, write, true, false},
		{"one that climbs matches no rule of allow", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/data/*"}}]}`,
			call{"filesystem", "read_file", "read", `{"path":"/srv/data/../../etc/passwd"}`}, true, false},
		{"unless the rule climbs too", `{"allow":[{"tool":"*","arguments":{"path":"../*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"../a"}`}, true, true},
		{"an argument that is denied", `{"deny":[{"tool":"*:*","arguments":{"path":"/etc/*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"/etc/passwd"}`}, true, false},
		{"also by a detour", `{"deny":[{"tool":"*","arguments":{"path":"/etc/*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"/srv/../etc//passwd"}`}, true, false},
		{"every value of a list counts in allow", `{"allow":[{"tool":"*","arguments":{"paths":"/srv/*"}}]}`, call{"filesystem", "read_many", "read", `{"paths":["/srv/a","/etc/b"]}`}, true, false},
		{"any in deny", `{"deny":[{"tool":"*","arguments":{"paths":"/etc/*"}}]}`, call{"filesystem", "read_many", "read", `{"paths":["/srv/a","/etc/b"]}`}, true, false},
		{"arguments lie within others", `{"deny":[{"tool":"*","arguments":{"options.mode":"force"}}]}`, call{"git", "push", "write", `{"options":{"mode":"force"}}`}, true, false},
		{"numbers and truth are read as they are written", `{"deny":[{"tool":"*","arguments":{"force":"true","n":"1?"}}]}`, call{"git", "push", "write", `{"force":true,"n":12}`}, true, false},
		{"a resource is the tool resource:uri", `{"allow":[{"tool":"docs:resource:file:///public/*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, true, true},
		{"which no pattern of tools names by chance", `{"allow":[{"tool":"docs:read_*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, false, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			p := of(c.policy)
			shown := p.shows(c.call.server, c.call.tool, models.ToolClass(c.call.class))
			require.Equal(t, c.shown, shown, "shown")
			require.Equal(t, c.allowed, shown && p.permits(c.call.server, c.call.tool, json.RawMessage(c.call.args)), "allowed")
		})
	}
}
