package input

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-playground/validator/v10"

	"comet/models"
)

// ruleOf returns the rule that a field error has for a tag.
func ruleOf(tag string) string {
	switch tag {
	case "agentid":
		return "agent_id"
	case "notblank":
		return "not_blank"
	case "text":
		return "printable"
	case "gte":
		return "min"
	case "lte":
		return "max"
	}
	return tag
}

// sentence describes the rule and the value.
func sentence(pointer string, f validator.FieldError) string {
	name, value := Field(pointer), deref(f.Value())
	switch f.Tag() {
	case "required":
		return name + " is required"
	case "min", "gte", "max", "lte", "len":
		return name + " must " + bound(f.Tag(), f.Param(), value)
	case "oneof":
		return oneOf(name, strings.Fields(f.Param()), value)
	case "scope":
		names := make([]string, 0, len(models.Scopes()))
		for _, s := range models.Scopes() {
			names = append(names, string(s))
		}
		return oneOf(name, names, value)
	}
	return name + " must " + wants(f.Tag()) + came(value)
}

// oneOf describes a value that is none of the known words.
func oneOf(name string, known []string, value reflect.Value) string {
	text := fmt.Sprintf("%s must be one of %s", name, strings.Join(known, ", ")) + came(value)
	if value.Kind() == reflect.String {
		text += DidYouMean(value.String(), known)
	}
	return text
}

// wants completes “… must” for the tags of this package.
func wants(tag string) string {
	switch tag {
	case "agentid":
		return fmt.Sprintf("be 1 to %d lowercase letters and digits, in parts separated by single hyphens", MaxID)
	case "capability":
		return fmt.Sprintf("be 1 to %d of the characters A-Z a-z 0-9 _ . : / - and begin with a letter or digit, also after custom:", MaxCapability)
	case "word":
		return fmt.Sprintf("be 1 to %d lowercase letters, digits, hyphens and underscores and begin with a letter or digit", maxWord)
	case "notblank":
		return "not be blank"
	case "printable":
		return "not contain control characters"
	case "text":
		return "not contain control characters other than line breaks and tabs"
	case "unique":
		return "not contain an entry twice"
	}
	return "satisfy the rule " + strconv.Quote(tag)
}

// came returns “, not VALUE”, or "" for a value that is blank or too complex.
func came(value reflect.Value) string {
	if value.Kind() == reflect.String && strings.TrimSpace(value.String()) == "" {
		return ""
	}
	if s := show(value); s != "" {
		return ", not " + s
	}
	return ""
}

// bound completes “… must” for a limit of a number, a string or a list.
func bound(tag, limit string, value reflect.Value) string {
	way := map[string]string{"min": "at least", "gte": "at least", "max": "at most", "lte": "at most", "len": "exactly"}[tag]
	switch value.Kind() {
	case reflect.String:
		n := utf8.RuneCountInString(value.String())
		return fmt.Sprintf("be %s %s long, not %d", way, plural(limit, "character", "characters"), n)
	case reflect.Slice, reflect.Map, reflect.Array:
		return fmt.Sprintf("have %s %s, not %d", way, plural(limit, "entry", "entries"), value.Len())
	}
	return fmt.Sprintf("be %s %s, not %s", way, limit, show(value))
}

func plural(count, one, many string) string {
	if count == "1" {
		return "1 " + one
	}
	return count + " " + many
}

// show formats a scalar for a sentence, "" for other values.
func show(value reflect.Value) string {
	switch value.Kind() {
	case reflect.String:
		return Quote(value.String())
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return fmt.Sprint(value.Interface())
	}
	return ""
}

func deref(v any) reflect.Value {
	value := reflect.ValueOf(v)
	for value.Kind() == reflect.Pointer && !value.IsNil() {
		value = value.Elem()
	}
	return value
}
