// Package config reads the configuration of `comet serve` from flags, environment variables and a
// YAML file. It is strict: an unknown name is an error, because a misspelt setting that is
// ignored is worse than a server that does not start. Only cmd and app import it.
package config

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Config is the configuration of `comet serve`. A field's koanf tag is its path in the file;
// docs/configuration.md lists all settings.
type Config struct {
	// Listen is host:port; port 0 picks a free one.
	Listen string `koanf:"listen"`
	// Data is the directory of the embedded database.
	Data string `koanf:"data"`
	// DatabaseURL is postgres://…; "" is the embedded SQLite.
	DatabaseURL string `koanf:"database_url"`
	// NATSURL is nats://… (several with commas); "" is the embedded server.
	NATSURL string `koanf:"nats_url"`
	// AdminToken is the bootstrap admin token; "" makes one at the first start.
	AdminToken string `koanf:"admin_token"`

	NATS      NATS      `koanf:"nats"`
	Log       Log       `koanf:"log"`
	HTTP      HTTP      `koanf:"http"`
	Tracing   Tracing   `koanf:"tracing"`
	Registry  Registry  `koanf:"registry"`
	Store     Store     `koanf:"store"`
	Events    Events    `koanf:"events"`
	Usage     Usage     `koanf:"usage"`
	Tasks     Tasks     `koanf:"tasks"`
	Transport Transport `koanf:"transport"`
	Webhooks  Webhooks  `koanf:"webhooks"`
	MCP       MCP       `koanf:"mcp"`
	Tools     Tools     `koanf:"tools"`
	Sandbox   Sandbox   `koanf:"sandbox"`

	origins map[string]string // key → where its value came from
	file    string            // the file that was read, "" for none
}

// NATS configures the message bus.
type NATS struct {
	CredentialsFile string `koanf:"credentials_file"`
	CAFile          string `koanf:"ca_file"`
	CertFile        string `koanf:"cert_file"`
	KeyFile         string `koanf:"key_file"`
	// Listen is host:port for agents at the embedded server, "" for none.
	Listen string `koanf:"listen"`
}

// Log configures logging.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `koanf:"level"`
	// Format is auto (text on a terminal, JSON otherwise), text or json.
	Format string `koanf:"format"`
	// Sample logs every n-th successful request; 1 logs all.
	Sample int `koanf:"sample"`
}

// HTTP holds the limits of the HTTP server.
type HTTP struct {
	RequestTimeout time.Duration `koanf:"request_timeout"`
	MaxBodyBytes   int64         `koanf:"max_body_bytes"`
	MaxRosterBytes int64         `koanf:"max_roster_bytes"`
	RateLimit      RateLimit     `koanf:"rate_limit"`
	// DrainDelay comes before ShutdownTimeout begins.
	DrainDelay      time.Duration `koanf:"drain_delay"`
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"`
}

// RateLimit allows each token Requests per Window.
type RateLimit struct {
	// Requests is 0 for no limit.
	Requests int           `koanf:"requests"`
	Window   time.Duration `koanf:"window"`
}

// Tracing configures where spans are sent.
type Tracing struct {
	// Endpoint is http://host:port of a collector, "" for none.
	Endpoint      string `koanf:"endpoint"`
	SamplePercent int    `koanf:"sample_percent"`
}

// Registry holds the optional rules of the registry.
type Registry struct {
	// StrictCapabilities refuses a capability that is neither predefined nor
	// prefixed custom: (CHE·NU §6.2) instead of warning about it.
	StrictCapabilities bool `koanf:"strict_capabilities"`
}

// Store sizes the database connections.
type Store struct {
	// ReadConnections are those of SQLite's reading pool.
	ReadConnections int `koanf:"read_connections"`
	// MaxConnections are those of PostgreSQL's pool.
	MaxConnections int `koanf:"max_connections"`
}

// Events configures the event feed.
type Events struct {
	// Retention is how long events are kept.
	Retention time.Duration `koanf:"retention"`
	// PollInterval is how often the relay polls for events without a wake-up.
	PollInterval time.Duration `koanf:"poll_interval"`
}

// Usage configures the ledger.
type Usage struct {
	// Retention is how long facts and hourly sums are kept.
	Retention time.Duration `koanf:"retention"`
}

// Tasks configures tasks.
type Tasks struct {
	// Retention is how long a finished task is kept.
	Retention time.Duration `koanf:"retention"`
}

// Transport configures agents' connections.
type Transport struct {
	// MaxConnections is how many connections one process holds.
	MaxConnections int `koanf:"max_connections"`
	// MaxAuthFailures is how many invalid tokens per minute one address may send.
	MaxAuthFailures int `koanf:"max_auth_failures"`
	// Heartbeat is the interval of heartbeats on a connection.
	Heartbeat time.Duration `koanf:"heartbeat"`
	// RedeliverAfter is when a message that was polled and not acknowledged is delivered again.
	RedeliverAfter time.Duration `koanf:"redeliver_after"`
	// V5Listen is the address of the TCP listener for PROTOCOL_V5, "" for none.
	V5Listen string `koanf:"v5_listen"`
	// V5ReplayWindow is how long a signed PROTOCOL_V5 message is refused again.
	V5ReplayWindow time.Duration `koanf:"v5_replay_window"`
}

