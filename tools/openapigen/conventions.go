package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// addConventions adds what all operations of a kind have in common, so that annotations need not
// repeat it. An annotation takes precedence.
func (n *normaliser) addConventions(where string, op *openapi3.Operation) {
	if failuresOf(op) != "" {
		addConnectionParameters(where, op)
		return
	}
	addPathParameters(where, op)
	addBodyFailure(op)
	ok := op.Responses.Value("200")
	if created := op.Responses.Value("201"); created != nil && ok == nil {
		addHeaders(created.Value, "Location")
	}
	n.addTaskResponses(where, op)
	if scopes, _ := op.Extensions["x-required-scopes"].([]string); slices.Contains(scopes, "usage:write") {
		addResponse(op, "403", "The token lacks the scope, its agent is inactive, or it is bound to another agent")
	}
	if op.Parameters.GetByInAndName(openapi3.ParameterInQuery, "cursor") != nil || n.hasMember(ok, "next_cursor") {
		addPages(op, ok)
	}
	if ok != nil && strings.HasPrefix(where, "GET ") && (isStatic(where) || secured(op) && isConditional(ok.Value)) {
		addHeaders(ok.Value, "ETag")
		addParameter(op, len(op.Parameters), ifNoneMatch())
		addResponse(op, "304", "Not modified; your copy is current")
	}
	if slices.ContainsFunc(op.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.In == openapi3.ParameterInQuery }) {
		addResponse(op, "400", "A query parameter is unknown or invalid")
	}
	if op.Parameters.GetByInAndName(openapi3.ParameterInHeader, "Idempotency-Key") != nil {
		for status, response := range op.Responses.Map() {
			if strings.HasPrefix(status, "2") {
				addHeaders(response.Value, "Idempotency-Replayed")
			}
		}
		addResponse(op, "409", "The Idempotency-Key was used with a different request")
	}
}

// addTag adds the tag of an operation, which follows from its path.
func addTag(where string, op *openapi3.Operation) {
	path := where[strings.Index(where, "/"):]
	for _, t := range []struct{ prefix, tag string }{
		{"/api/v1/agents/{agent_id}/ancestors", "hierarchy"},
		{"/api/v1/agents/{agent_id}/budget", "budgets"}, {"/api/v1/agents/{agent_id}/usage/reset", "budgets"},
		{"/api/v1/agents/{agent_id}/key", "tokens"}, {"/api/v1/tokens", "tokens"}, {"/api/v1/me", "tokens"}, {"/api/v1/logins", "tokens"},
		{"/api/v1/agents/{agent_id}/usage", "usage"}, {"/api/v1/agents/{agent_id}/reservations", "usage"}, {"/api/v1/ledger", "usage"},
		{"/api/v1/agents", "agents"}, {"/api/v1/hierarchy", "hierarchy"}, {"/api/v1/roster", "roster"},
		{"/api/v1/tasks", "tasks"}, {"/api/v1/sessions", "tasks"}, {"/api/v1/workers", "tasks"}, {"/api/v1/publications", "publications"}, {"/api/v1/dead-letters", "publications"}, {"/api/v1/schedules", "schedules"},
		{"/api/v1/tools", "tools"}, {"/api/v1/upstreams", "tools"}, {"/api/v1/workflow", "workflows"}, {"/api/v1/webhooks", "webhooks"}, {"/x-webhooks", "webhooks"},
		{"/api/v1/events", "events"}, {"/api/agent/", "agent connections"}, {"/api/v5/", "agent connections"}, {"/api/genesis/", "agent connections"},
		{"/api/v1/service", "service"}, {"/api/v1/stats", "service"}, {"/.well-known", "service"}, {"/healthz", "service"}, {"/readyz", "service"}, {"/metrics", "service"}, {"/openapi.", "service"}, {"/docs", "service"}, {"/problems", "service"}, {"/", "service"},
	} {
		if len(op.Tags) == 0 && strings.HasPrefix(path, t.prefix) {
			op.Tags = []string{t.tag}
		}
	}
}

