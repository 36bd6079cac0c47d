package config_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/input"
)

const adminToken = "an-admin-token-of-forty-characters-long!"

// load runs Load over a file's text (none when empty), variables and flags.
func load(t *testing.T, file string, environ []string, args ...string) (config.Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.Flags(fs)
	require.NoError(t, fs.Parse(args))
	if file != "" {
		path := filepath.Join(t.TempDir(), "comet.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		environ = append(environ, "COMET_CONFIG="+path)
	}
	return config.Load(config.Sources{Flags: fs, Environ: environ})
}

func TestLoadPrecedence(t *testing.T) {
	t.Parallel()

	t.Run("nothing said gives the defaults", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "", nil)
		require.NoError(t, err)
		require.Equal(t, config.Default(), c)
		require.Equal(t, "127.0.0.1:8080", c.Listen)
		require.Equal(t, 720*time.Hour, c.Events.Retention)
		require.Equal(t, int64(8<<20), c.HTTP.MaxRosterBytes)
	})

	t.Run("no flag set is needed", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load(config.Sources{})
		require.NoError(t, err)
		require.Equal(t, config.Default(), c)
	})

	t.Run("a flag beats the environment beats the file beats the default", func(t *testing.T) {
		t.Parallel()
		file := "listen: 127.0.0.1:1\ndata: from-file\nlog:\n  level: debug\n"
		c, err := load(t, file, []string{"COMET_LISTEN=127.0.0.1:2", "COMET_DATA=from-env"}, "--listen", "127.0.0.1:3")
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1:3", c.Listen)
		require.Equal(t, "from-env", c.Data)
		require.Equal(t, "debug", c.Log.Level)
		require.Equal(t, "auto", c.Log.Format)
	})

	t.Run("--config beats COMET_CONFIG", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "other.yaml")
		require.NoError(t, os.WriteFile(path, []byte("data: other\n"), 0o600))
		c, err := load(t, "data: first\n", nil, "--config", path)
		require.NoError(t, err)
		require.Equal(t, "other", c.Data)
	})

	t.Run("every nested key has its variable", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "", []string{
			"COMET_HTTP_REQUEST_TIMEOUT=5s", "COMET_HTTP_RATE_LIMIT_REQUESTS=7",
			"COMET_REGISTRY_STRICT_CAPABILITIES=true", "COMET_ADMIN_TOKEN=" + adminToken,
		})
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, c.HTTP.RequestTimeout)
		require.Equal(t, 7, c.HTTP.RateLimit.Requests)
		require.True(t, c.Registry.StrictCapabilities)
		require.Equal(t, adminToken, c.AdminToken)
	})

	t.Run("networks are a list in the file and separated by commas elsewhere", func(t *testing.T) {
		t.Parallel()
		want := []string{"127.0.0.0/8", "::1", "::ffff:10.0.0.0/104"}
		for name, from := range map[string]struct {
			file string
			env  []string
			args []string
		}{
			"list":     {file: "webhooks:\n  allow_networks:\n    - 127.0.0.0/8\n    - ::1\n    - '::ffff:10.0.0.0/104'\n"},
			"text":     {file: "webhooks:\n  allow_networks: 127.0.0.0/8, ::1, ::ffff:10.0.0.0/104\n"},
			"variable": {env: []string{"COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8,::1 , ::ffff:10.0.0.0/104"}},
			"flag":     {file: "webhooks:\n  allow_networks: [10.0.0.0/8]\n", args: []string{"--webhooks-allow-networks", "127.0.0.0/8,::1,::ffff:10.0.0.0/104"}},
		} {
			c, err := load(t, from.file, from.env, from.args...)
			require.NoError(t, err, name)
			require.Equal(t, want, c.Webhooks.AllowNetworks, name)
			require.Equal(t, []netip.Prefix{
				netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("::ffff:10.0.0.0/104"),
			}, c.Webhooks.Networks(), name)
			require.Contains(t, c.String(), "\n  allow_networks: 127.0.0.0/8, ::1, ::ffff:10.0.0.0/104 #", name)
		}
	})

	t.Run("a list whose entries may be anything is one", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "sandbox:\n  read_paths: [/srv/data, /tmp]\n", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"/srv/data", "/tmp"}, c.Sandbox.ReadPaths)
	})

	t.Run("a list of nothing opens nothing", func(t *testing.T) {
		t.Parallel()
		for _, file := range []string{"webhooks:\n  allow_networks: []\n", "webhooks:\n  allow_networks: ''\n"} {
			c, err := load(t, file, nil)
			require.NoError(t, err)
			require.Empty(t, c.Webhooks.Networks())
		}
		c, err := load(t, "webhooks:\n  allow_networks: ['::1']\n", nil, "--webhooks-allow-networks=")
		require.NoError(t, err)
		require.Empty(t, c.Webhooks.Networks(), "an empty flag counts")
	})

	t.Run("an empty variable counts as not set", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "data: from-file\n", []string{"COMET_DATA=", "COMET_ADMIN_TOKEN="})
		require.NoError(t, err)
		require.Equal(t, "from-file", c.Data)
	})

	t.Run("the clients' and the tests' variables are not ours", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", []string{
			"COMET_SERVER=x", "COMET_TOKEN=x", "COMET_OUTPUT=x", "COMET_CLIENT_CONFIG=x",
			"COMET_TEST_POSTGRES=x", "PATH=/bin", "COMETARY=1",
		})
		require.NoError(t, err)
	})

	t.Run("what Kubernetes tells of Services that are named like us is not ours", func(t *testing.T) {
		t.Parallel()
		for _, service := range []string{"COMET", "COMET_POSTGRES"} {
			c, err := load(t, "", []string{
				service + "_SERVICE_HOST=10.0.0.1", service + "_SERVICE_PORT=8080", service + "_SERVICE_PORT_HTTP=8080",
				service + "_PORT=tcp://10.0.0.1:8080", service + "_PORT_8080_TCP=tcp://10.0.0.1:8080", service + "_PORT_8080_TCP_PROTO=tcp",
				service + "_PORT_8080_TCP_PORT=8080", service + "_PORT_8080_TCP_ADDR=10.0.0.1", service + "_PORT_53_UDP_ADDR=fd00::1",
			})
			require.NoError(t, err)
			require.Equal(t, config.Default(), c)
		}
	})

	t.Run("an empty file and a file of comments are fine", func(t *testing.T) {
		t.Parallel()
		for _, file := range []string{"\n", "# nothing here\n", "{}\n", "log: {}\n"} {
			_, err := load(t, file, nil)
			require.NoError(t, err, file)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		env  string
		args string
		says []string
	}{
		"an unknown key, with its line and a near miss":         {file: "data: x\nlog:\n  levle: info\n", says: []string{":3: log.levle is not a setting; did you mean log.level?"}},
		"an unknown key without a near miss":                    {file: "colour: red\n", says: []string{":1: colour is not a setting."}},
		"an unknown section":                                    {file: "paint:\n  red: x\n", says: []string{":1: paint is not a setting."}},
		"a certificate without a key":                           {file: "tls:\n  cert_file: x\n", says: []string{"set both or neither"}},
		"a relative path of a socket":                           {file: "transport:\n  v5_listen: unix:x.sock\n", says: []string{"absolute path"}},
		"a repeated key":                                        {file: "data: x\ndata: y\n", says: []string{":2:", "given twice, first on line 1"}},
		"an alias":                                              {file: "data: &d x\nlisten: *d\n", says: []string{":1:", "&d", ":2:", "*d"}},
		"a file that is no mapping":                             {file: "- listen\n", says: []string{":1: the file must contain settings"}},
		"a file that is not YAML":                               {file: "listen: [\n", says: []string{"the document is not valid YAML"}},
		"a section given a value":                               {file: "log: debug\n", says: []string{":1: log must contain settings of its own"}},
		"a setting given a section":                             {file: "listen:\n  port: 1\n", says: []string{"listen must be text"}},
		"a key without a value":                                 {file: "data:\n", says: []string{":1: data has no value"}},
		"a number where text is wanted":                         {file: "data: 12\n", says: []string{`data (`, `:1) is "12" but must be text; put it in quotes`}},
		"text where a number is wanted":                         {file: "log:\n  sample: many\n", says: []string{`log.sample (`, `:2) is "many" but must be a whole number.`}},
		"a quoted number":                                       {file: "log:\n  sample: '5'\n", says: []string{"must be a whole number"}},
		"a number that is not decimal":                          {file: "http:\n  max_body_bytes: 0x1000\n", says: []string{"must be a whole number"}},
		"yes where true is wanted":                              {file: "registry:\n  strict_capabilities: yes\n", says: []string{`is "yes" but must be true or false`}},
		"a duration without a unit":                             {file: "http:\n  request_timeout: 30\n", says: []string{"must be a duration such as 30s"}},
		"an unknown variable, with a near miss":                 {env: "COMET_LISTN=x", says: []string{"The environment variable COMET_LISTN is not a setting; did you mean COMET_LISTEN?"}},
		"an unknown variable even when it is empty":             {env: "COMET_LISTN=", says: []string{"COMET_LISTN"}},
		"underscores in a variable that are not the key's":      {env: "COMET_LOGLEVEL=debug", says: []string{"did you mean COMET_LOG_LEVEL?"}},
		"a variable out of range":                               {env: "COMET_STORE_READ_CONNECTIONS=0", says: []string{`store.read_connections (environment variable COMET_STORE_READ_CONNECTIONS) is "0" but must be between 1 and 64.`}},
		"a variable of the wrong type":                          {env: "COMET_HTTP_REQUEST_TIMEOUT=30", says: []string{"COMET_HTTP_REQUEST_TIMEOUT", "must be a duration"}},
		"a flag out of range":                                   {args: "--log-level=loud", says: []string{`log.level (--log-level) is "loud" but must be debug, info, warn or error.`}},
		"an address without a port":                             {args: "--listen=localhost", says: []string{"must be host:port"}},
		"a port that does not exist":                            {args: "--listen=:99999", says: []string{"0 to 65535"}},
		"an empty data directory":                               {args: "--data=", says: []string{"must not be empty"}},
		"a database that is not PostgreSQL":                     {args: "--database-url=mysql://u:hunter2@h/d", says: []string{"postgres://"}},
		"a message bus that is not NATS":                        {args: "--nats-url=nats://a:1,http://b", says: []string{"nats://host:4222"}},
		"a short admin token":                                   {env: "COMET_ADMIN_TOKEN=hunter2", says: []string{"admin_token", "COMET_ADMIN_TOKEN", "at least 32 characters"}},
		"an admin token that is too long":                       {env: "COMET_ADMIN_TOKEN=" + strings.Repeat("hunter2-", 1024) + "x", says: []string{"admin_token", "at most 8192 characters"}},
		"a port as one might expect it":                         {env: "COMET_PORT=8080", says: []string{"COMET_PORT is not a setting"}},
		"a port of ours that Kubernetes would not write":        {env: "COMET_LISTEN_PORT=8080", says: []string{"COMET_LISTEN_PORT is not a setting"}},
		"almost what Kubernetes writes":                         {env: "COMET_PORT_8080=tcp://10.0.0.1:8080", says: []string{"COMET_PORT_8080 is not a setting"}},
		"an admin token with a space":                           {env: "COMET_ADMIN_TOKEN=" + strings.Repeat("hunter2 ", 8), says: []string{"printable ASCII"}},
		"an admin token with an accent":                         {env: "COMET_ADMIN_TOKEN=" + strings.Repeat("é", 40), says: []string{"printable ASCII"}},
		"a bad value in the file though a flag replaces it":     {file: "listen: nowhere\n", args: "--listen=:0", says: []string{"nowhere"}},
		"every problem of every source in one go":               {file: "a1: 1\nb2: 2\n", env: "COMET_X=1", args: "--log-level=x", says: []string{"a1", "b2", "COMET_X", "--log-level"}},
		"a number that does not fit":                            {env: "COMET_HTTP_MAX_BODY_BYTES=99999999999999999999", says: []string{"must be a whole number"}},
		"a window longer than a day":                            {env: "COMET_HTTP_RATE_LIMIT_WINDOW=25h", says: []string{"between 1s and 24h"}},
		"a shutdown timeout of nothing":                         {env: "COMET_HTTP_SHUTDOWN_TIMEOUT=0s", says: []string{"between 100ms and 1h"}},
		"a log sample of nothing":                               {env: "COMET_LOG_SAMPLE=0", says: []string{"between 1 and 1000000"}},
		"a network that is none, whichever it is":               {env: "COMET_WEBHOOKS_ALLOW_NETWORKS=10.0.0.0/33, ::1,loopback", says: []string{"webhooks.allow_networks (environment variable COMET_WEBHOOKS_ALLOW_NETWORKS)", `"10.0.0.0/33" is none; "loopback" is none`}},
		"a network that may have been one address":              {args: "--webhooks-allow-networks=10.1.2.3/8", says: []string{`"10.1.2.3/8" has more than its first 8 bits set, write 10.0.0.0/8 or 10.1.2.3`}},
		"an address of one interface":                           {args: "--webhooks-allow-networks=fe80::1%eth0", says: []string{`"fe80::1%eth0" is none`}},
		"a comma too many between networks":                     {args: "--webhooks-allow-networks=::1,", says: []string{`"" is none`}},
		"a network in a list, with its own line":                {file: "webhooks:\n  allow_networks:\n    - 10.0.0.0/8\n    - nowhere\n    - ''\n", says: []string{`:4) is "nowhere"`, `"nowhere" is none`, `:5) is ""`}},
		"a network in a list that is no text":                   {file: "webhooks:\n  allow_networks: [10, [x], null]\n", says: []string{`is "10" but must be text; put it in quotes`, `is "" but must be text`}},
		"networks in a mapping":                                 {file: "webhooks:\n  allow_networks:\n    ipv4: 10.0.0.0/8\n", says: []string{"allow_networks must be a list such as"}},
		"a list where text is wanted":                           {file: "data: [x]\n", says: []string{"data must be text"}},
		"a timeout of a delivery beyond a minute":               {env: "COMET_WEBHOOKS_TIMEOUT=61s", says: []string{"between 1s and 1m"}},
		"usage kept for a day":                                  {env: "COMET_USAGE_RETENTION=24h", says: []string{"between 48h and"}},
		"no line at all":                                        {env: "COMET_TRANSPORT_MAX_CONNECTIONS=0", says: []string{"transport.max_connections", "between 1 and 10000000"}},
		"no token that may be wrong":                            {file: "http:\n  max_auth_failures: 0\n", says: []string{"http.max_auth_failures", "between 1 and 1000000"}},
		"a heartbeat of nothing":                                {env: "COMET_TRANSPORT_HEARTBEAT=10ms", says: []string{"transport.heartbeat", "between 1s and 10m"}},
		"a replay window of nothing":                            {env: "COMET_TRANSPORT_V5_REPLAY_WINDOW=59s", says: []string{"transport.v5_replay_window", "between 1m and 720h"}},
		"lines of text at no port":                              {env: "COMET_TRANSPORT_V5_LISTEN=everywhere", says: []string{"transport.v5_listen", "host:port"}},
		"an inbox that tells again at once":                     {file: "transport:\n  redeliver_after: 0s\n", says: []string{"transport.redeliver_after", "between 1s and 1h"}},
		"one connection to PostgreSQL, which would stop itself": {env: "COMET_STORE_MAX_CONNECTIONS=1", says: []string{"between 2 and"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var environ, args []string
			if c.env != "" {
				environ = []string{c.env}
			}
			if c.args != "" {
				args = []string{c.args}
			}
			_, err := load(t, c.file, environ, args...)
			require.Error(t, err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, err.Error(), "hunter2")
			var list *config.Error
			require.ErrorAs(t, err, &list)
		})
	}

	t.Run("but the longest admin token", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", []string{"COMET_ADMIN_TOKEN=" + strings.Repeat("x", input.MaxTokenLength)})
		require.NoError(t, err)
	})
	t.Run("a file that is not there", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", nil, "--config", filepath.Join(t.TempDir(), "none.yaml"))
		require.ErrorContains(t, err, "none.yaml")
	})
}

