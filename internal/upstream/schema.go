package upstream

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/words"
)

// checkTool says why a tool cannot be used, nil where it can.
func checkTool(t *mcp.Tool) error {
	if len(t.Name) > MaxName {
		return fmt.Errorf("its name is longer than %d bytes", MaxName)
	}
	if t.InputSchema == nil {
		return errors.New("it has no schema of its arguments")
	}
	if err := checkRoot(t.InputSchema); err != nil {
		return fmt.Errorf("the schema of its arguments is no JSON Schema of an object: %w", err)
	}
	if t.OutputSchema == nil {
		return nil
	}
	if err := checkRoot(t.OutputSchema); err != nil {
		return fmt.Errorf("the schema of its results is no JSON Schema of an object: %w", err)
	}
	return nil
}

// checkRoot judges a whole schema, which MCP wants to be one of an object.
func checkRoot(schema any) error {
	object, ok := schema.(map[string]any)
	if !ok {
		return errors.New("it is no object")
	}
	if kind, given := object["type"]; given && kind != "object" {
		return errors.New(`its type is not "object"`)
	}
	return checkSchema(object, 0)
}

const maxSchemaDepth = 64

// checkSchema looks at the form of the keywords that hold schemas, types and names, in
// any draft. It leaves patterns, numbers and references alone: those that one library
// cannot read are no reason to hide a tool that works.
func checkSchema(schema any, depth int) error {
	if _, always := schema.(bool); always && depth > 0 {
		return nil
	}
	object, ok := schema.(map[string]any)
	switch {
	case !ok:
		return errors.New("a schema in it is neither an object nor true or false")
	case depth > maxSchemaDepth:
		return fmt.Errorf("it is nested more than %d deep", maxSchemaDepth)
	}
	for key, value := range object {
		if err := checkKeyword(key, value, depth); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyword(key string, value any, depth int) error {
	switch key {
	case "type":
		return checkType(value)
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		members, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object", key)
		}
		for name, schema := range members {
			if err := checkSchema(schema, depth+1); err != nil {
				return fmt.Errorf("%s: %w", words.Clip(name), err)
			}
		}
	case "items":
		if several, ok := value.([]any); ok {
			return checkAll(key, several, depth)
		}
		return checkSchema(value, depth+1)
	case "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties":
		return checkSchema(value, depth+1)
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return checkAll(key, value, depth)
	case "required":
		return checkNames(key, value)
	case "enum":
		if _, ok := value.([]any); !ok {
			return errors.New("enum is no list")
		}
	}
	return nil
}

func checkAll(key string, value any, depth int) error {
	several, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s is no list", key)
	}
	for _, schema := range several {
		if err := checkSchema(schema, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkNames(key string, value any) error {
	names, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s is no list", key)
	}
	for _, name := range names {
		if _, ok := name.(string); !ok {
			return fmt.Errorf("%s has something else than names in it", key)
		}
	}
	return nil
}

func checkType(value any) error {
	several, ok := value.([]any)
	if !ok {
		several = []any{value}
	}
	known := []any{"object", "array", "string", "number", "integer", "boolean", "null"}
	for _, kind := range several {
		if text, ok := kind.(string); !ok || !slices.Contains(known, any(text)) {
			return fmt.Errorf("%s is no type", words.Quote(fmt.Sprint(kind)))
		}
	}
	return nil
}

// approximateSize is about how many bytes a decoded value takes.
func approximateSize(v reflect.Value) int {
	const each = 16
	size := each
	switch v.Kind() {
	case reflect.String:
		size += v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			size += approximateSize(v.Elem())
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			size += approximateSize(it.Key()) + approximateSize(it.Value())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			size += approximateSize(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += approximateSize(v.Field(i))
		}
	default:
	}
	return size
}