// Webhooks configures deliveries.
type Webhooks struct {
	// AllowNetworks are non-public addresses and ranges that may receive deliveries; Networks
	// returns them.
	AllowNetworks []string `koanf:"allow_networks"`
	// HTTPSOnly refuses URLs of the scheme http.
	HTTPSOnly bool `koanf:"https_only"`
	// Timeout limits one attempt, from name resolution to the end of the response.
	Timeout time.Duration `koanf:"timeout"`
	// Retention is how long a finished delivery is kept and can be redelivered.
	Retention time.Duration `koanf:"retention"`
}

// Sources are the inputs of a configuration.
type Sources struct {
	// Flags are the command's, as registered by Flags; nil for none. Only flags that were set
	// count.
	Flags *pflag.FlagSet
	// Environ is the environment as "NAME=value", as os.Environ returns it.
	// An empty variable counts as not set.
	Environ []string
}

// Load reads the configuration: a flag beats the environment, which beats the
// file named by --config or COMET_CONFIG, which beats the default. The error is
// an *Error that lists every problem of every source.
func Load(src Sources) (Config, error) {
	env, problems := readEnviron(src.Environ)
	flags, ps := readFlags(src.Flags)
	problems = append(problems, ps...)

	path := configPath(src)
	file := layer{}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return Config{}, &Error{Problems: []string{fmt.Sprintf("The configuration file cannot be read: %v.", err)}}
		}
		file, ps = readFile(path, data)
		problems = append(problems, ps...)
	}
	if len(problems) > 0 {
		return Config{}, &Error{Problems: problems}
	}
	c, err := merge(defaults(), file, env, flags)
	c.file = path
	return c, err
}

// Default returns the configuration of a server without any settings.
func Default() Config {
	c, err := merge(defaults())
	if err != nil {
		panic(fmt.Sprintf("config: the defaults do not fit the struct: %v", err))
	}
	return c
}

// merge merges the layers, the last on top.
func merge(layers ...layer) (Config, error) {
	k := koanf.New(".")
	c := Config{origins: map[string]string{}}
	for _, l := range layers {
		values := map[string]any{}
		for key, v := range l {
			values[key] = v.value
			c.origins[key] = v.origin
		}
		if err := k.Load(confmap.Provider(values, "."), nil); err != nil {
			return Config{}, fmt.Errorf("merge configuration: %w", err)
		}
	}
	if err := k.Unmarshal("", &c); err != nil {
		return Config{}, fmt.Errorf("merge configuration: %w", err)
	}
	return c, nil
}

// Error lists the problems of a configuration, one sentence each.
type Error struct{ Problems []string }

// Error implements error.
func (e *Error) Error() string {
	text := ""
	for i, p := range e.Problems {
		if i > 0 {
			text += "\n"
		}
		text += p
	}
	return text
}

// LogValue implements slog.LogValuer with the secrets masked.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String returns the effective configuration with the secrets masked.
func (c Config) String() string {
	text, err := c.Effective()
	if err != nil {
		return "config: " + err.Error()
	}
	return string(text)
}

// GoString masks secrets in %#v.
func (c Config) GoString() string { return c.String() }

// MCP configures the MCP server and its upstreams.
type MCP struct {
	// Servers is the mcpServers file, "" for none.
	Servers string `koanf:"servers"`
	// AddCommands allows adding local programs over the API.
	AddCommands bool `koanf:"add_commands"`
	// Parent is the agent below which upstreams are registered, in the sphere Sphere.
	Parent string `koanf:"parent"`
	Sphere int    `koanf:"sphere"`

	Origins              []string `koanf:"origins"`
	Hosts                []string `koanf:"hosts"`
	PublicURL            string   `koanf:"public_url"`
	AuthorizationServers []string `koanf:"authorization_servers"`
	MaxBodyBytes         int64    `koanf:"max_body_bytes"`
}

// Tools configures how tools are listed, searched and watched.
type Tools struct {
	Names          string        `koanf:"names"`
	Expose         string        `koanf:"expose"`
	Pinned         []string      `koanf:"pinned"`
	TrustChanges   bool          `koanf:"trust_changes"`
	WaitForAudit   bool          `koanf:"wait_for_audit"`
	AuditRetention time.Duration `koanf:"audit_retention"`
	NoCache        bool          `koanf:"no_cache"`

	Embeddings Embeddings `koanf:"embeddings"`
}

// Embeddings configures the embeddings server of tool search.
type Embeddings struct {
	URL   string `koanf:"url"`
	Model string `koanf:"model"`
	Key   string `koanf:"key"`
}

// Sandbox limits code of clients.
type Sandbox struct {
	Timeout    time.Duration `koanf:"timeout"`
	MaxTimeout time.Duration `koanf:"max_timeout"`
	MemoryMB   int           `koanf:"memory_mb"`
	Running    int           `koanf:"running"`
	Warm       int           `koanf:"warm"`
	ReadPaths  []string      `koanf:"read_paths"`
}
