package main

import (
	"strconv"

	"github.com/getkin/kin-openapi/openapi3"
)

const (
	headersRef   = "#/components/headers/"
	responsesRef = "#/components/responses/"
	problemType  = "application/problem+json"
	problemName  = "Problem"
)

func header(description, example string, schema *openapi3.Schema) *openapi3.HeaderRef {
	schema.Example = example
	if n, err := strconv.Atoi(example); err == nil && schema.Type.Is("integer") {
		schema.Example = n
	}
	return &openapi3.HeaderRef{Value: &openapi3.Header{Parameter: openapi3.Parameter{
		Description: description,
		Schema:      schema.NewRef(),
	}}}
}

// sharedHeaders are described once; an annotation only names them.
func sharedHeaders() openapi3.Headers {
	text, number := openapi3.NewStringSchema, openapi3.NewIntegerSchema
	return openapi3.Headers{
		"ETag":                header("The version of what was sent: a strong validator for If-Match and If-None-Match.", `"3.9f2c61d07b5ae418"`, text()),
		"Link":                header("Neighbouring pages as RFC 8288 links: rel next, which the last page has not, and rel first.", `</api/v1/agents?cursor=eyJpZCI6Im5vdmEifQ&limit=100>; rel="next"`, text()),
		"Location":            header("Where the new resource is.", "/api/v1/agents/custom-assistant", text().WithFormat("uri-reference")),
		"X-Request-Id":        header("The request's id, as it stands in the logs.", "01890a5d-ac96-774b-bcce-b302099a8057", text()),
		"Retry-After":         header("Seconds after which it is worth trying again.", "30", number()),
		"RateLimit-Limit":     header("Requests the token may make in the current window. Only where rate limits are on.", "600", number()),
		"RateLimit-Remaining": header("Requests left in the current window. Only where rate limits are on.", "599", number()),
		"RateLimit-Reset":     header("Seconds until the window ends. Only where rate limits are on.", "42", number()),
		"Preference-Applied":  header("What was made of Prefer: `wait` and the seconds the answer would have waited.", "wait=30", text()),
		"WWW-Authenticate":    header("How to authenticate.", `Bearer realm="comet"`, text()),
		"Idempotency-Replayed": header("`true` where the answer is the stored one of an earlier request with the same Idempotency-Key.", "true",
			text().WithEnum("true")),
		"Cache-Control":       header("For how long the answer may be kept.", "no-cache", text()),
		"Content-Disposition": header("The file name to save the document under.", `attachment; filename="roster.yaml"`, text()),
	}
}

// sharedResponse is an answer that many operations give without their handler
// knowing of it.
type sharedResponse struct {
	status, name, description string
	headers                   []string
	// applies reports whether the operation can give it.
	applies func(*openapi3.Operation) bool
	// schema is what it has instead of a problem document, "" for nothing else.
	schema string
}

