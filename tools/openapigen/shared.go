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
		"ETag":                header("Strong entity tag of the response, for If-Match and If-None-Match.", `"3.9f2c61d07b5ae418"`, text()),
		"Link":                header("Links to other pages (RFC 8288): `first`, and `next` except on the last page.", `</api/v1/agents?cursor=eyJpZCI6Im5vdmEifQ&limit=100>; rel="next"`, text()),
		"Location":            header("Address of the resource.", "/api/v1/agents/custom-assistant", text().WithFormat("uri-reference")),
		"X-Request-Id":        header("The request's id in the logs of the server.", "01890a5d-ac96-774b-bcce-b302099a8057", text()),
		"Retry-After":         header("Seconds to wait before the next attempt.", "30", number()),
		"RateLimit-Limit":     header("Requests that the token may make per window. Only if rate limits are enabled.", "600", number()),
		"RateLimit-Remaining": header("Requests that remain in the current window. Only if rate limits are enabled.", "599", number()),
		"RateLimit-Reset":     header("Seconds until the window ends. Only if rate limits are enabled.", "42", number()),
		"Preference-Applied":  header("The granted preference: `wait` and the maximum wait in seconds.", "wait=30", text()),
		"WWW-Authenticate":    header("The required authentication scheme.", `Bearer realm="comet"`, text()),
		"Idempotency-Replayed": header("`true` if the response is the stored one of an earlier request with the same Idempotency-Key.", "true",
			text().WithEnum("true")),
		"Cache-Control":       header("Whether and how long the response may be cached.", "no-cache", text()),
		"Content-Disposition": header("The file name of the document.", `attachment; filename="roster.yaml"`, text()),
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
	return append(append(append(envelopeResponses(hasBody), lineResponses(hasBody)...), genesisResponses()...), []sharedResponse{
		{"401", "Unauthenticated", "The token is missing, unknown, expired or revoked.", []string{"WWW-Authenticate"}, secured, ""},
		{"403", "Forbidden", "The token lacks the scope in `scope`, or its agent is inactive.", []string{"WWW-Authenticate"}, problems, ""},
		{"413", "BodyTooLarge", "The body exceeds the maximum size.", nil, hasBody, ""},
		{"415", "UnsupportedMediaType", "The media type of the body is not supported.", nil, hasBody, ""},
		{"429", "TooManyRequests", "The token exceeds its rate limit. Only if rate limits are enabled.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, secured, ""},
		{"default", "Failure", "Any other error; see `code` and `status`.", []string{"Retry-After"}, always, ""},
	}...)
}

// lineResponses are the same answers as lines of PROTOCOL_V5.
func lineResponses(hasBody func(*openapi3.Operation) bool) []sharedResponse {
	applies := func(op *openapi3.Operation) bool { return failuresOf(op) == lineFailures }
	withBody := func(op *openapi3.Operation) bool { return applies(op) && hasBody(op) }
	return []sharedResponse{
		{"401", "LineUnauthenticated", "E90: the token is missing, unknown, expired or revoked, lacks the required scope, or its agent is inactive.",
			[]string{"WWW-Authenticate"}, applies, lineFailures},
		{"413", "LineBodyTooLarge", "E10: the body exceeds the maximum size.", nil, withBody, lineFailures},
		{"415", "LineUnsupportedMediaType", "E10: the media type of the body is not supported.", nil, withBody, lineFailures},
		{"429", "LineTooManyRequests", "E31: the token exceeds its rate limit, or the queue is full. E90: too many requests with invalid tokens from this address. E17: the budget is exceeded.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, applies, lineFailures},
		{"default", "LineFailure", "Any other error; see the seventh segment, ERR.", []string{"Retry-After"}, applies, lineFailures},
	}
}

// genesisResponses are the same answers as messages of the Genesis protocol.
func genesisResponses() []sharedResponse {
	const schema = "GenesisError"
	applies := func(op *openapi3.Operation) bool { return failuresOf(op) == schema }
	return []sharedResponse{
		{"401", "GenesisUnauthenticated", "AUTH_FAILED: no valid token, and no valid signature of a key that replaces one. KEY_UNKNOWN, SIGNATURE_REQUIRED, SIGNATURE_INVALID.",
			[]string{"WWW-Authenticate"}, applies, schema},
		{"413", "GenesisBodyTooLarge", "INVALID_MESSAGE: the body exceeds the maximum size.", nil, applies, schema},
		{"415", "GenesisUnsupportedMediaType", "INVALID_MESSAGE: the media type of the body is not supported.", nil, applies, schema},
		{"429", "GenesisTooManyRequests", "RATE_LIMITED: too many requests of the token, or invalid signatures from this address. BUDGET_EXCEEDED.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, applies, schema},
		{"default", "GenesisFailure", "Any other error; see `errorCode`.", []string{"Retry-After"}, applies, schema},
	}
}

// envelopeResponses are the same answers as messages of the envelope protocol, with a
// code instead of a type. They come first: an operation gets the first that applies.
func envelopeResponses(hasBody func(*openapi3.Operation) bool) []sharedResponse {
	const schema = "ErrorEnvelope"
	applies := func(op *openapi3.Operation) bool { return failuresOf(op) == schema }
	withBody := func(op *openapi3.Operation) bool { return applies(op) && hasBody(op) }
	return []sharedResponse{
		{"401", "AgentUnauthenticated", "5004: the token is missing, unknown, expired or revoked, lacks the required scope, or its agent is inactive.",
			[]string{"WWW-Authenticate"}, applies, schema},
		{"413", "AgentBodyTooLarge", "5003: the body exceeds the maximum size.", nil, withBody, schema},
		{"415", "AgentUnsupportedMediaType", "5003: the media type of the body is not supported.", nil, withBody, schema},
		{"429", "AgentTooManyRequests", "5002 of `orchestrator`: the token exceeds its rate limit, or the queue is full. 5004: too many requests with invalid tokens from this address. 5005: the budget or another limit is exceeded.",
			[]string{"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, applies, schema},
		{"default", "AgentFailure", "Any other error; see `error_code`.", []string{"Retry-After"}, applies, schema},
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
