// Package api is the REST door: it turns HTTP requests into calls of the core
// and what comes back into answers. It holds no rules of the domain. Handlers
// return errors, one function writes them as problem documents (RFC 9457), and
// nothing is sent before it is encoded. router.go shows the whole chain.
package api

//	@title			comet
//	@version		1.0.0
//	@description	comet is a control plane for AI agents. This is its REST door: the registry of who the agents are, in four levels from L0 (NOVA, the system) to L3 (assistants), the ledger of what they may spend, the tasks they do, the webhooks that tell others what happens, and the tokens that may ask.
//	@description
//	@description	Errors are problem documents (RFC 9457), except those of the agent connections, which are messages of the protocol: `title` is the rule's short text, `code` its stable name, `errors[]` names each bad field by JSON pointer. Every answer carries `X-Request-Id`. Reads carry a strong `ETag`; changes of agents take `If-Match`. POST requests take `Idempotency-Key` where they say so.
//	@contact.name	The comet project
//	@license.name	Apache-2.0
//	@license.url	https://www.apache.org/licenses/LICENSE-2.0
//	@host			127.0.0.1:8080
//	@BasePath		/
//	@schemes		http
//	@tag.name		agents
//	@tag.description	The registry's agents.
//	@tag.name		usage
//	@tag.description	What agents use: facts, reservations, history.
//	@tag.name		budgets
//	@tag.description	What operators do about budgets: additional ones for a time, and resets.
//	@tag.name		hierarchy
//	@tag.description	The tree the agents form.
//	@tag.name		roster
//	@tag.description	The whole organisation as one document.
//	@tag.name		tokens
//	@tag.description	Who may ask, and for what.
//	@tag.name		tasks
//	@tag.description	Work that agents do: tasks, the sessions they belong to, and the workers that take them.
//	@tag.name		tools
//	@tag.description	Tools of MCP servers: upstreams, search, calls, and who called what.
//	@tag.name		agent connections
//	@tag.description	How agents receive tasks and report on them, in messages of the envelope protocol. Failures are `error` envelopes, not problem documents.
//	@tag.name		webhooks
//	@tag.description	Who hears of what happens.
//	@tag.name		events
//	@tag.description	What happens, as it happens.
//	@tag.name		service
//	@tag.description	The server itself.
//	@securityDefinitions.apikey	BearerAuth
//	@in				header
//	@name			Authorization
//	@description	A token of `POST /api/v1/tokens`, sent as `Authorization: Bearer <token>`.
