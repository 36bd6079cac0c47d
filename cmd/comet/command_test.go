package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"comet/cmd/comet/viewtext"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommandTable compares every row of the table with the API description: its request, its
// parameters with their types and choices, and the members of the response that it prints.
func TestCommandTable(t *testing.T) {
	t.Parallel()
	api := readDescription(t)
	for _, row := range commandTable() {
		t.Run(row.use, func(t *testing.T) {
			t.Parallel()
			if row.request == "" {
				require.NotNil(t, row.run, "a command without a request runs a function")
				return
			}
			method, path, _ := strings.Cut(row.request, " ")
			op := api.at("paths", path, strings.ToLower(method))
			require.NotNil(t, op, "the API has no %s", row.request)
			schemas := api.parameters(op)
			for _, p := range row.params {
				if p.to == "*" || p.to == "" {
					continue
				}
				schema := api.member(schemas, strings.TrimPrefix(p.to, "?"))
				if assert.NotNil(t, schema, "%s: the request has no %s", p.name, p.to) {
					requireKind(t, p, schema)
				}
			}
			for to := range row.fixed {
				require.NotNil(t, api.member(schemas, to), "the request has no %s", to)
			}
			for _, name := range row.required {
				for _, flag := range regexp.MustCompile("[|,]").Split(name, -1) {
					require.True(t, slices.ContainsFunc(row.params, func(p param) bool { return p.display() == flag }), flag)
				}
			}
			requireView(t, api, row, api.response(op))
		})
	}
}

// requireKind checks the kind of a parameter and its choices.
func requireKind(t *testing.T, p param, schema object) {
	t.Helper()
	if len(schema) == 0 || isHeader(p.to) {
		return // the API does not describe it, or as text
	}
	want := "string"
	switch {
	case p.kind.boolean:
		want = "boolean"
	case p.kind.separator != "":
		want = "object"
	case p.kind.list && p.flag() != "" && !p.kind.joined, p.kind.array:
		want = "array"
	case p.kind.unit > 0, p.kind.placeholder == "number":
		want = "integer"
	case p.kind.placeholder == "object":
		want = "object"
	}
	if schema["type"] == nil && want == "object" {
		want = ""
	}
	kind, _ := schema["type"].(string)
	assert.Equal(t, want, kind, p.name)
	if choices, ok := schema["enum"].([]any); ok && !p.kind.list {
		var values []string
		for _, c := range choices {
			if text, ok := c.(string); ok {
				values = append(values, text)
			}
		}
		if kind == "string" && p.to != "event" {
			given := slices.DeleteFunc(slices.Clone(p.kind.choices), func(c string) bool { return c == "none" && !slices.Contains(values, c) })
			assert.ElementsMatch(t, values, given, p.name)
		}
	}
}

// requireView renders what the row prints with a response that has every member, and with one
// that has the required members alone.
func requireView(t *testing.T, api description, row command, schema object) {
	t.Helper()
	if row.message+row.rows+row.pages+row.table+row.after == "" && row.fields == nil {
		return
	}
	arguments := map[string]any{}
	for _, name := range argumentNames(row.use) {
		arguments[strings.ReplaceAll(name, ":", "_")] = "x"
	}
	for _, complete := range []bool{true, false} {
		data, _ := api.sample(schema, complete).(map[string]any)
		if data == nil {
			data = map[string]any{}
		}
		entries := []any{}
		if member := row.rows + row.pages; member != "" {
			entries, _ = data[member].([]any)
			require.NotEmpty(t, entries, "the response has no %s", member)
		}
		var object any = data
		if row.run != nil && len(row.columns) > 0 {
			object = entries[0] // the function chooses between a list and one of its entries
		}
		for _, c := range row.fields {
			requireColumn(t, c, object, complete)
		}
		for _, c := range row.columns {
			requireColumn(t, c, entries[0], complete)
		}
		maps.Copy(data, arguments)
		body, err := json.Marshal(data)
		require.NoError(t, err)
		data["BODY"] = string(body)
		for name, text := range map[string]string{
			"message": row.message, "empty": row.empty, "table": row.table, "after": row.after, "failed": row.failed,
		} {
			requireColumn(t, column{name, text}, data, complete)
		}
		if row.secret != "" && complete {
			require.Contains(t, data, row.secret)
		}
	}
}