func sharedResponses() []sharedResponse {
	always := func(*openapi3.Operation) bool { return true }
	hasBody := func(op *openapi3.Operation) bool { return op.RequestBody != nil }
	problems := func(op *openapi3.Operation) bool { return secured(op) && failuresOf(op) == "" }
	return append(append(envelopeResponses(hasBody), lineResponses(hasBody)...), []sharedResponse{
		{"401", "Unauthenticated", "The token is missing, unknown, expired or revoked.", []string{"WWW-Authenticate"}, secured, ""},
		{"403", "Forbidden", "The token lacks a scope, which `scope` names, or its agent is inactive.", []string{"WWW-Authenticate"}, problems, ""},
		{"413", "BodyTooLarge", "The body is larger than the route takes.", nil, hasBody, ""},
		{"415", "UnsupportedMediaType", "The body is of a type the route does not take.", nil, hasBody, ""},
		{"429", "TooManyRequests", "The token asks too often. Only where rate limits are on.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, secured, ""},
		{"default", "Failure", "Any other failure; `type` and `status` tell which.", []string{"Retry-After"}, always, ""},
	}...)
}

// lineResponses are the same answers as lines of PROTOCOL_V5.
func lineResponses(hasBody func(*openapi3.Operation) bool) []sharedResponse {
	applies := func(op *openapi3.Operation) bool { return failuresOf(op) == lineFailures }
	withBody := func(op *openapi3.Operation) bool { return applies(op) && hasBody(op) }
	return []sharedResponse{
		{"401", "LineUnauthenticated", "E90: the token is missing, unknown, expired or revoked, or has no right to this, or its agent is inactive.",
			[]string{"WWW-Authenticate"}, applies, lineFailures},
		{"413", "LineBodyTooLarge", "E10: the body is larger than the route takes.", nil, withBody, lineFailures},
		{"415", "LineUnsupportedMediaType", "E10: the body is of a type the route does not take.", nil, withBody, lineFailures},
		{"429", "LineTooManyRequests", "E31: the token asks too often, or too much waits to be done. E90: too many tokens that are not accepted came from the address. E17: no budget.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, applies, lineFailures},
		{"default", "LineFailure", "Any other failure; the seventh segment, ERR, tells which.", []string{"Retry-After"}, applies, lineFailures},
	}
}

// envelopeResponses are the same answers as messages of the envelope protocol, with a
// code instead of a type. They come first: an operation gets the first that applies.
func envelopeResponses(hasBody func(*openapi3.Operation) bool) []sharedResponse {
	const schema = "ErrorEnvelope"
	applies := func(op *openapi3.Operation) bool { return failuresOf(op) == schema }
	withBody := func(op *openapi3.Operation) bool { return applies(op) && hasBody(op) }
	return []sharedResponse{
		{"401", "AgentUnauthenticated", "5004: the token is missing, unknown, expired or revoked, or has no right to this, or its agent is inactive.",
			[]string{"WWW-Authenticate"}, applies, schema},
		{"413", "AgentBodyTooLarge", "5003: the body is larger than the route takes.", nil, withBody, schema},
		{"415", "AgentUnsupportedMediaType", "5003: the body is of a type the route does not take.", nil, withBody, schema},
		{"429", "AgentTooManyRequests", "5002, of `orchestrator`: the token asks too often, or too much waits to be done. 5004: too many tokens that are not accepted came from the address. 5005: no budget, or another limit.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, applies, schema},
		{"default", "AgentFailure", "Any other failure; `error_code` tells which.", []string{"Retry-After"}, applies, schema},
	}
}

func (r sharedResponse) content(out *openapi3.Response) {
	if r.schema == "" {
		problemContent(out)
		return
	}
	out.Content = failureBody(r.schema)
}

// shared adds the components every description has.
func (n *normaliser) shared() {
	c := n.doc.Components
	if c.Schemas[problemName] == nil {
		n.reject("no schema %s: name the problem document's type in at least one @Failure", problemName)
	}
	c.Headers = sharedHeaders()
	c.Responses = openapi3.ResponseBodies{}
	for _, r := range sharedResponses() {
		response := openapi3.NewResponse().WithDescription(r.description)
		r.content(response)
		response.Headers = openapi3.Headers{}
		for _, h := range append(r.headers, "X-Request-Id") {
			response.Headers[h] = &openapi3.HeaderRef{Ref: headersRef + h}
		}
		c.Responses[r.name] = &openapi3.ResponseRef{Value: response}
	}
}

// problemContent makes the answer a problem document; a schema that was annotated
// stays, an answer without one gets the common schema.
func problemContent(r *openapi3.Response) {
	schema := openapi3.NewSchemaRef(schemasRef+problemName, nil)
	for _, media := range r.Content {
		if media.Schema != nil {
			schema = media.Schema
		}
	}
	r.Content = openapi3.Content{problemType: &openapi3.MediaType{Schema: schema}}
}

func secured(op *openapi3.Operation) bool { return op.Security != nil && len(*op.Security) > 0 }
