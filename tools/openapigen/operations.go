package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// operation completes one route; where names it in errors.
func (n *normaliser) operation(where string, op *openapi3.Operation) {
	if op.OperationID == "" {
		op.OperationID = n.routes[where]
	}
	if op.Summary == "" || op.Description == "" {
		n.reject("%s: no @Summary or no @Description", where)
	}
	addTag(where, op)
	addAgentConventions(where, op)
	if len(op.Tags) != 1 || n.doc.Tags.Get(firstOf(op.Tags)) == nil {
		n.reject("%s: needs exactly one @Tags entry, one that doc.go declares", where)
	}
	if op.Security == nil {
		n.reject("%s: no @Security; write it without a value where no token is needed", where)
		return
	}
	n.scopes(where, op)
	n.addConventions(where, op)
	n.parameters(where, op)
	n.body(op)
	n.bodyExample(op)
	n.responses(where, op)
	delete(op.Extensions, failuresMember)
}

func firstOf[T any](list []T) (first T) {
	if len(list) > 0 {
		first = list[0]
	}
	return first
}

// loginCookie is the security scheme of browser logins, which the REST API accepts instead of a token.
const loginCookie = "LoginCookie"

// scopes moves the required scopes to an extension and the description, because a bearer
// scheme of OpenAPI 3.0.3 has no scopes. One of them is sufficient; errors name the first. It adds the cookie of
// logins as an alternative.
func (n *normaliser) scopes(where string, op *openapi3.Operation) {
	var all []string
	for _, requirement := range *op.Security {
		for scheme, scopes := range requirement {
			if n.doc.Components.SecuritySchemes[scheme] == nil {
				n.reject("%s: @Security %s is not defined in doc.go", where, scheme)
			}
			all = append(all, scopes...)
			requirement[scheme] = []string{}
		}
	}
	if secured(op) && strings.Contains(where, " /api/v1/") && where != "POST /api/v1/logins/codes" {
		op.Security.With(openapi3.NewSecurityRequirement().Authenticate(loginCookie))
	}
	if len(all) == 0 {
		return
	}
	if op.Extensions == nil {
		op.Extensions = map[string]any{}
	}
	op.Extensions["x-required-scopes"] = all
	sentence := "Requires the scope `" + all[0] + "`."
	if len(all) > 1 {
		sentence = "Requires one of the scopes `" + strings.Join(all, "`, `") + "`."
	}
	op.Description = strings.TrimRight(op.Description, "\n") + "\n\n" + sentence
}

func (n *normaliser) parameters(where string, op *openapi3.Operation) {
	for _, ref := range op.Parameters {
		p := ref.Value
		example, ok := p.Extensions[paramExample]
		delete(p.Extensions, paramExample)
		if p.Schema.Value.Type.Is("array") {
			if text, isText := example.(string); isText {
				example = listExample(text)
			}
		}
		if ok {
			p.Example = example
		}
		if p.Description == "" {
			n.reject("%s: parameter %s has no description", where, p.Name)
		}
	}
}

func listExample(text string) []any {
	var list []any
	for entry := range strings.SplitSeq(text, ",") {
		list = append(list, strings.TrimSpace(entry))
	}
	return list
}

func (n *normaliser) responses(where string, op *openapi3.Operation) {
	for _, shared := range sharedResponses() {
		if shared.applies(op) && op.Responses.Value(shared.status) == nil {
			op.Responses.Set(shared.status, &openapi3.ResponseRef{Ref: responsesRef + shared.name})
		}
	}
	responses := op.Responses.Map()
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if ref := responses[status]; ref.Ref == "" {
			n.response(where+" "+status, status, op, ref.Value)
		}
	}
}

func (n *normaliser) response(where, status string, op *openapi3.Operation, r *openapi3.Response) {
	if r.Description == nil || *r.Description == "" {
		n.reject("%s: no description", where)
	}
	code, err := strconv.Atoi(status)
	switch {
	case err != nil || code >= 400: // "default" is for failures, too
		failureContent(op, r)
	case code < 200 || code == 204 || code >= 300:
		if len(r.Content) > 0 {
			n.reject("%s: this status has no body", where)
		}
	case len(r.Content) == 0:
		n.reject("%s: no schema", where)
	}
	n.headers(where, status, op, r)
}

// headers gives each header its shared description, and every answer those that
// the middleware adds.
func (n *normaliser) headers(where, status string, op *openapi3.Operation, r *openapi3.Response) {
	known := sharedHeaders()
	if r.Headers == nil {
		r.Headers = openapi3.Headers{}
	}
	for name, ref := range r.Headers {
		if ref.Value != nil && ref.Value.Description != "" {
			continue
		}
		if known[name] == nil {
			n.reject("%s: header %s needs a description", where, name)
			continue
		}
		r.Headers[name] = &openapi3.HeaderRef{Ref: headersRef + name}
	}
	always := []string{"X-Request-Id"}
	if secured(op) && strings.HasPrefix(status, "2") {
		always = append(always, "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
	}
	switch status {
	case "304":
		always = append(always, "ETag")
	case "503":
		always = append(always, "Retry-After")
	}
	for _, name := range always {
		if r.Headers[name] == nil {
			r.Headers[name] = &openapi3.HeaderRef{Ref: headersRef + name}
		}
	}
}
