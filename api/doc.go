// Package api is the REST API: it turns HTTP requests into calls of the core and their results into
// responses. It contains no rules of the domain. Handlers return errors, one function writes them
// as problem documents (RFC 9457), and a response is encoded before its first byte is sent.
// router.go lists the middleware chain and all routes.
//
// The annotations of a handler describe its operation. tools/openapigen/conventions.go adds what
// operations have in common: their id (the name of the handler), the tag and the parameters of
// their path, JSON bodies, entity tags of reads, the pages of lists, the security and the failures of
// endpoints for agents, and errors that any such operation can have.
package api

//	@title			comet
//	@version		1.0.0
//	@description	comet is a control plane for AI agents. This REST API manages the registry of agents (four levels, from L0, the system agent NOVA, to L3, assistants), the ledger of their token budgets, the tasks they execute, webhooks that deliver events, and the tokens that authenticate requests.
//	@description
//	@description	Errors are problem documents (RFC 9457): `code` is a stable identifier, `title` a short text for it, `detail` explains this occurrence, and `errors[]` names each invalid field by JSON pointer. Only the endpoints for agent connections return errors as messages of their protocol. Every response carries `X-Request-Id`. Responses to reads carry a strong `ETag`; changes of agents, webhooks, tokens, schedules, tool policies and upstreams accept `If-Match`. POST requests accept `Idempotency-Key` where documented.
//	@contact.name	The comet project
//	@license.name	Apache-2.0
//	@license.url	https://www.apache.org/licenses/LICENSE-2.0
//	@host			127.0.0.1:8080
//	@BasePath		/
//	@schemes		http
//	@tag.name		agents
//	@tag.description	Create, read, update and delete the agents of the registry.
//	@tag.name		usage
//	@tag.description	Record the tokens that agents use, reserve tokens before use, and read the history.
//	@tag.name		budgets
//	@tag.description	Add to an agent's budget for a limited time, and reset the usage of the day.
//	@tag.name		hierarchy
//	@tag.description	Read the tree of agents.
//	@tag.name		roster
//	@tag.description	Export and import all agents as one document.
//	@tag.name		tokens
//	@tag.description	Manage access tokens, their scopes and policies, and the signing keys of agents.
//	@tag.name		tasks
//	@tag.description	Submit and follow tasks, group them in sessions, and see the workers that execute them.
//	@tag.name		publications
//	@tag.description	Publish events to the agents that subscribe to them, and follow their delivery.
//	@tag.name		schedules
//	@tag.description	Submit tasks and start workflows at given times.
//	@tag.name		tools
//	@tag.description	List, search and call the tools of MCP servers, manage these servers, and read the audit log of calls.
//	@tag.name		workflows
//	@tag.description	Execute tool calls, code and tasks of agents with dependencies, and decide on their checkpoints.
//	@tag.name		agent connections
//	@tag.description	Endpoints through which agents receive tasks and report results, in messages of the envelope protocol. Failures are `error` envelopes, not problem documents.
//	@tag.name		webhooks
//	@tag.description	Subscribe URLs to events and inspect their deliveries.
//	@tag.name		events
//	@tag.description	Stream events as they happen.
//	@tag.name		service
//	@tag.description	Health, metrics and description of the server.
//	@securityDefinitions.apikey	BearerAuth
//	@in				header
//	@name			Authorization
//	@description	A token from `POST /api/v1/tokens`, sent as `Authorization: Bearer <token>`.
//	@securityDefinitions.apikey	LoginCookie
//	@in				cookie
//	@name			__Host-comet
//	@description	The cookie of a browser login (`POST /ui/session`), with the rights of the login's token. Without TLS, on the same machine, its name is `comet_session`. Requests must come from a page of this server, and bodies must be `application/json`. An `Authorization` header takes precedence.
