// Package config reads the configuration of `comet serve` from flags, environment variables and a
// YAML file. It is strict: an unknown name is an error, because a misspelt setting that is
// ignored is worse than a server that does not start. Only cmd and app import it.
package config

import (
	"cmp"
	"strings"
	"time"

	"comet/models"
)

// Config is the configuration of `comet serve`. The tags of its fields declare the settings (see
// setting); docs/configuration.md lists them.
type Config struct {
	Listen        string `key:"listen" flag:"listen" default:"127.0.0.1:8080" check:"address" help:"Address to listen on, “host:port”; port 0 picks a free one and prints it"`
	DebugListen   string `key:"debug_listen" flag:"debug-listen" check:"optionalAddress" help:"Address of a separate listener with profiles at “/debug/pprof/” and metrics at “/metrics”, both for tokens with the scope “admin” for the whole system; none by default"`
	MetricsListen string `key:"metrics_listen" flag:"metrics-listen" check:"optionalAddress" help:"Address of a separate listener with “/metrics”, “/healthz” and “/readyz”, without authentication or TLS; “--listen” then does not serve “/metrics”. None by default"`
	Data          string `key:"data" flag:"data" default:"./comet-data" check:"notEmpty" help:"Directory of the embedded database and of the first admin token"`
	DatabaseURL   string `key:"database_url" flag:"database-url" check:"postgresURL" secret:"url" help:"PostgreSQL database to use instead of the embedded SQLite, “postgres://…”"`
	NATSURL       string `key:"nats_url" flag:"nats-url" check:"natsURL" secret:"url" help:"NATS servers for several replicas, “nats://…”, separated by commas; without it one server is embedded"`
	SecretKeyFile string `key:"secret_key_file" flag:"secret-key-file" help:"File with the keys that encrypt secrets in the database, one key of 32 bytes in base64 per line: the first key encrypts, every key decrypts. All replicas need the same file. Without it the first start generates a key and writes it to “secret.key” in the data directory"`
	AdminToken    string `key:"admin_token" check:"adminToken" secret:"all" help:"Bootstrap admin token, 32 to 8192 printable ASCII characters; without it the first start generates one. There is no flag, so that it never shows in a process list"`

	NATS      NATS      `key:"nats"`
	Log       Log       `key:"log"`
	TLS       TLS       `key:"tls"`
	HTTP      HTTP      `key:"http"`
	OIDC      OIDC      `key:"oidc"`
	Tracing   Tracing   `key:"tracing"`
	Registry  Registry  `key:"registry"`
	Quotas    Quotas    `key:"quotas"`
	Store     Store     `key:"store"`
	Events    Events    `key:"events"`
	Usage     Usage     `key:"usage"`
	Tasks     Tasks     `key:"tasks"`
	Transport Transport `key:"transport"`
	Webhooks  Webhooks  `key:"webhooks"`
	MCP       MCP       `key:"mcp"`
	Tools     Tools     `key:"tools"`
	Sandbox   Sandbox   `key:"sandbox"`
	Workflows Workflows `key:"workflows"`

	origins map[string]string // key → source of its value
	file    string            // the file that was read, "" for none
}

// NATS configures the message bus.
type NATS struct {
	CredentialsFile string `key:"credentials_file" help:"File with comet's credentials for the servers of “nats_url”: a “.creds” file or an nkey seed"`
	CAFile          string `key:"ca_file" help:"Trusted certificate authorities for NATS servers, in PEM; TLS is then required"`
	CertFile        string `key:"cert_file" help:"Certificate, in PEM, that comet presents to NATS servers, or to agents as the embedded server"`
	KeyFile         string `key:"key_file" help:"Key of that certificate, in PEM"`
	Listen          string `key:"listen" check:"optionalAddress" help:"Address at which the embedded NATS server accepts agents, “host:port”; none by default"`
}

// Log configures logging.
type Log struct {
	Level  string `key:"level" flag:"log-level" default:"info" check:"debug|info|warn|error" help:"Least severe level that is logged: “debug”, “info”, “warn” or “error”"`
	Format string `key:"format" flag:"log-format" default:"auto" check:"logFormat" help:"“text”, “json”, the name of a protocol with a log format of its own, or “auto”: text on a terminal and JSON otherwise"`
	Sample int    `key:"sample" default:"1" check:"1..1000000" help:"Log every n-th successful request; 1 logs all. Failed requests are always logged"`
}