// addPathParameters adds the ids in the path, and the failure of an operation on a resource that
// does not exist. PUT of a resource creates it.
func addPathParameters(where string, op *openapi3.Operation) {
	const other = "01890a5d-ac96-774b-bcce-b302099a8058"
	examples := map[string]string{
		"agent": "finance-personal", "upstream": "filesystem", "session": other, "workflow": "wf_034530bbngmsf6j6dh3xtmbr4g", "definition": "nightly-report", "checkpoint": "cp_034530bbngmsf6j6dh3xtmbr50", "step": "t1",
		"PATCH /api/v1/agents/{agent_id}": "custom-assistant", "DELETE /api/v1/agents/{agent_id}": "custom-assistant",
		"GET /api/v1/agents/{agent_id}/ancestors": "budget-assistant", "GET /api/v1/workers/{agent_id}": "research-web-01",
	}
	if strings.HasSuffix(where, "/tool-policy") {
		examples["token"] = other
	}
	if strings.Contains(where, "{delivery_id}") {
		examples["webhook"] = other
	}
	var missing []string
	for part := range strings.SplitSeq(where, "/") {
		name, ok := strings.CutSuffix(strings.Trim(part, "{}"), "_id")
		if !ok || !strings.HasPrefix(part, "{") {
			continue
		}
		schema := openapi3.NewStringSchema().WithMaxLength(64)
		p := openapi3.NewPathParameter(name + "_id").WithSchema(schema).WithDescription("The " + name + "'s id")
		p.Example = cmp.Or(examples[where], examples[name], "01890a5d-ac96-774b-bcce-b302099a8057")
		addParameter(op, len(missing), p)
		missing = append(missing, "the "+name)
	}
	if len(missing) > 0 && !(strings.HasPrefix(where, "PUT ") && strings.HasSuffix(where, "_id}")) {
		addResponse(op, "404", "T"+strings.Join(missing, " or ")[1:]+" does not exist")
	}
}

// addBodyFailure adds the failure of an operation with an invalid JSON body.
func addBodyFailure(op *openapi3.Operation) {
	switch {
	case op.RequestBody == nil:
	case op.RequestBody.Value.Required:
		addResponse(op, "400", "A field is missing or malformed")
	default:
		addResponse(op, "400", "A field is malformed")
	}
}

// isConditional reports whether a read has an entity tag: it is a JSON document without rules of its
// own for caches.
func isConditional(r *openapi3.Response) bool {
	return r.Content[jsonType] != nil && r.Headers["Cache-Control"] == nil
}

func ifNoneMatch() *openapi3.Parameter {
	return openapi3.NewHeaderParameter("If-None-Match").WithSchema(openapi3.NewStringSchema()).
		WithDescription("Entity tag of your copy; the response is 304 if it is current")
}

// isStatic reports whether a public document changes only with the release.
func isStatic(where string) bool {
	return strings.HasPrefix(where, "GET /openapi.") || where == "GET /docs" || strings.HasPrefix(where, "GET /problems/")
}

// hasMember reports whether a response is an object that has a member.
func (n *normaliser) hasMember(r *openapi3.ResponseRef, name string) bool {
	if r == nil || r.Value.Content[jsonType] == nil || r.Value.Content[jsonType].Schema == nil {
		return false
	}
	return n.target(r.Value.Content[jsonType].Schema).Properties[name] != nil
}

// addTaskResponses adds the common headers and errors of requests that create or change a task and return it.
func (n *normaliser) addTaskResponses(where string, op *openapi3.Operation) {
	if strings.HasPrefix(where, "GET ") {
		return
	}
	for status, response := range op.Responses.Map() {
		if !strings.HasPrefix(status, "2") || !n.hasMember(response, "waiting_for") {
			continue
		}
		addHeaders(response.Value, "ETag", "Location")
		if where != "POST /api/v1/tasks" {
			addResponse(op, "403", "The token lacks the scope, its agent is inactive, or another token requested the task")
		}
	}
}

