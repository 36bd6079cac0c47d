package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// normaliser holds what its steps share; errs collects every mistake in the
// annotations, so that one run shows them all.
type normaliser struct {
	doc   *openapi3.T
	facts structs
	texts docs
	// routes has the function of each route.
	routes routeNames
	errs   []error
}

func (n *normaliser) reject(format string, args ...any) {
	n.errs = append(n.errs, fmt.Errorf(format, args...))
}

// normalise completes doc in place.
func normalise(doc *openapi3.T, facts structs, texts docs, routes routeNames) error {
	n := &normaliser{doc: doc, facts: facts, texts: texts, routes: routes}
	n.info()
	n.webhooks()
	n.unions()
	n.schemas()
	n.shared()
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item := doc.Paths.Value(path)
		ops := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(ops)) {
			n.operation(method+" "+path, ops[method])
		}
	}
	n.dropUnused()
	if len(n.errs) > 0 {
		return errors.Join(n.errs...)
	}
	if err := openapi3.NewLoader().ResolveRefsIn(doc, nil); err != nil {
		return err
	}
	return errors.Join(doc.Validate(context.Background()), n.checkWebhooks())
}

// info fixes what stands above the paths.
func (n *normaliser) info() {
	for _, s := range n.doc.Servers {
		s.URL = strings.TrimSuffix(s.URL, "/")
		s.Description = "The default address of `comet serve`."
	}
	// The first entry is what a page that renders the description uses.
	n.doc.Servers = append(openapi3.Servers{{URL: "/", Description: "The server that this description was loaded from."}}, n.doc.Servers...)

	// Swagger 2.0 knows no bearer tokens, so they are annotated as an API key.
	for _, ref := range n.doc.Components.SecuritySchemes {
		if s := ref.Value; s.Type == "apiKey" && s.Name == "Authorization" {
			ref.Value = openapi3.NewSecurityScheme().WithType("http").WithScheme("bearer").WithDescription(s.Description)
		}
	}
}

// dropUnused removes the shared headers and responses nothing refers to, which a
// linter would name.
func (n *normaliser) dropUnused() {
	used := map[string]bool{}
	note := func(r *openapi3.Response) {
		for _, h := range r.Headers {
			used[h.Ref] = true
		}
	}
	for _, item := range n.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, r := range op.Responses.Map() {
				used[r.Ref] = true
				if r.Ref == "" {
					note(r.Value)
				}
			}
		}
	}
	maps.DeleteFunc(n.doc.Components.Responses, func(name string, r *openapi3.ResponseRef) bool {
		return !used[responsesRef+name]
	})
	for _, r := range n.doc.Components.Responses {
		note(r.Value)
	}
	maps.DeleteFunc(n.doc.Components.Headers, func(name string, _ *openapi3.HeaderRef) bool {
		return !used[headersRef+name]
	})
}