// TLS configures the certificate of the HTTP server.
type TLS struct {
	CertFile string `key:"cert_file" flag:"tls-cert" help:"Certificate of “--listen” with its chain, in PEM; the server then requires TLS 1.2 or newer. A changed file is used for new connections, without a restart"`
	KeyFile  string `key:"key_file" flag:"tls-key" help:"Key of that certificate, in PEM"`
}

// HTTP holds the limits of the HTTP server.
type HTTP struct {
	RequestTimeout  time.Duration `key:"request_timeout" default:"30s" check:"100ms..1h" help:"Timeout of a request"`
	MaxBodyBytes    int64         `key:"max_body_bytes" default:"1048576" check:"1024..1073741824" help:"Largest request body, in bytes"`
	MaxRosterBytes  int64         `key:"max_roster_bytes" default:"8388608" check:"1024..1073741824" help:"Largest roster that can be imported, in bytes"`
	MaxConnections  int           `key:"max_connections" default:"25000" check:"10..10000000" help:"Open connections to the HTTP server, including those of agents; further ones wait"`
	MaxBytes        int64         `key:"max_bytes_in_flight" default:"0" check:"0..1099511627776" help:"Limit of the total bytes of long request bodies and WebSocket frames that are processed at the same time. A further one waits up to 5s; then the request is rejected with 503, or the WebSocket is closed. One token may use at most half of it. Processing a body takes up to eight times its size in memory. 0 is a sixteenth of the memory limit of the container, or 24 MiB without such a limit"`
	RateLimit       RateLimit     `key:"rate_limit"`
	MaxAuthFailures int           `key:"max_auth_failures" default:"10" check:"1..1000000" help:"Invalid tokens and signatures per minute that one address (a /64 for IPv6) may send before it is throttled with 429; tokens that were accepted before are exempt"`
	DrainDelay      time.Duration `key:"drain_delay" default:"0s" check:"0s..1h" help:"How long a stopping server still accepts requests while “/readyz” already returns 503, so that load balancers remove it; then it waits for requests in flight"`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"20s" check:"100ms..1h" help:"How long a stopping server waits for requests in flight"`
}

// RateLimit allows each token Requests per Window.
type RateLimit struct {
	Requests int           `key:"requests" default:"0" check:"0..1000000000" help:"Requests per token and window; 0 means no limit"`
	Window   time.Duration `key:"window" default:"1m" check:"1s..24h" help:"Length of the rate limit window"`
}

// OIDC configures the OpenID Connect issuer whose access tokens are accepted besides comet's own.
type OIDC struct {
	Issuer     string   `key:"issuer" flag:"oidc-issuer" check:"issuer" help:"OpenID Connect issuer whose access tokens (JWTs) are accepted besides comet's own tokens, such as “https://login.example.com/realms/main”; “http://…” only on this machine; none by default"`
	Audience   string   `key:"audience" flag:"oidc-audience" help:"Audience (“aud”) that an access token must have: the name of this server at the issuer, not that of a client. Required with “oidc.issuer”"`
	ScopeClaim string   `key:"scope_claim" default:"scope" help:"Claim with the scopes: a list, or words separated by spaces. Some issuers use “scp” or “roles”"`
	Scopes     []string `key:"scopes" default:"agents:read,agents:write,usage:write,webhooks:write,messages:send,tasks:read,tools:call,workflows:approve" check:"scopes" help:"Values of “oidc.scope_claim” that grant scopes: the name of a scope if the value has the same name, or “scope=value”, such as “admin=comet-admins”. Other values grant nothing"`
	AgentClaim string   `key:"agent_claim" help:"Claim with the id of the agent that an access token is bound to. If it is set, tokens without the claim are rejected; otherwise access tokens are not bound to an agent"`
}

// ScopesToRequest returns the scopes that clients request from the issuer to get a scope of comet: none if
// the claim does not contain scopes.
func (o OIDC) ScopesToRequest(scope models.Scope) []string {
	values := []string{}
	for _, entry := range o.Scopes {
		name, value, _ := strings.Cut(entry, "=")
		if name == string(scope) && (o.ScopeClaim == "scope" || o.ScopeClaim == "scp") {
			values = append(values, cmp.Or(value, name))
		}
	}
	return values
}

// Tracing configures where spans are sent.
type Tracing struct {
	Endpoint      string `key:"endpoint" check:"httpURL" help:"OTLP/HTTP collector for OpenTelemetry traces, such as “http://127.0.0.1:4318”; without it no traces are sent"`
	SamplePercent int    `key:"sample_percent" default:"100" check:"0..100" help:"Percentage of traces started by comet that are sent; traces started elsewhere follow the decision made there"`
}

// Registry holds the optional rules of the registry.
type Registry struct {
	StrictCapabilities bool `key:"strict_capabilities" default:"false" help:"Reject a capability that is neither predefined nor prefixed “custom:”, instead of a warning"`
}

// Quotas limits what one token and its descendants may have created.
type Quotas struct {
	Agents    int `key:"agents" default:"1000" check:"0..1000000" help:"Active agents that one token and its descendants may have created; a token that administers the whole system is subject only to quotas.upstreams"`
	Tokens    int `key:"tokens" default:"100" check:"0..10000" help:"Tokens, not counting revoked ones, that one token and its descendants may have created"`
	Webhooks  int `key:"webhooks" default:"100" check:"0..1000" help:"Webhooks that one token and its descendants may have created"`
	Upstreams int `key:"upstreams" default:"100" check:"0..1000" help:"Upstreams that one token and its descendants may have created over the API; it also applies to tokens that administer the whole system, because only these can create upstreams"`
}

// Store sizes the database connections.
type Store struct {
	ReadConnections int `key:"read_connections" default:"4" check:"1..64" help:"Read connections to SQLite"`
	MaxConnections  int `key:"max_connections" default:"20" check:"2..10000" help:"Connections to PostgreSQL"`
}

// Events configures the event feed.
type Events struct {
	Retention    time.Duration `key:"retention" default:"720h" check:"1h..87600h" help:"How long events are kept"`
	PollInterval time.Duration `key:"poll_interval" default:"500ms" check:"10ms..1m" help:"How often the relay polls for events without a wake-up"`
}

// Usage configures the ledger.
type Usage struct {
	Retention time.Duration `key:"retention" default:"9600h" check:"48h..87600h" help:"How long recorded usage is kept; older days can be neither read nor verified"`
}

// Tasks configures tasks.
type Tasks struct {
	Retention time.Duration `key:"retention" default:"720h" check:"1h..87600h" help:"How long a finished task is kept"`
}

// Transport configures agents' connections.
type Transport struct {
	MaxConnections int           `key:"max_connections" default:"20000" check:"1..10000000" help:"Agents' connections per process; further ones are rejected with 503"`
	Heartbeat      time.Duration `key:"heartbeat" default:"15s" check:"1s..10m" help:"Interval of heartbeats on agents' connections; an agent is offline after three missed ones, but not before 45s"`
	ReturnGrace    time.Duration `key:"return_grace" default:"10s" check:"1s..10m" help:"How long a worker whose connection has ended keeps its tasks before other workers get them"`
	RedeliverAfter time.Duration `key:"redeliver_after" default:"30s" check:"1s..1h" help:"When a message that was delivered by long poll and not acknowledged is delivered again"`

	ProtocolSettings
}

// Webhooks configures deliveries.
type Webhooks struct {
	AllowNetworks []string      `key:"allow_networks" flag:"webhooks-allow-networks" check:"networks" help:"Non-public addresses and ranges to which webhooks may be delivered, such as “127.0.0.0/8”; a list in the file, elsewhere separated by commas"`
	HTTPSOnly     bool          `key:"https_only" default:"false" help:"Reject webhooks whose URL is not “https://…”"`
	Timeout       time.Duration `key:"timeout" default:"15s" check:"1s..1m" help:"Timeout of one delivery attempt"`
	Retention     time.Duration `key:"retention" default:"720h" check:"1h..87600h" help:"How long a finished delivery is kept and can be redelivered"`
}

// MCP configures the MCP server and its upstreams.
type MCP struct {
	Servers     string `key:"servers" flag:"mcp-servers" help:"File that lists the upstream MCP servers, as desktop clients store it: JSON with “mcpServers”. Changes are applied at once"`
	AddCommands bool   `key:"add_commands" default:"true" help:"Let admins add local programs as MCP servers over the API; otherwise they come from the file only"`
	Parent      string `key:"parent" default:"orch-my-team" check:"notEmpty" help:"Parent agent of registered MCP servers"`
	Sphere      int    `key:"sphere" default:"8" check:"1..9" help:"Sphere of the parent agent"`

	Origins              []string      `key:"origins" help:"Origins of web pages that may call “/mcp”, such as “https://app.example.com”"`
	Hosts                []string      `key:"hosts" help:"Host names by which “/mcp” may be called; an empty list allows any, except names of other machines on a loopback address"`
	PublicURL            string        `key:"public_url" check:"httpURL" help:"URL at which MCP clients reach the server, if it differs from their Host header"`
	AuthorizationServers []string      `key:"authorization_servers" help:"Authorization servers at which MCP clients can get a token, besides “oidc.issuer”; comet itself creates tokens with “comet tokens create”"`
	MaxBodyBytes         int64         `key:"max_body_bytes" default:"4194304" check:"1024..1073741824" help:"Largest request to “/mcp”, in bytes"`
	TasksAfter           time.Duration `key:"tasks_after" default:"2s" check:"1ms..1h" help:"How long a tool call of an MCP client with the Tasks extension runs before it becomes a task"`
}

// Tools configures how tools are listed, searched and watched.
type Tools struct {
	Names          string        `key:"names" flag:"tool-names" default:"portable" check:"portable|documented" help:"How tools are listed: “portable” is “server__tool”, which every client accepts, “documented” is “server:tool”. Both can be called"`
	Expose         string        `key:"expose" default:"meta" check:"meta|all" help:"What “tools/list” shows: “meta” is comet's own tools and the pinned ones, “all” is every tool"`
	Pinned         []string      `key:"pinned" help:"Further tools to list, such as “filesystem:read_file” or “memory:*”"`
	TrustChanges   bool          `key:"trust_changes" default:"false" help:"Accept a changed tool definition instead of hiding the tool until it is approved"`
	QuarantineNew  bool          `key:"quarantine_new" flag:"quarantine-new-upstreams" default:"false" help:"Hide the tools of MCP servers that were added over the API until they are approved"`
	WaitForAudit   bool          `key:"wait_for_audit" default:"false" help:"Return the result of a call after its audit record is written; otherwise records are written up to 100ms later"`
	AuditRetention time.Duration `key:"audit_retention" default:"720h" check:"1h..87600h" help:"How long the audit log of tool calls is kept"`
	NoCache        bool          `key:"no_cache" flag:"no-cache" default:"false" help:"Do not cache search results and compiled code; otherwise 100 of each are cached"`

	Embeddings Embeddings `key:"embeddings"`
}

// Embeddings configures the embeddings server of tool search.
type Embeddings struct {
	URL   string `key:"url" check:"httpURL" help:"Server with OpenAI's “/v1/embeddings” API, such as “http://127.0.0.1:11434”; without it tool search compares words only"`
	Model string `key:"model" default:"text-embedding-3-small" help:"Model of the embeddings server"`
	Key   string `key:"key" secret:"all" help:"Bearer token of the embeddings server"`
}

// Sandbox limits the code that clients run.
type Sandbox struct {
	Timeout    time.Duration `key:"timeout" default:"30s" check:"100ms..1h" help:"Default time limit of code"`
	MaxTimeout time.Duration `key:"max_timeout" default:"5m" check:"100ms..1h" help:"Longest time limit that code may request"`
	MemoryMB   int           `key:"memory_mb" default:"512" check:"16..65536" help:"Default and largest memory limit of code, in MiB"`
	Running    int           `key:"running" default:"0" check:"0..1000" help:"How many executions run at the same time; 0 is twice the number of processors"`
	Warm       int           `key:"warm" default:"2" check:"0..100" help:"Idle processes kept ready for code"`
	ReadPaths  []string      `key:"read_paths" help:"Files and directories outside the data directory that code may request to read; none by default"`
}

// Workflows limits the workflows of all tokens.
type Workflows struct {
	MaxActive int `key:"max_active" default:"10000" check:"1..10000000" help:"Workflows of all tokens that have not ended; further ones are rejected"`
}
