package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-openapi/spec"
	"github.com/swaggo/swag"
)

// paramExample carries the example of a parameter through the conversion, which
// knows no such member.
const paramExample = "x-comet-example"

// silent drops swag's progress reports; its errors come back as errors.
type silent struct{}

func (silent) Printf(string, ...any) {}

// convert reads the annotations in dirs[0] with the types in all of dirs. names
// maps each schema name in the result to the Go type it comes from.
func convert(dirs []string) (doc *openapi3.T, names map[string]string, err error) {
	parser := swag.New(swag.SetDebugger(silent{}), swag.SetStrict(true))
	if err := parser.ParseAPIMultiSearchDir(dirs, "doc.go", 0); err != nil {
		return nil, nil, fmt.Errorf("annotations: %w", err)
	}
	swagger := parser.GetSwagger()
	swagger.Consumes = []string{jsonType} // unless an annotation names another type
	keepParamExamples(swagger)

	text, err := json.Marshal(swagger)
	if err != nil {
		return nil, nil, err
	}
	names, err = shortNames(slices.Sorted(maps.Keys(swagger.Definitions)))
	if err != nil {
		return nil, nil, err
	}
	var doc2 openapi2.T
	if err := json.Unmarshal(renameDefinitions(text, names), &doc2); err != nil {
		return nil, nil, fmt.Errorf("swagger 2.0: %w", err)
	}
	for short, long := range names {
		doc2.Definitions[short] = doc2.Definitions[long]
		if short != long {
			delete(doc2.Definitions, long)
		}
	}
	doc, err = openapi2conv.ToV3(&doc2)
	if err != nil {
		return nil, nil, fmt.Errorf("conversion to 3.0: %w", err)
	}
	return doc, names, nil
}

func keepParamExamples(swagger *spec.Swagger) {
	for _, item := range swagger.Paths.Paths {
		for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Options, item.Head, item.Patch} {
			if op == nil {
				continue
			}
			for i := range op.Parameters {
				if p := &op.Parameters[i]; p.Example != nil {
					p.AddExtension(paramExample, p.Example)
				}
			}
		}
	}
}

// shortNames drops the package from each definition's name: models.AgentRef and
// api.agentItem become AgentRef and AgentItem. The result maps short to long.
func shortNames(long []string) (map[string]string, error) {
	names := make(map[string]string, len(long))
	for _, l := range long {
		s := shortName(l)
		if other, taken := names[s]; taken {
			return nil, fmt.Errorf("types %s and %s would both be the schema %s: rename one", other, l, s)
		}
		names[s] = l
	}
	return names, nil
}

func shortName(long string) string {
	var b strings.Builder
	// An instance of a generic type reads api.page-models_AgentRef.
	for i, part := range strings.FieldsFunc(long, func(r rune) bool { return r == '-' || r == ',' }) {
		if i > 0 {
			part = strings.Replace(part, "_", ".", 1)
		}
		if dot := strings.LastIndexByte(part, '.'); dot >= 0 {
			part = part[dot+1:]
		}
		r := []rune(part)
		r[0] = unicode.ToUpper(r[0])
		b.WriteString(string(r))
	}
	return b.String()
}

var definitionRef = regexp.MustCompile(`"#/definitions/([^"]+)"`)

func renameDefinitions(swagger []byte, names map[string]string) []byte {
	short := make(map[string]string, len(names))
	for s, l := range names {
		short[l] = s
	}
	return definitionRef.ReplaceAllFunc(swagger, func(ref []byte) []byte {
		if s, ok := short[string(definitionRef.FindSubmatch(ref)[1])]; ok {
			return []byte(`"#/definitions/` + s + `"`)
		}
		return ref
	})
}