func requireColumn(t *testing.T, c column, data any, complete bool) {
	t.Helper()
	if c.value == "" {
		return
	}
	if isMember.MatchString(c.value) {
		if text, err := c.render(data, ",", "absent"); complete {
			require.NoError(t, err)
			require.NotEqual(t, "absent", text, "the response has no %s", c.value)
		}
		return
	}
	option := "missingkey=default"
	if complete {
		option = "missingkey=error"
	}
	tmpl, err := template.New(c.head).Funcs(viewtext.Funcs()).Funcs(viewFuncs).Option(option).Parse(c.value)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, tmpl.Execute(&b, data), "%v", data)
	require.NotContains(t, b.String(), "<no value>")
	require.NotContains(t, b.String(), "<nil>")
}

type object = map[string]any

// description is the API description (OpenAPI 3).
type description struct{ root object }

func readDescription(t *testing.T) description {
	t.Helper()
	data, err := os.ReadFile("../../openapi/openapi.json")
	require.NoError(t, err)
	var d description
	require.NoError(t, json.Unmarshal(data, &d.root))
	return d
}

// at follows names from the root.
func (d description) at(names ...string) object {
	at := d.root
	for _, name := range names {
		at, _ = at[name].(object)
	}
	return at
}

// resolve follows a reference, and merges what allOf has.
func (d description) resolve(v any) object {
	schema, _ := v.(object)
	if ref, ok := schema["$ref"].(string); ok {
		return d.resolve(d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
	}
	parts, ok := schema["allOf"].([]any)
	if !ok {
		return schema
	}
	out := maps.Clone(schema)
	for _, part := range parts {
		for name, value := range d.resolve(part) {
			if out[name] == nil {
				out[name] = value
			}
		}
	}
	return out
}

// parameters are the schemas of an operation's parameters and of its body's members.
func (d description) parameters(op object) object {
	out := object{}
	all, _ := op["parameters"].([]any)
	for _, p := range all {
		p := d.resolve(p)
		name, _ := p["name"].(string)
		out[name] = p["schema"]
	}
	for name, member := range d.properties(d.content(d.resolve(op["requestBody"]))) {
		out[name] = member
	}
	return out
}

// properties are those of a schema, of each of its alternatives.
func (d description) properties(schema object) object {
	out := object{}
	for _, alternative := range []string{"oneOf", "anyOf"} {
		all, _ := schema[alternative].([]any)
		for _, one := range all {
			maps.Copy(out, d.properties(d.resolve(one)))
		}
	}
	own, _ := schema["properties"].(object)
	maps.Copy(out, own)
	return out
}

// content is the schema of a JSON body.
func (d description) content(body object) object {
	content, _ := body["content"].(object)
	media, _ := content["application/json"].(object)
	return d.resolve(media["schema"])
}

// member finds a member such as "overrun.action", nil for none.
func (d description) member(schemas object, path string) object {
	var schema object
	for i, name := range strings.Split(path, ".") {
		if i > 0 && len(schemas) == 0 {
			return object{} // the API describes no members
		}
		if schemas[name] == nil {
			return nil
		}
		schema = d.resolve(schemas[name])
		schemas = d.properties(schema)
	}
	return schema
}

// response is the schema of a successful response.
func (d description) response(op object) object {
	responses, _ := op["responses"].(object)
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if strings.HasPrefix(status, "2") {
			return d.content(d.resolve(responses[status]))
		}
	}
	return nil
}

// maxDepth limits the sample of a recursive schema.
const maxDepth = 8

// sample is a value of a schema: a complete one, or one without optional members and with null
// where it may be.
func (d description) sample(v any, complete bool) any { return d.sampleAt(v, complete, 0) }

func (d description) sampleAt(v any, complete bool, depth int) any {
	schema := d.resolve(v)
	if schema["nullable"] == true && !complete {
		return nil
	}
	switch schema["type"] {
	case "integer":
		return int64(1)
	case "number":
		return 1.5
	case "boolean":
		return true
	case "string":
		return strings.Repeat("x", 64)
	case "array":
		if depth > maxDepth {
			return []any{}
		}
		return []any{d.sampleAt(schema["items"], complete, depth+1)}
	}
	out := map[string]any{}
	required, _ := schema["required"].([]any)
	for name, member := range d.properties(schema) {
		if complete || slices.Contains(required, any(name)) {
			out[name] = d.sampleAt(member, complete, depth+1)
		}
	}
	return out
}
