package main

import (
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// addConventions adds what all operations of a kind have in common, so that annotations need not
// repeat it. An annotation takes precedence.
func addConventions(where string, op *openapi3.Operation) {
	if failuresOf(op) != "" {
		return
	}
	ok := op.Responses.Value("200")
	if op.Parameters.GetByInAndName(openapi3.ParameterInQuery, "cursor") != nil {
		addPages(op, ok)
	}
	if ok != nil && secured(op) && strings.HasPrefix(where, "GET ") && isConditional(ok.Value) {
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

// isConditional reports whether a read has an entity tag: it is a JSON document without rules of its
// own for caches.
func isConditional(r *openapi3.Response) bool {
	return r.Content[jsonType] != nil && r.Headers["Cache-Control"] == nil
}

func ifNoneMatch() *openapi3.Parameter {
	return openapi3.NewHeaderParameter("If-None-Match").WithSchema(openapi3.NewStringSchema()).
		WithDescription("Entity tag of your copy; the response is 304 if it is current")
}

// addPages adds what a list in pages has besides its cursor.
func addPages(op *openapi3.Operation, ok *openapi3.ResponseRef) {
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
