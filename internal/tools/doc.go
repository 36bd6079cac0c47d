// Package tools is what becomes of a call of a tool, whichever door it came in by: the tools
// of all upstreams and a few of comet's own, which search them, run code over them, and hand
// work to agents (AgentCards).
//
// A call goes one way (call.go): its name is looked up in the catalogue, the policy of the
// token decides, the ledger is asked, the upstream does it, and the audit trail keeps who,
// what and how it ended. Code that runs in the sandbox calls tools the same way, each call on
// its own; so does the agent that each upstream is, for tasks of the orchestrator.
package tools
