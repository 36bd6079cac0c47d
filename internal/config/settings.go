package config

import (
	"fmt"
	"strings"
	"time"

	"comet/internal/input"
	"comet/internal/redact"
)

// setting is one configurable value. The loader, the flags, the printer and the documentation are
// made from the table in settings().
type setting struct {
	key  string // path in the file, parts joined with dots
	flag string // "" where there is no flag
	help string // one sentence without its full stop
	def  any    // its type is the setting's type
	// check returns what is wrong with a value, as in "must be …", or "".
	check func(value any) string
	// mask returns the value to show; nil for one that is no secret.
	mask func(string) string
}

// env returns the variable that sets the key.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
)

// settings returns the table, in display order.
func settings() []setting {
	return []setting{
		{key: "listen", flag: "listen", def: "127.0.0.1:8080", check: address,
			help: "Address to listen on, `host:port`; port 0 picks a free one and prints it"},
		{key: "data", flag: "data", def: "./comet-data", check: notEmpty,
			help: "Directory of the embedded database and of the first admin token"},
		{key: "database_url", flag: "database-url", def: "", check: postgresURL, mask: redact.URL,
			help: "PostgreSQL database to use instead of the embedded SQLite, `postgres://…`"},
		{key: "nats_url", flag: "nats-url", def: "", check: natsURL, mask: redact.URL,
			help: "NATS servers for several replicas, `nats://…`, separated by commas; without it one server is embedded"},
		{key: "admin_token", def: "", check: adminToken, mask: maskAll,
			help: "Bootstrap admin token, 32 to 512 printable ASCII characters; without it the first start makes one. There is no flag, so that it never shows in a process list"},

		{key: "nats.credentials_file", def: "",
			help: "File with comet's credentials for the servers of `nats_url`: a `.creds` file or an nkey seed"},
		{key: "nats.ca_file", def: "",
			help: "Trusted certificate authorities for NATS servers, in PEM; TLS is then required"},
		{key: "nats.cert_file", def: "",
			help: "Certificate, in PEM, that comet presents to NATS servers, or to agents as the embedded server"},
		{key: "nats.key_file", def: "",
			help: "Key of that certificate, in PEM"},
		{key: "nats.listen", def: "", check: optionalAddress,
			help: "Address at which the embedded NATS server accepts agents, `host:port`; none by default"},

		{key: "log.level", flag: "log-level", def: "info", check: oneOf("debug", "info", "warn", "error"),
			help: "Least severe level that is logged: `debug`, `info`, `warn` or `error`"},
		{key: "log.format", flag: "log-format", def: "auto", check: oneOf("auto", "text", "json", "v5"),
			help: "`text`, `json`, `v5`, which is that of PROTOCOL_V5, or `auto`: text on a terminal and JSON otherwise"},
		{key: "log.sample", def: 1, check: between(1, 1_000_000),
			help: "Log every n-th successful request; 1 logs all. Failed requests are always logged"},

		{key: "http.request_timeout", def: 30 * time.Second, check: between(100*time.Millisecond, time.Hour),
			help: "Timeout of a request"},
		{key: "http.max_body_bytes", def: mib, check: between(kib, gib),
			help: "Largest request body, in bytes"},
		{key: "http.max_roster_bytes", def: 8 * mib, check: between(kib, gib),
			help: "Largest roster that can be imported, in bytes"},
		{key: "http.rate_limit.requests", def: 0, check: between(0, 1_000_000_000),
			help: "Requests per token and window; 0 means no limit"},
		{key: "http.rate_limit.window", def: time.Minute, check: between(time.Second, 24*time.Hour),
			help: "Length of the rate limit window"},
		{key: "http.drain_delay", def: time.Duration(0), check: between(0, time.Hour),
			help: "How long a stopping server still accepts requests while `/readyz` already answers 503, so that load balancers remove it; then it waits for requests in flight"},
		{key: "http.shutdown_timeout", def: 20 * time.Second, check: between(100*time.Millisecond, time.Hour),
			help: "How long a stopping server waits for requests in flight"},

		{key: "tracing.endpoint", def: "", check: httpURL,
			help: "OTLP/HTTP collector for OpenTelemetry traces, such as `http://127.0.0.1:4318`; without it no traces are sent"},
		{key: "tracing.sample_percent", def: 100, check: between(0, 100),
			help: "Percentage of traces started by comet that are sent; traces started elsewhere follow the decision made there"},

		{key: "registry.strict_capabilities", def: false,
			help: "Refuse a capability that is neither predefined nor prefixed `custom:`, instead of a warning"},

		{key: "store.read_connections", def: 4, check: between(1, 64),
			help: "Read connections to SQLite"},
		{key: "store.max_connections", def: 20, check: between(2, 10_000),
			help: "Connections to PostgreSQL"},

		{key: "events.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long events are kept"},
		{key: "events.poll_interval", def: 500 * time.Millisecond, check: between(10*time.Millisecond, time.Minute),
			help: "How often the relay polls for events without a wake-up"},

		{key: "usage.retention", def: 400 * 24 * time.Hour, check: between(48*time.Hour, 10*365*24*time.Hour),
			help: "How long recorded usage is kept; older days can be neither read nor verified"},

		{key: "tasks.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long a finished task is kept"},

		{key: "transport.max_connections", def: 20_000, check: between(1, 10_000_000),
			help: "Connections of agents that one process holds at a time; the next is refused with 503"},
		{key: "transport.max_auth_failures", def: 10, check: between(1, 1_000_000),
			help: "Invalid tokens and signatures per minute that one address (a /64 for IPv6) may send to the agents' endpoints before it is throttled"},
		{key: "transport.heartbeat", def: 15 * time.Second, check: between(time.Second, 10*time.Minute),
			help: "Interval of heartbeats on agents' connections; an agent is offline after three missed ones, but not before 45s"},
		{key: "transport.redeliver_after", def: 30 * time.Second, check: between(time.Second, time.Hour),
			help: "When a message that was delivered by long poll and not acknowledged is delivered again"},
		{key: "transport.v5_listen", flag: "v5-listen", def: "", check: optionalAddress,
			help: "Address of the TCP listener for PROTOCOL_V5, one message per line, such as `127.0.0.1:7005`; none without it. From another machine every message must be signed"},
		{key: "transport.v5_replay_window", def: 24 * time.Hour, check: between(time.Minute, 30*24*time.Hour),
			help: "How long a signed PROTOCOL_V5 message is remembered, so that it is not accepted twice"},

		{key: "webhooks.allow_networks", flag: "webhooks-allow-networks", def: []string{}, check: networks,
			help: "Non-public addresses and ranges to which webhooks may be delivered, such as `127.0.0.0/8`; a list in the file, elsewhere separated by commas"},
		{key: "webhooks.https_only", def: false,
			help: "Refuse webhooks whose URL is not `https://…`"},
		{key: "webhooks.timeout", def: 15 * time.Second, check: between(time.Second, time.Minute),
			help: "Timeout of one delivery attempt"},
		{key: "webhooks.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long a finished delivery is kept and can be redelivered"},

		{key: "mcp.servers", flag: "mcp-servers", def: "",
			help: "File that lists the upstream MCP servers, as desktop clients store it: JSON with `mcpServers`. Changes are applied at once"},
		{key: "mcp.add_commands", def: true,
			help: "Let admins add local programs as MCP servers over the API; otherwise they come from the file only"},
		{key: "mcp.parent", def: "orch-my-team", check: notEmpty,
			help: "Parent agent of registered MCP servers"},
		{key: "mcp.sphere", def: 8, check: between(1, 9),
			help: "Sphere of that agent"},
		{key: "mcp.origins", def: []string{},
			help: "Origins of web pages that may call `/mcp`, such as `https://app.example.com`"},
		{key: "mcp.hosts", def: []string{},
			help: "Host names by which `/mcp` may be called; an empty list allows any, except names of other machines on a loopback address"},
		{key: "mcp.public_url", def: "", check: httpURL,
			help: "How MCP clients reach the server, where it is not as they say themselves"},
		{key: "mcp.authorization_servers", def: []string{},
			help: "Where MCP clients are sent for a token; comet makes its own with `comet tokens create`"},
		{key: "mcp.max_body_bytes", def: 4 * mib, check: between(kib, gib),
			help: "Largest request to `/mcp`, in bytes"},

		{key: "tools.names", flag: "tool-names", def: "portable", check: oneOf("portable", "documented"),
			help: "How tools are listed: `portable` is `server__tool`, which every client takes, `documented` is `server:tool`. Both can be called"},
		{key: "tools.expose", def: "meta", check: oneOf("meta", "all"),
			help: "What `tools/list` shows: comet's own tools and those that are pinned, or all"},
		{key: "tools.pinned", def: []string{},
			help: "Tools that are listed too, such as `filesystem:read_file` or `memory:*`"},
		{key: "tools.trust_changes", def: false,
			help: "Accept a changed tool definition instead of hiding the tool until it is approved"},
		{key: "tools.wait_for_audit", def: false,
			help: "Answer a call when its line of the audit trail is written; otherwise that is a tenth of a second later"},
		{key: "tools.audit_retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long it can be seen who called which tool"},
		{key: "tools.no_cache", flag: "no-cache", def: false,
			help: "Remember neither the answers of the last searches nor the code that was compiled last; otherwise 100 of each are"},
		{key: "tools.embeddings.url", def: "", check: httpURL,
			help: "Service that makes vectors of texts, `/v1/embeddings` as OpenAI has it, such as `http://127.0.0.1:11434`; the search goes by words alone without it"},
		{key: "tools.embeddings.model", def: "text-embedding-3-small",
			help: "Model it is asked for"},
		{key: "tools.embeddings.key", def: "", mask: maskAll,
			help: "Bearer token for it"},

		{key: "sandbox.timeout", def: 30 * time.Second, check: between(100*time.Millisecond, time.Hour),
			help: "How long code may run that does not ask for another time"},
		{key: "sandbox.max_timeout", def: 5 * time.Minute, check: between(100*time.Millisecond, time.Hour),
			help: "Longest time code may ask for"},
		{key: "sandbox.memory_mb", def: 512, check: between(16, 65_536),
			help: "Memory code may use, in MiB, and the most it may ask for"},
		{key: "sandbox.running", def: 0, check: between(0, 1000),
			help: "How many codes run at a time; 0 is twice the processors"},
		{key: "sandbox.warm", def: 2, check: between(0, 100),
			help: "Processes that are kept ready for code"},
		{key: "sandbox.read_paths", def: []string{},
			help: "Files and directories outside the data directory that code may ask to read; none by default"},
	}
}

// byKey returns the table by key.
func byKey() map[string]setting {
	table := map[string]setting{}
	for _, s := range settings() {
		table[s.key] = s
	}
	return table
}

// typeName returns the type's name in messages and documentation.
func (s setting) typeName() string {
	switch s.def.(type) {
	case bool:
		return "true or false"
	case int, int64:
		return "a whole number"
	case time.Duration:
		return "a duration such as 30s, 5m or 24h"
	case []string:
		return "a list such as 127.0.0.1, 10.0.0.0/8"
	default:
		return "text"
	}
}

// show returns the value as text, masked if it is a secret.
func (s setting) show(value any) string {
	text := ""
	switch v := value.(type) {
	case time.Duration:
		text = input.Duration(v)
	case []string:
		text = strings.Join(v, ", ")
	default:
		text = fmt.Sprint(v)
	}
	if s.mask != nil && text != "" {
		return s.mask(text)
	}
	return text
}

func maskAll(string) string { return redact.Mask }
