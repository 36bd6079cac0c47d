package config

import "time"

// ProtocolSettings are the settings of single protocols. The other files of this package name no
// protocol.
type ProtocolSettings struct {
	V5Listen           string        `key:"v5_listen" flag:"v5-listen" check:"optionalAddress" help:"Address of the TCP listener for PROTOCOL_V5, one message per line, such as “127.0.0.1:7005”; none without it. From another machine every message must be signed"`
	V5SelfRegistration bool          `key:"v5_self_registration" flag:"v5-self-registration" default:"false" help:"Let programs on this machine register as agents on “--v5-listen” without a token. Every local user then can receive tasks, with their parameters, and submit some. Without it, an agent needs a token or a key"`
	V5ReplayWindow     time.Duration `key:"v5_replay_window" default:"24h" check:"1m..720h" help:"How long a signed PROTOCOL_V5 message is remembered, so that it is not accepted twice"`
}

// logFormats are the formats of the log: those that comet has, then those of protocols.
func logFormats() []string { return []string{"auto", "text", "json", "v5"} }
