package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// order is how the members of OpenAPI's own objects are written, the way a person
// would; what it does not name follows by name.
const order = `
	openapi info title version summary operationId tags name in
	get post put patch delete head options
	description servers url required style explode parameters requestBody
	headers content schema $ref allOf oneOf type format nullable
	enum x-enum-varnames default minimum maximum minLength maxLength pattern minItems maxItems
	uniqueItems items properties additionalProperties example responses security x-required-scopes
	paths x-webhooks components schemas securitySchemes`

// holdsNames has the members whose own members are names of the API and not keywords of
// OpenAPI.
func holdsNames(member string) bool {
	switch member {
	case "paths", "x-webhooks", "responses", "headers", "schemas", "content", "properties", "securitySchemes", "example", "default":
		return true
	}
	return false
}

// render writes doc as JSON and as YAML, with members in a fixed order: those of a
// schema as in the Go type.
func render(doc *openapi3.T, facts structs) (jsonText, yamlText []byte, err error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, nil, err
	}
	node := arrange(tree, nil, facts)

	var j, y bytes.Buffer
	writeJSON(&j, node, "\n")
	j.WriteByte('\n')
	encoder := yaml.NewEncoder(&y)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return nil, nil, err
	}
	return j.Bytes(), y.Bytes(), encoder.Close()
}

// arrange makes a YAML tree of decoded JSON; path is the way to it.
func arrange(v any, path []string, facts structs) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range sortedKeys(v, path, facts) {
			node.Content = append(node.Content, text(key), arrange(v[key], append(slices.Clone(path), key), facts))
		}
		return node
	case []any:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, entry := range v {
			node.Content = append(node.Content, arrange(entry, append(slices.Clone(path), ""), facts))
		}
		return node
	case string:
		return text(v)
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: map[bool]string{true: "true", false: "false"}[v]}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
}

// text leaves the quoting to the library, which knows what older YAML readers
// would take for something else than a string.
func text(s string) *yaml.Node {
	var node yaml.Node
	if err := node.Encode(s); err != nil {
		panic(err) // a string in memory cannot fail
	}
	return &node
}

func sortedKeys(object map[string]any, path []string, facts structs) []string {
	ranks := strings.Fields(order)
	if n := len(path); n > 0 && holdsNames(path[n-1]) && (n == 1 || path[n-2] != "properties") {
		ranks = nil
		if path[n-1] == "properties" && n == 4 && path[1] == "schemas" {
			for _, m := range facts[path[2]] {
				ranks = append(ranks, m.name)
			}
		}
	}
	rank := func(key string) int {
		if i := slices.Index(ranks, key); i >= 0 {
			return i
		}
		return len(ranks)
	}
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return keys
}

// writeJSON prints the tree as indented JSON; newline is "\n" with the indentation.
func writeJSON(b *bytes.Buffer, node *yaml.Node, newline string) {
	open, end, step := "{", "}", 2
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag != "!!str" {
			b.WriteString(node.Value)
			return
		}
		encoder := json.NewEncoder(b)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(node.Value) // a string in memory cannot fail
		b.Truncate(b.Len() - 1)        // the newline Encode adds
		return
	case yaml.SequenceNode:
		open, end, step = "[", "]", 1
	}
	b.WriteString(open)
	for i := 0; i < len(node.Content); i += step {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(newline + "  ")
		if step == 2 {
			writeJSON(b, node.Content[i], newline)
			b.WriteString(": ")
		}
		writeJSON(b, node.Content[i+step-1], newline+"  ")
	}
	if len(node.Content) > 0 {
		b.WriteString(newline)
	}
	b.WriteString(end)
}
