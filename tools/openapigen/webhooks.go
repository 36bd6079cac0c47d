package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

const (
	// webhooksPrefix begins the paths that are no paths: requests that comet makes.
	webhooksPrefix = "/x-webhooks/"
	// webhooksMember is where they go, OpenAPI 3.1's webhooks in the form that
	// tools know of in a 3.0 document.
	webhooksMember = "x-webhooks"
)

// webhooks moves the events of subscribers out of the paths. The
// annotated body is an event's data; each event gets a schema for its envelope.
func (n *normaliser) webhooks() {
	hooks := map[string]*openapi3.PathItem{}
	for _, path := range slices.Sorted(maps.Keys(n.doc.Paths.Map())) {
		event, ok := strings.CutPrefix(path, webhooksPrefix)
		if !ok {
			continue
		}
		item := n.doc.Paths.Value(path)
		n.doc.Paths.Delete(path)
		if item.Post == nil || item.Post.RequestBody == nil {
			n.reject("%s: a webhook is a POST with a body, its data", path)
			continue
		}
		n.webhook(path, event, item.Post)
		hooks[event] = item
	}
	if len(hooks) > 0 {
		n.doc.Extensions = map[string]any{webhooksMember: hooks}
	}
}

func (n *normaliser) webhook(where, event string, op *openapi3.Operation) {
	addTag(where, op)
	if op.OperationID == "" || op.Summary == "" || op.Description == "" || len(op.Tags) != 1 {
		n.reject("%s: needs @ID, @Summary, @Description and one @Tags entry", where)
	}
	var data *openapi3.SchemaRef
	for _, media := range op.RequestBody.Value.Content {
		data = media.Schema
	}
	if data == nil || data.Ref == "" {
		n.reject("%s: the data must be a named type", where)
		return
	}
	name := schemaOf(event)
	n.facts[name] = []member{{name: "type"}, {name: "timestamp", format: "date-time"}, {name: "data"}}
	n.doc.Components.Schemas[name] = envelope(event, op, data).NewRef()
	op.RequestBody = &openapi3.RequestBodyRef{Value: openapi3.NewRequestBody().WithRequired(true).
		WithDescription(op.RequestBody.Value.Description).WithJSONSchemaRef(openapi3.NewSchemaRef(schemasRef+name, nil))}
	op.Parameters = webhookHeaders()
	op.Responses = webhookAnswers()
	op.Security = openapi3.NewSecurityRequirements() // the signature says who it is
}

// schemaOf names the envelope of an event: agent.budget_warning is described by
// AgentBudgetWarningEvent.
func schemaOf(event string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(event, func(r rune) bool { return !unicode.IsLetter(r) }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Event"
}

func envelope(event string, op *openapi3.Operation, data *openapi3.SchemaRef) *openapi3.Schema {
	at := openapi3.NewDateTimeSchema()
	at.Description, at.Example = "When the event occurred.", "2026-01-10T15:30:00Z"
	kind := openapi3.NewStringSchema().WithEnum(event)
	kind.Description = "The type of the event."
	s := openapi3.NewObjectSchema().
		WithProperty("type", kind).
		WithProperty("timestamp", at).
		WithPropertyRef("data", data)
	s.Description = op.Summary + "."
	return s
}

// webhookHeaders are those of Standard Webhooks 1.0.
func webhookHeaders() openapi3.Parameters {
	one := func(name, description, example string, schema *openapi3.Schema) *openapi3.ParameterRef {
		p := openapi3.NewHeaderParameter(name).WithRequired(true).WithDescription(description).WithSchema(schema)
		p.Example = example
		if schema.Type.Is("integer") {
			p.Example = 1768059000
		}
		return &openapi3.ParameterRef{Value: p}
	}
	text := openapi3.NewStringSchema
	return openapi3.Parameters{
		one("webhook-id", "The event's id, the same for all attempts. Use it to recognize repeated deliveries.",
			"01890a5d-ac96-774b-bcce-b302099a8059", text()),
		one("webhook-timestamp", "When this attempt was made, in seconds since 1970. Reject requests that are older than a few minutes.", "", openapi3.NewInt64Schema()),
		one("webhook-signature", "One or more signatures, separated by spaces: `v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64, or `v1a,` and the Ed25519 signature of the same text. Accept the request if one of them is valid.",
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", text()),
	}
}

// webhookAnswers describe how comet interprets a receiver's response.
func webhookAnswers() *openapi3.Responses {
	answer := func(description string) *openapi3.ResponseRef {
		return &openapi3.ResponseRef{Value: openapi3.NewResponse().WithDescription(description)}
	}
	r := openapi3.NewResponsesWithCapacity(3)
	r.Set("2XX", answer("The event was received. The body is ignored."))
	r.Set("410", answer("The receiver wants no more events; comet disables the webhook."))
	r.Set("default", answer("Any other response, including redirects, and none within 15 seconds, or the webhook's own limit, is a failure. comet retries after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h and 10 h, or after the webhook's own waits, but not before `Retry-After`."))
	return r
}

// checkWebhooks validates what was moved as if it were paths.
func (n *normaliser) checkWebhooks() error {
	hooks, _ := n.doc.Extensions[webhooksMember].(map[string]*openapi3.PathItem)
	if len(hooks) == 0 {
		return nil
	}
	paths := openapi3.NewPathsWithCapacity(len(hooks))
	for event, item := range hooks {
		paths.Set("/"+event, item)
	}
	doc := &openapi3.T{OpenAPI: n.doc.OpenAPI, Info: n.doc.Info, Components: n.doc.Components, Paths: paths}
	if err := errors.Join(openapi3.NewLoader().ResolveRefsIn(doc, nil), doc.Validate(context.Background())); err != nil {
		return fmt.Errorf("%s: %w", webhooksMember, err)
	}
	return nil
}