func TestEffective(t *testing.T) {
	t.Parallel()
	c, err := load(t, "log:\n  level: debug\n",
		[]string{"COMET_ADMIN_TOKEN=" + adminToken, "COMET_DATABASE_URL=postgres://comet:hunter2@db/comet", "COMET_NATS_URL=nats://hunter2@n1"},
		"--listen", "127.0.0.1:0")
	require.NoError(t, err)
	text, err := c.Effective()
	require.NoError(t, err)

	t.Run("each value stands with its source", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, string(text), "listen: 127.0.0.1:0 # flag --listen\n")
		require.Contains(t, string(text), "data: ./comet-data # default\n")
		require.Regexp(t, `(?m)^  level: debug # .*comet.yaml:2$`, string(text))
		require.Contains(t, string(text), "database_url: postgres://comet:********@db/comet # env COMET_DATABASE_URL\n")
	})
	t.Run("no secret is in it, however the configuration is printed", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{string(text), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), c.LogValue().String()} {
			require.NotContains(t, s, adminToken)
			require.NotContains(t, s, "hunter2")
		}
	})
	t.Run("without secrets it loads again to the same values", func(t *testing.T) {
		t.Parallel()
		want, err := load(t, "", nil, "--webhooks-allow-networks", "::1, 127.0.0.0/8")
		require.NoError(t, err)
		text, err := want.Effective()
		require.NoError(t, err)
		got, err := load(t, string(text), nil)
		require.NoError(t, err)
		again, err := got.Effective()
		require.NoError(t, err)
		require.Equal(t, uncomment(string(text)), uncomment(string(again)))
	})
}

