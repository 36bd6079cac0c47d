// Package gateway is the MCP door (AgentCards): MCP clients of every revision come in over
// HTTP or stdio and find the tools of all upstreams behind a few of comet's own, which search
// them, run code over them, and hand work to agents.
//
// A call goes one way, whatever it came in by (call.go): its name is looked up in the
// catalogue, the policy of the token decides, the ledger is asked, the upstream does it, and
// the audit trail keeps who, what and how it ended. Code that runs in the sandbox calls tools
// the same way, each call on its own.
package gateway
