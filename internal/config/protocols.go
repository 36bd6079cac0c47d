package config

import "time"

// ProtocolSettings are the settings of single protocols. The other files of this package name no
// protocol.
type ProtocolSettings struct {
	V5Listen           string        `key:"v5_listen" flag:"v5-listen" check:"socketAddress" help:"Address of the listener for PROTOCOL_V5, one message per line: a TCP address such as “127.0.0.1:7005”, or a Unix socket such as “unix:/run/comet/v5.sock”; none without it. From another machine every message must be signed. On a Unix socket, programs that run as the server's user or as root need no token"`
	V5SocketMode       string        `key:"v5_socket_mode" flag:"v5-socket-mode" default:"0600" check:"0600|0660|0666" help:"Permissions of the Unix socket of “--v5-listen”. Programs of other users that can connect need a token, as on a loopback address"`
	V5SelfRegistration bool          `key:"v5_self_registration" flag:"v5-self-registration" default:"false" help:"Let programs on this machine register as agents on “--v5-listen” without a token. Every local user can then submit tasks, and can receive tasks, with their parameters, that name such an agent or whose requirements no other agent meets. These agents cannot call tools. Without it, an agent needs a token, a key or the Unix socket"`
	V5ReplayWindow     time.Duration `key:"v5_replay_window" default:"24h" check:"1m..720h" help:"How long a signed PROTOCOL_V5 message is remembered, so that it is not accepted twice"`
}

// logFormats are the formats of the log: those that comet has, then those of protocols.
func logFormats() []string { return []string{"auto", "text", "json", "v5"} }