// uncomment drops the comments, which name the sources.
func uncomment(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "#")
		if strings.TrimSpace(before) != "" {
			out = append(out, strings.TrimRight(before, " \n"))
		}
	}
	return strings.Join(out, "\n")
}

// TestASwitchNeedsNoValue: what is true or false is said as every switch is.
func TestASwitchNeedsNoValue(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]bool{"--no-cache": true, "--no-cache=true": true, "--no-cache=false": false} {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		config.Flags(fs)
		require.NoError(t, fs.Parse([]string{flag, "--mcp-servers", "f.json"}))
		require.Empty(t, fs.Args())
		cfg, err := config.Load(config.Sources{Flags: fs})
		require.NoError(t, err)
		require.Equal(t, want, cfg.Tools.NoCache, flag)
		require.Equal(t, "f.json", cfg.MCP.Servers)
	}
}

// TestSecretFiles: each secret can be read from a file that a variable names.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}

	t.Run("the value is the file without the newline at its end", func(t *testing.T) {
		t.Parallel()
		for _, end := range []string{"", "\n", "\r\n"} {
			c, err := load(t, "admin_token: "+strings.Repeat("x", 32)+"\n", []string{
				"COMET_ADMIN_TOKEN_FILE=" + file(adminToken+end),
				"COMET_DATABASE_URL_FILE=" + file("postgres://comet:hunter2@db/comet"+end),
				"COMET_NATS_URL_FILE=" + file("nats://hunter2@n1"+end),
				"COMET_TOOLS_EMBEDDINGS_KEY_FILE=" + file(" hunter2 \n\n"),
			})
			require.NoError(t, err)
			require.Equal(t, adminToken, c.AdminToken)
			require.Equal(t, "postgres://comet:hunter2@db/comet", c.DatabaseURL)
			require.Equal(t, "nats://hunter2@n1", c.NATSURL)
			require.Equal(t, " hunter2 \n", c.Tools.Embeddings.Key, "only one newline is removed")
			require.Contains(t, c.String(), "admin_token: '********' # env COMET_ADMIN_TOKEN_FILE\n")
			require.NotContains(t, c.String(), "hunter2")
		}
	})

	t.Run("an empty variable counts as not set, and a flag overrides a file", func(t *testing.T) {
		t.Parallel()
		c, err := load(t, "", []string{"COMET_ADMIN_TOKEN_FILE=", "COMET_NATS_URL_FILE=" + file("nats://a:1")}, "--nats-url", "nats://b:2")
		require.NoError(t, err)
		require.Empty(t, c.AdminToken)
		require.Equal(t, "nats://b:2", c.NATSURL)
	})

	for name, c := range map[string]struct {
		environ []string
		says    string
	}{
		"a file that does not exist":     {[]string{"COMET_ADMIN_TOKEN_FILE=/none/token"}, "admin_token (environment variable COMET_ADMIN_TOKEN_FILE) cannot be read: open /none/token: no such file or directory."},
		"a folder":                       {[]string{"COMET_ADMIN_TOKEN_FILE=" + t.TempDir()}, "admin_token (environment variable COMET_ADMIN_TOKEN_FILE) cannot be read: read "},
		"an empty file":                  {[]string{"COMET_ADMIN_TOKEN_FILE=" + file("\n")}, "secret contains 0 bytes instead of 1 to 65536."},
		"a large file":                   {[]string{"COMET_ADMIN_TOKEN_FILE=" + file(strings.Repeat("x", 64<<10+1))}, "secret contains 65537 bytes instead of 1 to 65536."},
		"the value and the file":         {[]string{"COMET_ADMIN_TOKEN_FILE=" + file(adminToken), "COMET_ADMIN_TOKEN=" + adminToken}, "admin_token (environment variable COMET_ADMIN_TOKEN_FILE) cannot be read: COMET_ADMIN_TOKEN is also set; set one of them."},
		"an invalid value":               {[]string{"COMET_ADMIN_TOKEN_FILE=" + file("hunter2")}, "admin_token (file of environment variable COMET_ADMIN_TOKEN_FILE) must have at least 32 characters."},
		"a setting that is not a secret": {[]string{"COMET_LISTEN_FILE=" + file(":1")}, "The environment variable COMET_LISTEN_FILE is not a setting"},
		"a misspelt variable":            {[]string{"COMET_ADMIN_TOKN_FILE=x"}, "did you mean COMET_ADMIN_TOKEN_FILE?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, "", c.environ)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
