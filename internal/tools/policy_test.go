package tools

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
		require.Equal(t, c.want, matchesPattern(c.pattern, c.text), "%q %q", c.pattern, c.text)
	}
	require.False(t, matchesPattern(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 50_000)), "and it ends")
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
		{"a number of no size hides no argument", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/secret/a","n":1e999}`}, true, false},
		{"nor where it is alone", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/open/a","n":1e999}`}, true, true},
		{"a name that comes twice is read as neither", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/open","path":"/secret"}`}, true, false},
		{"what is no JSON is not let through", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":`}, true, false},
		{"a resource that climbs is not there for who has rules", `{"allow":[{"tool":"docs:resource:file:///srv/*"}]}`, call{"docs", "resource:file:///srv/../etc/passwd", "read", `{}`}, false, false},
		{"nor where that is escaped", `{"deny":[{"tool":"docs:resource:file:///etc/*"}]}`, call{"docs", "resource:file:///srv/%252e%252e/etc/passwd", "read", `{}`}, false, false},
		{"and is for who has none", `{}`, call{"docs", "resource:file:///srv/../a", "read", `{}`}, true, true},
		{"a resource is the tool resource:uri", `{"allow":[{"tool":"docs:resource:file:///public/*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, true, true},
		{"which no pattern of tools names by chance", `{"allow":[{"tool":"docs:read_*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, false, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			p := of(c.policy)
			shown := p.allowsTool(c.call.server, c.call.tool, models.ToolClass(c.call.class))
			require.Equal(t, c.shown, shown, "shown")
			require.Equal(t, c.allowed, shown && p.allowsArguments(c.call.server, c.call.tool, json.RawMessage(c.call.args)), "allowed")
		})
	}
}

func TestRulesThatCanMatchNothing(t *testing.T) {
	t.Parallel()
	for pattern, ok := range map[string]bool{
		"fs": true, "fs:write_*": true, "*": true, "my-?s:*": true, "fs__write_file": false, "fs write": false, ":read": false, "fs/x:read": false,
	} {
		err := checkRules(models.ToolPolicy{Deny: []models.ToolRule{{Tool: pattern}}})
		require.Equal(t, ok, err == nil, "%s: %v", pattern, err)
	}
}

func TestServersATokenKnows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: true, `{"allow":[{"tool":"fs:read_*"}]}`: true, `{"allow":[{"tool":"memory"}]}`: false, `{"deny":[{"tool":"fs"}]}`: false,
		`{"deny":[{"tool":"fs:write_*"}]}`: true, `{"deny":[{"tool":"f*:*"}]}`: false, `{"deny":[{"tool":"fs","arguments":{"a":"b"}}]}`: true,
	} {
		var rules models.ToolPolicy
		require.NoError(t, json.Unmarshal([]byte(text), &rules))
		require.Equal(t, want, (&policy{rules}).allowsServer("fs"), text)
	}
}

// TestWhatActsWithinThePolicyIsForEverybody: a policy for the tools of one server would else
// leave a client nothing to find them with.
func TestWhatActsWithinThePolicyIsForEverybody(t *testing.T) {
	t.Parallel()
	files := &policy{models.ToolPolicy{Allow: []models.ToolRule{{Tool: "filesystem:*", Arguments: map[string]string{"path": "/srv/*"}}}, Classes: []models.ToolClass{models.ToolRead}}}
	for _, tool := range []string{"search_tools", "execute_code"} {
		require.True(t, files.allowsTool(agentCardsServer, tool, models.ToolDestructive))
		require.True(t, files.allowsArguments(agentCardsServer, tool, []byte(`{"code":"1"}`)))
	}
	require.False(t, files.allowsTool(cometServer, "submit_task", models.ToolWrite), "what an agent does is not within it")
	denied := &policy{models.ToolPolicy{Deny: []models.ToolRule{{Tool: "agentcards:execute_code"}}}}
	require.True(t, denied.allowsTool(agentCardsServer, "search_tools", models.ToolRead))
	require.False(t, denied.allowsTool(agentCardsServer, "execute_code", models.ToolRead))
}
