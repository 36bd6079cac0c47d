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
	require.False(t, matchesPattern(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 50_000)), "the time is bounded")
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	of := func(text string) *policy {
		var p policy
		require.NoError(t, json.Unmarshal([]byte(text), &p.ToolPolicy))
		return &p
	}
	type call struct{ server, tool, class, Arguments string }
	read := call{"filesystem", "read_file", "read", `{"path":"/srv/data/a"}`}
	write := call{"filesystem", "write_file", "destructive", `{"path":"/srv/data/a","content":"x"}`}
	for _, c := range []struct {
		rule, policy   string
		call           call
		shown, allowed bool
	}{
		{"no policy allows everything", `{}`, write, true, true},
		{"a rule without a colon applies to a server", `{"allow":[{"tool":"filesystem"}]}`, read, true, true},
		{"a tool that no rule allows is hidden", `{"allow":[{"tool":"memory:*"}]}`, read, false, false},
		{"a pattern must match the whole name", `{"allow":[{"tool":"filesystem:read"}]}`, read, false, false},
		{"deny takes precedence", `{"allow":[{"tool":"*"}],"deny":[{"tool":"filesystem:write_*"}]}`, write, false, false},
		{"deny does not affect other tools", `{"deny":[{"tool":"filesystem:write_*"}]}`, read, true, true},
		{"classes hide tools of other classes", `{"classes":["read"]}`, write, false, false},
		{"classes allow their tools", `{"classes":["read","write"]}`, read, true, true},
		{"an argument matches", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/data/*"}}]}`, write, true, true},
		{"an argument that does not match is visible and denied", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/other/*"}}]}`, write, true, false},
		{"a missing argument matches no allow rule", `{"allow":[{"tool":"filesystem:*","arguments":{"name":"*"}}]}`, write, true, false},
		{"an argument with .. matches no allow rule", `{"allow":[{"tool":"filesystem:*","arguments":{"path":"/srv/data/*"}}]}`,
			call{"filesystem", "read_file", "read", `{"path":"/srv/data/../../etc/passwd"}`}, true, false},
		{"a pattern with .. matches an argument with ..", `{"allow":[{"tool":"*","arguments":{"path":"../*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"../a"}`}, true, true},
		{"a denied argument", `{"deny":[{"tool":"*:*","arguments":{"path":"/etc/*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"/etc/passwd"}`}, true, false},
		{"a denied argument with ..", `{"deny":[{"tool":"*","arguments":{"path":"/etc/*"}}]}`, call{"filesystem", "read_file", "read", `{"path":"/srv/../etc//passwd"}`}, true, false},
		{"allow checks every value of a list", `{"allow":[{"tool":"*","arguments":{"paths":"/srv/*"}}]}`, call{"filesystem", "read_many", "read", `{"paths":["/srv/a","/etc/b"]}`}, true, false},
		{"deny checks any value of a list", `{"deny":[{"tool":"*","arguments":{"paths":"/etc/*"}}]}`, call{"filesystem", "read_many", "read", `{"paths":["/srv/a","/etc/b"]}`}, true, false},
		{"nested arguments have dotted paths", `{"deny":[{"tool":"*","arguments":{"options.mode":"force"}}]}`, call{"git", "push", "write", `{"options":{"mode":"force"}}`}, true, false},
		{"the argument * of deny is any value at any depth", `{"deny":[{"tool":"*","arguments":{"*":"*secret*"}}]}`, call{"fs", "read_multiple_files", "read", `{"n":1,"in":{"paths":["open","secret.txt"]}}`}, true, false},
		{"the argument * of deny does not match other values", `{"deny":[{"tool":"*","arguments":{"*":"*secret*"}}]}`, call{"fs", "read", "read", `{"path":"/open","n":1}`}, true, true},
		{"the argument * of allow is every value", `{"allow":[{"tool":"*","arguments":{"*":"/srv/*"}}]}`, call{"fs", "move", "write", `{"from":"/srv/a","to":"/etc/b"}`}, true, false},
		{"the argument * of allow matches if every value matches", `{"allow":[{"tool":"*","arguments":{"*":"/srv/*"}}]}`, call{"fs", "move", "write", `{"from":"/srv/a","to":"/srv/b"}`}, true, true},
		{"the argument * of allow matches no call without arguments", `{"allow":[{"tool":"*","arguments":{"*":"*"}}]}`, call{"fs", "list", "read", `{}`}, true, false},
		{"numbers and booleans are matched as written", `{"deny":[{"tool":"*","arguments":{"force":"true","n":"1?"}}]}`, call{"git", "push", "write", `{"force":true,"n":12}`}, true, false},
		{"an infinite number hides no argument", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/secret/a","n":1e999}`}, true, false},
		{"an infinite number alone is allowed", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/open/a","n":1e999}`}, true, true},
		{"a duplicate name is denied", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":"/open","path":"/secret"}`}, true, false},
		{"invalid JSON is denied", `{"deny":[{"tool":"*","arguments":{"path":"/secret*"}}]}`, call{"fs", "write", "write", `{"path":`}, true, false},
		{"a resource with .. is hidden from tokens with rules", `{"allow":[{"tool":"docs:resource:file:///srv/*"}]}`, call{"docs", "resource:file:///srv/../etc/passwd", "read", `{}`}, false, false},
		{"an escaped .. is found", `{"deny":[{"tool":"docs:resource:file:///etc/*"}]}`, call{"docs", "resource:file:///srv/%252e%252e/etc/passwd", "read", `{}`}, false, false},
		{"a resource with .. is visible without rules", `{}`, call{"docs", "resource:file:///srv/../a", "read", `{}`}, true, true},
		{"a resource is the tool resource:uri", `{"allow":[{"tool":"docs:resource:file:///public/*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, true, true},
		{"a pattern of tools matches no resource", `{"allow":[{"tool":"docs:read_*"}]}`, call{"docs", "resource:file:///public/a", "read", `{}`}, false, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			p := of(c.policy)
			shown := p.allowsTool(c.call.server, c.call.tool, models.ToolClass(c.call.class))
			require.Equal(t, c.shown, shown, "shown")
			require.Equal(t, c.allowed, shown && p.allowsArguments(&Tool{Server: c.call.server, Name: c.call.tool}, json.RawMessage(c.call.Arguments)), "allowed")
		})
	}
}

func TestInvalidRules(t *testing.T) {
	t.Parallel()
	for pattern, ok := range map[string]bool{
		"fs": true, "fs:write_*": true, "*": true, "my-?s:*": true, "fs__write_file": false, "fs write": false, ":read": false, "fs/x:read": false,
	} {
		err := checkRules(models.ToolPolicy{Deny: []models.ToolRule{{Tool: pattern}}})
		require.Equal(t, ok, err == nil, "%s: %v", pattern, err)
	}
}

func TestAllowsServer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: true, `{"allow":[{"tool":"fs:read_*"}]}`: true, `{"allow":[{"tool":"memory"}]}`: false, `{"deny":[{"tool":"fs"}]}`: false,
		`{"deny":[{"tool":"fs:write_*"}]}`: true, `{"deny":[{"tool":"f*:*"}]}`: false, `{"deny":[{"tool":"fs","arguments":{"a":"b"}}]}`: true,
	} {
		var rules models.ToolPolicy
		require.NoError(t, json.Unmarshal([]byte(text), &rules))
		require.Equal(t, want, (&policy{ToolPolicy: rules}).allowsServer("fs"), text)
	}
}

// TestGatewayToolsAreAllowed checks that a policy for one server does not hide the search and code
// tools, which a client needs to find its tools.
func TestGatewayToolsAreAllowed(t *testing.T) {
	t.Parallel()
	tool := func(server, name string, class models.ToolClass) *Tool {
		return &Tool{Server: server, Name: name, Class: class, builtin: &Builtin{Gateway: server == "agentcards"}}
	}
	search, code := tool("agentcards", "search_tools", models.ToolRead), tool("agentcards", "execute_code", models.ToolDestructive)
	files := &policy{ToolPolicy: models.ToolPolicy{Allow: []models.ToolRule{{Tool: "filesystem:*", Arguments: map[string]string{"path": "/srv/*"}}}, Classes: []models.ToolClass{models.ToolRead}}}
	for _, gateway := range []*Tool{search, code} {
		require.True(t, gateway.visibleTo(files))
		require.True(t, files.allowsArguments(gateway, []byte(`{"code":"1"}`)))
	}
	require.False(t, tool("comet", "submit_task", models.ToolWrite).visibleTo(files), "tasks of agents are not checked against it")
	denied := &policy{ToolPolicy: models.ToolPolicy{Deny: []models.ToolRule{{Tool: "agentcards:execute_code"}}}}
	require.True(t, search.visibleTo(denied))
	require.False(t, code.visibleTo(denied))
}

func TestPathsOfArgumentsTellNamesWithFullStopsApart(t *testing.T) {
	t.Parallel()
	nested, flat := map[string]string{"a.b": "x"}, map[string]string{`a\.b`: "x"}
	for args, want := range map[string][2]bool{
		`{"a": {"b": "x"}}`:                 {true, false},
		`{"a.b": "x"}`:                      {false, true},
		`{"a.b": "x", "a": {"b": "x"}}`:     {true, true},
		`{"a\\.b": "x", "a\\": {"b": "x"}}`: {false, false},
	} {
		values, ok := argumentValues([]byte(args))
		require.True(t, ok)
		require.Equal(t, want, [2]bool{values.allMatch(nested), values.allMatch(flat)}, args)
	}
}

// TestPoliciesOfAncestors checks that a call needs the permission of the token and of each token that it
// descends from.
func TestPoliciesOfAncestors(t *testing.T) {
	t.Parallel()
	echo := &Tool{Server: "x", Name: "echo", Class: models.ToolRead}
	for _, p := range []*policy{
		{ToolPolicy: models.ToolPolicy{Deny: []models.ToolRule{{Tool: "x:echo"}}}},
		{ToolPolicy: models.ToolPolicy{Allow: []models.ToolRule{{Tool: "y:*"}}}},
		{ToolPolicy: models.ToolPolicy{Classes: []models.ToolClass{models.ToolWrite}}},
	} {
		child := &policy{above: p}
		require.False(t, child.allowsTool("x", "echo", models.ToolRead))
		require.False(t, (&policy{above: child}).allowsTool("x", "echo", models.ToolRead))
	}
	servers := &policy{above: &policy{ToolPolicy: models.ToolPolicy{Deny: []models.ToolRule{{Tool: "x"}}}}}
	require.False(t, servers.allowsServer("x"))
	require.True(t, servers.denies("x", "echo"))
	arguments := &policy{above: &policy{ToolPolicy: models.ToolPolicy{Deny: []models.ToolRule{{Tool: "x:echo", Arguments: map[string]string{"path": "/etc/*"}}}}}}
	require.True(t, arguments.allowsTool("x", "echo", models.ToolRead))
	require.False(t, arguments.allowsArguments(echo, []byte(`{"path":"/etc/passwd"}`)))
	require.True(t, arguments.allowsArguments(echo, []byte(`{"path":"/srv/x"}`)))
}
