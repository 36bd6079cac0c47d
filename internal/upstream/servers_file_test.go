package upstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/upstream"
)

func TestParseServers(t *testing.T) {
	t.Parallel()
	servers, warnings, err := upstream.ParseServers([]byte(`{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"],
      "env": {"DEBUG": "1"}, "cwd": "/tmp", "disabled": true,
      "alwaysAllow": ["read_file"]
    },
    "github": {
      "type": "streamable-http", "url": "https://api.githubcopilot.com/mcp/", "headers": {"X-Key": "${KEY}"},
      "comet": {"bearer": "${GITHUB_TOKEN}", "timeout": "45s", "roots": ["/data"], "protocol": "2025-11-25"}
    }
  },
  "servers": {"near": {"url": "${BASE}/mcp"}}
}`))
	require.NoError(t, err)
	require.Equal(t, []string{`server "filesystem": "alwaysAllow" (line 7) is unknown and was ignored`}, warnings)
	require.Equal(t, []upstream.Server{
		{
			ID: "filesystem", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/data"},
			Env: map[string]string{"DEBUG": "1"}, Warnings: []string{`"alwaysAllow" is unknown and was ignored`}, Dir: "/tmp", Disabled: true,
		},
		{
			ID: "github", Transport: upstream.HTTP, URL: "https://api.githubcopilot.com/mcp/", Headers: map[string]string{"X-Key": "${KEY}"},
			Bearer: "${GITHUB_TOKEN}", Timeout: 45 * time.Second, Roots: []string{"/data"}, Protocol: "2025-11-25",
		},
		{ID: "near", URL: "${BASE}/mcp"},
	}, servers)
}

func TestParseServersSaysWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"no JSON":             {"{\n\"mcpServers\": {]}", "the document is not valid JSON"},
		"an id twice":         {"{\"mcpServers\": {\n\"a\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}", "mcpServers.a is given twice, first on line 2"},
		"an id in both":       {"{\"mcpServers\": {\"a\": {\"command\": \"x\"}},\n\"servers\": {\"a\": {\"command\": \"y\"}}}", `server "a" is defined twice, on line 1 and here (line 2)`},
		"no servers":          {"{}", "there is no object mcpServers"},
		"servers in a list":   {"{\"mcpServers\": [{}]}", "mcpServers must be an object, not an array (line 1)"},
		"no character of ids": {"{\"mcpServers\": {\n\"_ _\": {\"command\": \"x\"}}}", `server "_ _": id may contain only letters, digits and hyphens, for example "---" (line 2)`},
		"one id for two":      {"{\"mcpServers\": {\"my server\": {\"command\": \"x\"},\n\"my_server\": {\"command\": \"y\"}}}", `server "my-server" is defined twice, on line 1 and here (line 2)`},
		"a long id":           {`{"mcpServers": {"` + strings.Repeat("a", 65) + `": {"command": "x"}}}`, "id is longer than 64 characters"},
		"no way":              {`{"mcpServers": {"a": {"args": []}}}`, `server "a": command or url is required`},
		"two ways":            {`{"mcpServers": {"a": {"command": "x", "url": "http://h"}}}`, "command and url exclude each other"},
		"no address":          {`{"mcpServers": {"a": {"url": "ftp://h"}}}`, "url is not an address of the form https://host/path"},
		"another type":        {`{"mcpServers": {"a": {"type": "pigeon", "command": "x"}}}`, `type is "pigeon"; it can be stdio or http`},
		"the old transport":   {`{"mcpServers": {"a": {"type": "sse", "url": "http://h/sse"}}}`, "type is sse, the transport of 2024-11-05, which comet does not support"},
		"args in one string":  {"{\"mcpServers\": {\"a\": {\"command\": \"x\",\n\"args\": \"s3cr3t\"}}}", `mcpServers.a.args must be an array, not a string (line 2)`},
		"a number in env":     {`{"mcpServers": {"a": {"command": "x", "env": {"A": 8375}}}}`, `mcpServers.a.env.A must be a string, not a number (line 1)`},
		"a setting of others": {`{"mcpServers": {"a": {"command": "x", "comet": {"timeouts": "1s"}}}}`, `mcpServers.a.comet.timeouts is not a known member; did you mean timeout?`},
		"a timeout in ms":     {`{"mcpServers": {"a": {"command": "x", "comet": {"timeout": 45000}}}}`, `mcpServers.a.comet.timeout must be a string, not a number`},
		"no unit of time":     {`{"mcpServers": {"a": {"command": "x", "comet": {"timeout": "s3cr3t"}}}}`, `timeout must be a duration such as "45s"`},
		"two addresses":       {`{"mcpServers": {"a": {"url": "http://h", "serverUrl": "http://h"}}}`, "the address is given twice"},
		"no object":           {`{"mcpServers": {"a": []}}`, "mcpServers.a must be an object, not an array (line 1)"},
		"a short timeout":     {`{"mcpServers": {"a": {"command": "x", "comet": {"timeout": "1ms"}}}}`, "timeout must be between 1s and 1h0m0s"},
		"a bad header":        {`{"mcpServers": {"a": {"url": "http://h", "headers": {"a b": "x"}}}}`, `headers has "a b", which is not the name of a header`},
		"two credentials":     {`{"mcpServers": {"a": {"url": "http://h", "headers": {"authorization": "x"}, "comet": {"bearer": "y"}}}}`, "which excludes a bearer token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, _, err := upstream.ParseServers([]byte(c.file))
			require.Error(t, err)
			require.Empty(t, servers)
			fields := errs.From(err).Fields
			require.Len(t, fields, 1)
			require.Contains(t, fields[0].Detail, c.want)
			require.NotContains(t, fields[0].Detail, "s3cr3t")
			require.NotContains(t, fields[0].Detail, "8375")
		})
	}
}

