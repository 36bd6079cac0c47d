package upstream

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/words"
)

// checkTool returns the reason why a tool cannot be used, nil for a usable tool.
func checkTool(t *mcp.Tool) error {
	if len(t.Name) > MaxName {
		return fmt.Errorf("its name is longer than %d bytes", MaxName)
	}
	if t.InputSchema == nil {
		return errors.New("it has no input schema")
	}
	if err := checkRoot(t.InputSchema); err != nil {
		return fmt.Errorf("its input schema is not a JSON Schema of an object: %w", err)
	}
	if t.OutputSchema == nil {
		return nil
	}
	if err := checkRoot(t.OutputSchema); err != nil {
		return fmt.Errorf("its output schema is not a JSON Schema of an object: %w", err)
	}
	return nil
}

// checkRoot checks a whole schema, which MCP requires to describe an object.
func checkRoot(schema any) error {
	object, ok := schema.(map[string]any)
	if !ok {
		return errors.New("it is not an object")
	}
	if kind, given := object["type"]; given && kind != "object" {
		return errors.New(`its type is not "object"`)
	}
	return checkSchema(object, 0)
}

const maxSchemaDepth = 64

// checkSchema checks the form of the keywords that hold schemas, types and names, in any draft.
// It does not check patterns, numbers and references, which differ between drafts and libraries:
// google/jsonschema-go, for example, rejects the boolean exclusiveMinimum of draft 4 and the
// look-ahead of ECMAScript patterns, and accepts unknown types.
func checkSchema(schema any, depth int) error {
	if _, isBool := schema.(bool); isBool && depth > 0 {
		return nil
	}
	object, ok := schema.(map[string]any)
	switch {
	case !ok:
		return errors.New("a schema in it is neither an object nor true or false")
	case depth > maxSchemaDepth:
		return fmt.Errorf("it is nested more than %d deep", maxSchemaDepth)
	}
	for keyword, value := range object {
		if err := checkKeyword(keyword, value, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyword(keyword string, value any, depth int) error {
	subschema := func(v any) error { return checkSchema(v, depth) }
	list, isList := value.([]any)
	switch keyword {
	case "type":
		if isList {
			return checkEach(keyword, list, checkType)
		}
		return checkType(value)
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		members, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not an object", keyword)
		}
		for name, schema := range members {
			if err := subschema(schema); err != nil {
				return fmt.Errorf("%s: %w", words.Clip(name), err)
			}
		}
	case "items":
		if isList {
			return checkEach(keyword, list, subschema)
		}
		return subschema(value)
	case "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties":
		return subschema(value)
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return checkEach(keyword, value, subschema)
	case "required":
		return checkEach(keyword, value, func(name any) error {
			if _, ok := name.(string); !ok {
				return errors.New("required has an entry that is not a name")
			}
			return nil
		})
	case "enum":
		return checkEach(keyword, value, func(any) error { return nil })
	}
	return nil
}

// checkEach checks the elements of a keyword that must be a list.
func checkEach(keyword string, value any, check func(any) error) error {
	list, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s is not a list", keyword)
	}
	for _, element := range list {
		if err := check(element); err != nil {
			return err
		}
	}
	return nil
}

func checkType(value any) error {
	switch value {
	case "object", "array", "string", "number", "integer", "boolean", "null":
		return nil
	}
	return fmt.Errorf("%s is not a type", words.Quote(fmt.Sprint(value)))
}

// approximateSize estimates the size of a decoded value in bytes.
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
