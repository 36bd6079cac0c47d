package config

import (
	"fmt"
	"strings"
	"time"

	"comet/internal/redact"
	"comet/internal/words"
)

// setting is one thing that can be configured. The table in settings() is what
// the loader, the flags, the printer and the documentation are made from.
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

// env is the variable that sets the key.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
)

// settings returns the table, in the order in which it is shown.
func settings() []setting {
	return []setting{
		{key: "listen", flag: "listen", def: "127.0.0.1:8080", check: address,
			help: "Address to listen on, `host:port`; port 0 picks a free one and prints it"},
		{key: "data", flag: "data", def: "./comet-data", check: notEmpty,
			help: "Directory of the embedded database and of the first admin token"},
		{key: "database_url", flag: "database-url", def: "", check: postgresURL, mask: redact.URL,
			help: "PostgreSQL to use instead of the embedded SQLite, `postgres://…`"},
		{key: "nats_url", flag: "nats-url", def: "", check: natsURL, mask: redact.URL,
			help: "NATS servers for several replicas, `nats://…`, separated by commas; without it one server is embedded"},
		{key: "admin_token", def: "", check: adminToken, mask: maskAll,
			help: "Bootstrap admin token, 32 to 512 printable ASCII characters; without it the first start makes one. There is no flag, so that it never shows in a process list"},

		{key: "nats.credentials_file", def: "",
			help: "File that says who comet is to the servers of `nats_url`: a `.creds` file or an nkey's seed"},
		{key: "nats.ca_file", def: "",
			help: "Authorities, in PEM, whose certificates of NATS servers are believed; with it there is no connection without TLS"},
		{key: "nats.cert_file", def: "",
			help: "Certificate, in PEM, that comet shows to NATS servers, or as the embedded server to agents"},
		{key: "nats.key_file", def: "",
			help: "Key of that certificate, in PEM"},
		{key: "nats.listen", def: "", check: optionalAddress,
			help: "Address at which the embedded NATS server takes connections of agents, `host:port`; none is open without it"},

		{key: "log.level", flag: "log-level", def: "info", check: oneOf("debug", "info", "warn", "error"),
			help: "Least severe level that is logged: `debug`, `info`, `warn` or `error`"},
		{key: "log.format", flag: "log-format", def: "auto", check: oneOf("auto", "text", "json", "v5"),
			help: "`text`, `json`, `v5`, which is that of PROTOCOL_V5, or `auto`: text on a terminal and JSON otherwise"},
		{key: "log.sample", def: 1, check: between(1, 1_000_000),
			help: "Log every n-th successful request; 1 logs all. Failed requests are always logged"},

		{key: "http.request_timeout", def: 30 * time.Second, check: between(100*time.Millisecond, time.Hour),
			help: "Longest time a request may take"},
		{key: "http.max_body_bytes", def: mib, check: between(kib, gib),
			help: "Largest request body, in bytes"},
		{key: "http.max_roster_bytes", def: 8 * mib, check: between(kib, gib),
			help: "Largest roster that can be imported, in bytes"},
		{key: "http.rate_limit.requests", def: 0, check: between(0, 1_000_000_000),
			help: "Requests one token may make in a window; 0 is no limit"},
		{key: "http.rate_limit.window", def: time.Minute, check: between(time.Second, 24*time.Hour),
			help: "Length of that window"},
		{key: "http.drain_delay", def: time.Duration(0), check: between(0, time.Hour),
			help: "How long a server that is told to stop still takes requests, while `/readyz` says 503 already and load balancers turn away; then it waits for those in flight"},
		{key: "http.shutdown_timeout", def: 20 * time.Second, check: between(100*time.Millisecond, time.Hour),
			help: "Longest wait for requests in flight when the server stops"},

		{key: "tracing.endpoint", def: "", check: httpURL,
			help: "Collector that takes OpenTelemetry traces by OTLP over HTTP, such as `http://127.0.0.1:4318`; none are sent without it"},
		{key: "tracing.sample_percent", def: 100, check: between(0, 100),
			help: "Part of the traces that begin at comet and are sent; those that began elsewhere are sent as it was decided there"},

		{key: "registry.strict_capabilities", def: false,
			help: "Refuse a capability that is neither predefined nor prefixed `custom:`, instead of a warning"},

		{key: "store.read_connections", def: 4, check: between(1, 64),
			help: "Connections that read from SQLite"},
		{key: "store.max_connections", def: 20, check: between(2, 10_000),
			help: "Connections to PostgreSQL"},

		{key: "events.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long an event can be read again"},
		{key: "events.poll_interval", def: 500 * time.Millisecond, check: between(10*time.Millisecond, time.Minute),
			help: "How often the relay looks for events it was not woken for"},

		{key: "usage.retention", def: 400 * 24 * time.Hour, check: between(48*time.Hour, 10*365*24*time.Hour),
			help: "How long recorded usage is kept; older days can neither be read nor verified"},

		{key: "tasks.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long a task that has ended can be seen"},

		{key: "links.max_lines", def: 20_000, check: between(1, 10_000_000),
			help: "Lines to agents that one process holds at a time; the next is refused with 503"},
		{key: "links.max_failures", def: 10, check: between(1, 1_000_000),
			help: "Tokens, and signatures, that are not accepted and that one address (a /64 for IPv6) may show at the door of the agents in a minute; then it has to wait"},
		{key: "links.heartbeat", def: 15 * time.Second, check: between(time.Second, 10*time.Minute),
			help: "How often a line to an agent has to show that it lives; an agent is offline after three of them without a sign, but not before 45s"},
		{key: "links.redeliver_after", def: 30 * time.Second, check: between(time.Second, time.Hour),
			help: "When an agent that asks for its inbox is told again what it did not acknowledge"},
		{key: "links.v5_listen", flag: "v5-listen", def: "", check: optionalAddress,
			help: "Where PROTOCOL_V5 is taken over TCP, a message a line, such as `127.0.0.1:7005`; nowhere without it. From another machine every line has to be signed"},
		{key: "links.v5_replay_window", def: 24 * time.Hour, check: between(time.Minute, 30*24*time.Hour),
			help: "For how long a signed line of PROTOCOL_V5 is remembered, so that it is not taken a second time"},

		{key: "webhooks.allow_networks", flag: "webhooks-allow-networks", def: []string{}, check: networks,
			help: "Addresses and ranges that webhooks may be delivered to although they are not public, such as `127.0.0.0/8`; a list in the file, elsewhere separated by commas"},
		{key: "webhooks.https_only", def: false,
			help: "Refuse webhooks whose URL is not `https://…`"},
		{key: "webhooks.timeout", def: 15 * time.Second, check: between(time.Second, time.Minute),
			help: "Longest time one attempt to deliver may take"},
		{key: "webhooks.retention", def: 720 * time.Hour, check: between(time.Hour, 10*365*24*time.Hour),
			help: "How long a delivery that has ended can be seen and redelivered"},
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

// typeName is how a message or the documentation calls the setting's type.
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

// show is the value as text, masked where it is a secret.
func (s setting) show(value any) string {
	text := ""
	switch v := value.(type) {
	case time.Duration:
		text = words.Duration(v)
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