// TestParseServersAsClientsHaveThem parses names of any kind, other names of keys, null, comments,
// trailing commas and a byte order mark.
func TestParseServersAsClientsHaveThem(t *testing.T) {
	t.Parallel()
	servers, warnings, err := upstream.ParseServers([]byte("\xef\xbb\xbf{ // mine\n\"servers\": {\n\"My Server_1\": {\"command\": \"x\",}, /* and */\n\"brave_search\": {\"url\": \"http://h\"},},}"))
	require.NoError(t, err)
	require.Equal(t, []string{"My-Server-1", "brave-search"}, []string{servers[0].ID, servers[1].ID})
	require.Contains(t, warnings, `server "My Server_1" (line 3) has the id My-Server-1: ids have letters, digits and hyphens`)

	servers, _, err = upstream.ParseServers([]byte(`{"servers": {"a": {"serverUrl": "http://h", "transport": "streamableHttp", "headers": null, "comet": {"bearer": null}}}}`))
	require.NoError(t, err)
	require.Equal(t, []upstream.Server{{ID: "a", Transport: upstream.HTTP, URL: "http://h"}}, servers)
}

func FuzzParseServers(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","args":["y"],"env":{"A":"${B}"},"comet":{"timeout":"1s"}}}}`))
	f.Add([]byte(`{"servers":{"a":{"url":"http://h","headers":{"A":"b"},"type":"http"}}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		servers, _, err := upstream.ParseServers(file)
		if err != nil {
			require.Empty(t, servers)
			return
		}
		for _, s := range servers {
			require.NoError(t, s.Validate())
		}
	})
}

func TestOAuthOfADefinition(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		`{"url":"https://x","comet":{"oauth":{"client_id":"c","client_secret":"${S}","scopes":["a"]}}}`:    "",
		`{"url":"https://x","comet":{"oauth":{}}}`:                                                         "",
		`{"url":"https://x","comet":{"oauth":{"client_secret":"${S}"}}}`:                                   "without a client_id",
		`{"url":"https://x","comet":{"bearer":"${T}","oauth":{"client_id":"c"}}}`:                          "without a token",
		`{"url":"https://x","headers":{"authorization":"Bearer ${T}"},"comet":{"oauth":{"scopes":["a"]}}}`: "without a token",
		`{"command":"x","comet":{"oauth":{"client_id":"c"}}}`:                                              "with a url",
		`{"url":"https://x","comet":{"oauth":{"client":"c"}}}`:                                             "client",
	} {
		servers, _, err := upstream.ParseServers([]byte(`{"mcpServers":{"a":` + entry + `}}`))
		if want == "" {
			require.NoError(t, err, entry)
			require.Len(t, servers, 1)
			continue
		}
		require.ErrorContains(t, err, want, entry)
	}
}
