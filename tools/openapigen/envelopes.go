package main

import (
	"github.com/getkin/kin-openapi/openapi3"
)

const (
	// failuresMember marks an operation whose failures are no problem documents: it
	// names the schema that they have, or says "line".
	failuresMember = "x-comet-failures"
	// exampleMember is the example of an operation's body. Swagger 2.0 has no place
	// for one.
	exampleMember = "x-comet-example"
	jsonType      = "application/json"
	// lineFailures in the place of a schema says that the failures are lines of text.
	lineFailures = "line"
	textType     = "text/plain"
)

// failureBody is the body of failures that have a schema, or are lines.
func failureBody(schema string) openapi3.Content {
	if schema == lineFailures {
		return openapi3.Content{textType: &openapi3.MediaType{Schema: openapi3.NewStringSchema().NewRef()}}
	}
	return openapi3.Content{jsonType: &openapi3.MediaType{Schema: openapi3.NewSchemaRef(schemasRef+schema, nil)}}
}

// failuresOf returns the schema of an operation's failures, "" where they are problem
// documents.
func failuresOf(op *openapi3.Operation) string {
	name, _ := op.Extensions[failuresMember].(string)
	return name
}

// failureContent makes the answer a failure of the operation.
func failureContent(op *openapi3.Operation, r *openapi3.Response) {
	name := failuresOf(op)
	if name == "" {
		problemContent(r)
		return
	}
	r.Content = failureBody(name)
}

// body completes the request's body.
func (n *normaliser) body(op *openapi3.Operation) {
	if op.RequestBody == nil {
		return
	}
	delete(op.RequestBody.Value.Extensions, "x-originalParamName")
	if example, ok := op.Extensions[exampleMember]; ok {
		for _, media := range op.RequestBody.Value.Content {
			media.Example = example
		}
		delete(op.Extensions, exampleMember)
	}
}
