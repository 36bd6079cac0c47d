package builtin

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"comet/internal/tools"
)

const (
	// maxStub is the longest declaration in bytes, maxStubDepth the depth of described objects.
	maxStub      = 4000
	maxStubDepth = 4
)

// stubOf returns the TypeScript declaration of a tool, derived only from its schema.
func stubOf(t *tools.Tool) string {
	schema := decodeSchema(t.Definition.InputSchema)
	result := typeScriptType(decodeSchema(t.Definition.OutputSchema), 0)
	args := "args: " + typeScriptType(schema, 0)
	if required, _ := schema["required"].([]any); len(required) == 0 {
		args = "args?: " + typeScriptType(schema, 0)
	}
	out := serverExpression(t.Server) + memberExpression(t.Name) + "(" + args + "): Promise<" + result + ">"
	if len(out) > maxStub {
		out = serverExpression(t.Server) + memberExpression(t.Name) + "(args: object): Promise<any>"
	}
	return out
}

// decodeSchema returns a JSON Schema, nil where it is not an object.
func decodeSchema(schema any) (out map[string]any) {
	text, err := json.Marshal(schema)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

func identifierPattern() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`) }

func serverExpression(server string) string {
	if identifierPattern().MatchString(server) {
		return server
	}
	return "mcp[" + strconv.Quote(server) + "]"
}

func memberExpression(name string) string {
	if identifierPattern().MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// typeScriptType returns the TypeScript type of a JSON Schema, any where there is none.
func typeScriptType(schema map[string]any, depth int) string {
	if schema == nil || depth > maxStubDepth {
		return "any"
	}
	if list, ok := schema["enum"].([]any); ok && len(list) > 0 && len(list) <= 30 {
		return union(list, func(v any) string { text, _ := json.Marshal(v); return string(text) })
	}
	if v, ok := schema["const"]; ok {
		text, _ := json.Marshal(v) // never fails for decoded JSON
		return string(text)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if list, ok := schema[key].([]any); ok && len(list) > 0 {
			return union(list, func(v any) string { inner, _ := v.(map[string]any); return typeScriptType(inner, depth+1) })
		}
	}
	switch kind := schema["type"].(type) {
	case string:
		return namedType(kind, schema, depth)
	case []any:
		return union(kind, func(v any) string { name, _ := v.(string); return namedType(name, schema, depth) })
	}
	if schema["properties"] != nil {
		return namedType("object", schema, depth)
	}
	return "any"
}

func namedType(kind string, schema map[string]any, depth int) string {
	switch kind {
	case "string", "boolean", "null":
		return kind
	case "number", "integer":
		return "number"
	case "array":
		items, _ := schema["items"].(map[string]any)
		inner := typeScriptType(items, depth+1)
		if strings.Contains(inner, " | ") {
			inner = "(" + inner + ")"
		}
		return inner + "[]"
	case "object":
		return objectType(schema, depth)
	}
	return "any"
}

func objectType(schema map[string]any, depth int) string {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 {
		if inner, ok := schema["additionalProperties"].(map[string]any); ok {
			return "Record<string, " + typeScriptType(inner, depth+1) + ">"
		}
		return "{}"
	}
	required, _ := schema["required"].([]any)
	parts := make([]string, 0, len(properties))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		inner, _ := properties[name].(map[string]any)
		shown, mark := name, "?"
		if !identifierPattern().MatchString(name) {
			shown = strconv.Quote(name)
		}
		if slices.Contains(required, any(name)) {
			mark = ""
		}
		parts = append(parts, shown+mark+": "+typeScriptType(inner, depth+1))
	}
	return "{ " + strings.Join(parts, "; ") + " }"
}

// union joins types, each once.
func union(list []any, of func(any) string) string {
	var parts []string
	for _, v := range list {
		if text := of(v); !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, " | ")
}
