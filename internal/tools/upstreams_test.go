package tools

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
)

func TestCheckSecrets(t *testing.T) {
	t.Parallel()
	env := func(name, value string) upstream.Server {
		return upstream.Server{Env: map[string]string{name: value}}
	}
	for name, c := range map[string]struct {
		server upstream.Server
		ok     bool
	}{
		"a plain setting":                    {env("NODE_ENV", "production"), true},
		"a reference":                        {env("GITHUB_TOKEN", "${GITHUB_TOKEN}"), true},
		"a reference to a file":              {env("GITHUB_TOKEN", "${file:/run/secrets/token}"), true},
		"a literal token":                    {env("GITHUB_TOKEN", "ghp_0123456789"), false},
		"a literal token beside a reference": {env("API_KEY", "${X}sk-123"), false},
		"an empty one":                       {env("API_KEY", ""), true},
		"a name that contains key":           {env("KEYBOARD", "qwerty"), true},
		"a header":                           {upstream.Server{Headers: map[string]string{"Authorization": "Bearer ${T}"}}, true},
		"a header with a literal token":      {upstream.Server{Headers: map[string]string{"Authorization": "Bearer abc"}}, false},
		"a header for a key":                 {upstream.Server{Headers: map[string]string{"X-Key": "abc"}}, false},
		"a bearer":                           {upstream.Server{Bearer: "abc"}, false},
		"a client of OAuth":                  {upstream.Server{OAuth: upstream.OAuth{ClientID: "c", ClientSecret: "abc"}}, false},
		"an argument":                        {upstream.Server{Args: []string{"-y", "server", "--token=abc"}}, false},
		"an argument and the next":           {upstream.Server{Args: []string{"--api-key", "abc"}}, false},
		"an argument with a reference":       {upstream.Server{Args: []string{"--api-key", "${API_KEY}"}}, true},
		"an argument without a secret":       {upstream.Server{Args: []string{"-y", "@scope/server", "/srv"}}, true},
		"a password in the URL":              {upstream.Server{URL: "https://me:abc@mcp.example"}, false},
		"a parameter of the URL":             {upstream.Server{URL: "https://mcp.example?api_key=abc"}, false},
		"a token of a service":               {env("K", "sk-ant-api03-0123456789abcdef"), false},
		"a token of a forge":                 {upstream.Server{Args: []string{"serve", "ghp_0123456789abcdefghijklmn"}}, false},
		"a JSON Web Token":                   {env("PW", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"), false},
		"a password in an address":           {env("DATABASE", "postgres://me:hunter2@db/x"), false},
		"an address with a reference":        {env("DATABASE", "postgres://me:${PW}@db/x"), true},
		"an address without a password":      {env("DATABASE", "postgres://db:5432/x"), true},
		"a token of comet":                   {env("K", "0123456789abcdef0123456789abcdef"), false},
		"a token of comet in an argument":    {upstream.Server{Args: []string{"key=0123456789abcdef0123456789abcdef"}}, false},
		"a bearer token in a variable":       {env("K", "Bearer abcdefgh12"), false},
		"an image by its digest":             {upstream.Server{Args: []string{"run", "-i", "mcp/files@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}, true},
		"a commit":                           {upstream.Server{Args: []string{"git+https://forge.example/mcp@0123456789abcdef0123456789abcdef01234567"}}, true},
		"a sentence":                         {env("TITLE", "Basic functionality"), true},
		"a long word":                        {env("PATH", "/usr/local/share/some-skeleton-directory/sk-elements"), true},
		"a URL parameter without a secret":   {upstream.Server{URL: "https://mcp.example?region=eu"}, true},
	} {
		require.Equal(t, c.ok, checkSecrets(c.server) == nil, name)
	}
}

func TestRefersToForeignVariables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"url":"https://x"}`: false, `{"headers":{"A":"${MCP_TOKEN}"}}`: false, `{"headers":{"A":"${env:MCP_TOKEN}"}}`: false,
		`{"headers":{"A":"${HOME}"}}`: true, `{"headers":{"A":"${file:/etc/shadow}"}}`: true, `{"headers":{"A":"${MCP_A} ${B}"}}`: true,
	} {
		require.Equal(t, want, refersToForeignVariables([]byte(text)), text)
	}
}