// addAgentConventions adds what the endpoints of agents have in common: bearer tokens, and failures in
// the form of their protocol.
func addAgentConventions(where string, op *openapi3.Operation) {
	failures := ""
	switch {
	case strings.Contains(where, " /api/agent/"):
		failures = "ErrorEnvelope"
	case strings.Contains(where, " /api/v5/"):
		failures = lineFailures
	case strings.Contains(where, " /api/genesis/"):
		failures = "GenesisError"
		op.Responses.Value("200").Value.Content["text/event-stream"] = &openapi3.MediaType{Schema: openapi3.NewStringSchema().NewRef()}
	default:
		return
	}
	if op.Extensions == nil {
		op.Extensions = map[string]any{}
	}
	op.Extensions[failuresMember] = failures
	if op.Security == nil {
		op.Security = openapi3.NewSecurityRequirements().With(openapi3.NewSecurityRequirement().Authenticate("BearerAuth"))
	}
}

// addConnectionParameters adds the parameters of the requests that connect an agent.
func addConnectionParameters(where string, op *openapi3.Operation) {
	if !slices.Contains([]string{"GET /api/agent/connect", "GET /api/agent/inbox", "GET /api/agent/stream"}, where) {
		return
	}
	number := openapi3.NewIntegerSchema().WithMin(1).WithMax(1000)
	number.Default = 1
	concurrency := openapi3.NewQueryParameter("concurrency").WithSchema(number).WithDescription("How many tasks the agent runs at a time")
	concurrency.Example = 4
	versions := openapi3.NewQueryParameter("versions").WithSchema(openapi3.NewStringSchema()).
		WithDescription("The protocol versions that the agent supports, separated by commas; the lowest common version is used")
	versions.Example = "1.0,2.0"
	protocol := openapi3.NewQueryParameter("protocol").WithSchema(openapi3.NewStringSchema()).
		WithDescription("The protocol of the messages, by its name or its WebSocket subprotocol; the envelope protocol by default")
	protocol.Example = "envelope.v1"
	all := []*openapi3.Parameter{concurrency, versions, protocol}
	if where == "GET /api/agent/connect" { // the subprotocol selects the protocol
		all = all[:2]
	}
	for _, p := range all {
		addParameter(op, len(op.Parameters), p)
	}
}

// addPages adds the parameters and the Link header of a paginated list.
func addPages(op *openapi3.Operation, ok *openapi3.ResponseRef) {
	addParameter(op, len(op.Parameters), openapi3.NewQueryParameter("cursor").WithSchema(openapi3.NewStringSchema().WithMaxLength(100)).
		WithDescription("`next_cursor` of the previous page"))
	limit := openapi3.NewIntegerSchema().WithMin(1).WithMax(1000)
	limit.Default = 100
	at := slices.IndexFunc(op.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "cursor" })
	addParameter(op, at, openapi3.NewQueryParameter("limit").WithSchema(limit).
		WithDescription("Maximum number of entries on the page"))
	addHeaders(ok.Value, "Link")
}

func addParameter(op *openapi3.Operation, at int, p *openapi3.Parameter) {
	if op.Parameters.GetByInAndName(p.In, p.Name) == nil {
		op.Parameters = slices.Insert(op.Parameters, at, &openapi3.ParameterRef{Value: p})
	}
}

func addResponse(op *openapi3.Operation, status, description string) {
	if op.Responses.Value(status) == nil {
		op.Responses.Set(status, &openapi3.ResponseRef{Value: openapi3.NewResponse().WithDescription(description)})
	}
}

// addHeaders adds shared headers, which response describes.
func addHeaders(r *openapi3.Response, names ...string) {
	if r.Headers == nil {
		r.Headers = openapi3.Headers{}
	}
	for _, name := range names {
		if r.Headers[name] == nil {
			r.Headers[name] = &openapi3.HeaderRef{Value: &openapi3.Header{}}
		}
	}
}
