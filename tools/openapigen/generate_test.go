package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const general = `package api

//	@title			sample
//	@version		1.0.0
//	@description	A sample.
//	@contact.name	comet
//	@host			127.0.0.1:8080
//	@BasePath		/
//	@schemes		http
//	@tag.name		things
//	@tag.description	All things.
//	@securityDefinitions.apikey	BearerAuth
//	@in				header
//	@name			Authorization
//	@description	A token.
//	@securityDefinitions.apikey	LoginCookie
//	@in				cookie
//	@name			session
//	@description	A cookie.
`

// handlers is an API with one of everything; %RULES% is where a test adds lines
// to the annotations of getThing.
const handlers = `package api

import "time"

type problem struct {
	Title string ` + "`json:\"title\" example:\"Not found\"`" + `
}

// color is one of two.
type color string

const (
	colorRed   color = "red"
	colorGreen color = "green"
)

type base struct {
	ID int64 ` + "`json:\"id\" example:\"7\"`" + `
}

type thing struct {
	base
	Name  string     ` + "`json:\"name\" example:\"No\"`" + `
	Color color      ` + "`json:\"color\" example:\"green\"`" + `
	Owner *string    ` + "`json:\"owner\" example:\"nova\"`" + `
	Note  *string    ` + "`json:\"note,omitempty\" example:\"-\"`" + `
	At    time.Time  ` + "`json:\"at\" example:\"2026-01-10T15:30:00Z\"`" + `
	Tags  []string   ` + "`json:\"tags\" example:\"a,b\"`" + `
	Sums  []int64    ` + "`json:\"sums\" example:\"1,2\"`" + `
	Shape *shape     ` + "`json:\"shape\"`" + `
	Any   any        ` + "`json:\"any\"`" + `
}

type shape struct {
	Sides int ` + "`json:\"sides\" example:\"3\"`" + `
}

type oneOrMany struct {
	One  *shape ` + "`json:\"one\" extensions:\"x-one-of\"`" + `
	Many *pile  ` + "`json:\"many\" extensions:\"x-one-of\"`" + `
}

type pile struct {
	Shapes []shape ` + "`json:\"shapes\"`" + `
}

type red struct {
	Kind string ` + "`json:\"kind\" validate:\"required\" enums:\"red\"`" + `
}

type green struct {
	Kind string ` + "`json:\"kind\" validate:\"required\" enums:\"green\"`" + `
}

type either struct {
	Red   *red   ` + "`json:\"red\" extensions:\"x-one-of\"`" + `
	Green *green ` + "`json:\"green\" extensions:\"x-one-of\"`" + `
}

type ErrorEnvelope struct {
	Type string ` + "`json:\"type\"`" + `
}

type mixed struct {
	One  *shape ` + "`json:\"one\" extensions:\"x-one-of\"`" + `
	Note string ` + "`json:\"note\"`" + `
}

type page[T any] struct {
	Items []T ` + "`json:\"items\"`" + `
}

type draft struct {
	Name  *string ` + "`json:\"name\" validate:\"required,max=10\" example:\"x\"`" + `
	Color *color  ` + "`json:\"color\" example:\"red\"`" + `
	Owner *string ` + "`json:\"owner\" example:\"nova\" extensions:\"x-nullable\"`" + `
}

// getThing gets one.
//
//	@Summary		Get a thing
//	@Description	Gets it.
//	@ID				getThing
//	@Tags			things
//	@Produce		json,application/yaml
//	@Param			id		path	string		true	"Its id"	maxlength(64)	example(7)
//	@Param			tag		query	[]string	false	"Only with these"	collectionFormat(multi)	example(a,b)
//	@Param			limit	query	int			false	"Size"	minimum(1)	maximum(9)	default(3)
//	@Success		200	{object}	thing	"The thing"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	X-Own "Ours"
//	@Success		304	"Nothing new"
//	@Failure		404	"No such thing"
//	@Failure		500	{object}	problem	"Sorry"
//	@Router			/things/{id} [get]
//%RULES%
func getThing() {}

// addThing adds one.
//
//	@Summary		Add a thing
//	@Description	Adds it.
//	@ID				addThing
//	@Tags			things
//	@Accept			json,application/yaml
//	@Security		BearerAuth[things:write]
//	@Param			body	body	draft	true	"The thing"
//	@Success		204	"Added"
//	@Router			/things [post]
func addThing() {}
`

// write makes a module of the sources and returns the folder of its package.
func write(t *testing.T, general, handlers string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26.0\n", "api/doc.go": general, "api/handlers.go": handlers,
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return []string{filepath.Join(dir, "api")}
}

// describe generates the description of the sample with extra annotations for
// getThing.
func describe(t *testing.T, rules ...string) (node, error) {
	t.Helper()
	if len(rules) == 0 {
		rules = []string{"@Security"}
	}
	text, _, err := generate(write(t, general, strings.Replace(handlers, "//%RULES%", "//\t"+strings.Join(rules, "\n//\t"), 1)))
	if err != nil {
		return node{}, err
	}
	var root any
	require.NoError(t, json.Unmarshal(text, &root))
	return node{t, root}, nil
}

// node is a place in a JSON document.
type node struct {
	t     *testing.T
	value any
}

// at follows the path; its parts are members' names.
func (n node) at(path ...string) node {
	n.t.Helper()
	v := n.value
	for _, name := range path {
		object, ok := v.(map[string]any)
		require.True(n.t, ok, "%v: %s is in no object", path, name)
		v, ok = object[name]
		require.True(n.t, ok, "%v: no %s among %v", path, name, slices.Sorted(maps.Keys(object)))
	}
	return node{n.t, v}
}

func (n node) is(want any) {
	n.t.Helper()
	text, err := json.Marshal(want)
	require.NoError(n.t, err)
	got, err := json.Marshal(n.value)
	require.NoError(n.t, err)
	require.JSONEq(n.t, string(text), string(got))
}

func (n node) names() []string {
	n.t.Helper()
	return slices.Sorted(maps.Keys(n.value.(map[string]any)))
}

type object = map[string]any

func TestSchemas(t *testing.T) {
	t.Parallel()
	doc, err := describe(t)
	require.NoError(t, err)
	schemas := doc.at("components", "schemas")
	member := func(name string) node { return schemas.at("Thing", "properties", name) }

	t.Run("are named like the Go types, without the package", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"Color", "Draft", "Problem", "Shape", "Thing"}, schemas.names())
		doc.at("paths", "/things/{id}", "get", "responses", "200", "content", "application/json", "schema").
			is(object{"$ref": "#/components/schemas/Thing"})
	})
	t.Run("of answers require every member that is always sent", func(t *testing.T) {
		t.Parallel()
		require.ElementsMatch(t, []any{"id", "name", "color", "owner", "at", "tags", "sums", "shape", "any"},
			schemas.at("Thing", "required").value)
	})
	t.Run("of requests require what validation requires", func(t *testing.T) {
		t.Parallel()
		schemas.at("Draft", "required").is([]string{"name"})
	})
	t.Run("of answers take null where a nil pointer is sent", func(t *testing.T) {
		t.Parallel()
		member("owner").is(object{"type": "string", "nullable": true, "example": "nova"})
		member("note").is(object{"type": "string", "example": "-"})
	})
	t.Run("of requests take null where the tag says so", func(t *testing.T) {
		t.Parallel()
		schemas.at("Draft", "properties", "owner", "nullable").is(true)
		require.NotContains(t, schemas.at("Draft", "properties", "name").names(), "nullable")
	})
	t.Run("wrap a reference that may be null and give it a type", func(t *testing.T) {
		t.Parallel()
		member("shape").is(object{"type": "object", "nullable": true, "allOf": []object{{"$ref": "#/components/schemas/Shape"}}})
	})
	t.Run("have the formats of the Go types", func(t *testing.T) {
		t.Parallel()
		member("id").is(object{"type": "integer", "format": "int64", "example": 7})
		member("at").is(object{"type": "string", "format": "date-time", "example": "2026-01-10T15:30:00Z"})
		member("sums").is(object{"type": "array", "items": object{"type": "integer", "format": "int64"}, "example": []int{1, 2}})
	})
	t.Run("have lists as examples of lists", func(t *testing.T) {
		t.Parallel()
		member("tags").is(object{"type": "array", "items": object{"type": "string"}, "example": []string{"a", "b"}})
	})
	t.Run("of enums name the values without the type, have the comment of the type, and keep examples beside the reference", func(t *testing.T) {
		t.Parallel()
		schemas.at("Color").is(object{"description": "One of two.", "type": "string", "enum": []string{"red", "green"}, "x-enum-varnames": []string{"Red", "Green"}})
		member("color").is(object{"allOf": []object{{"$ref": "#/components/schemas/Color"}}, "example": "green"})
	})
	t.Run("of generic types are named after both types", func(t *testing.T) {
		t.Parallel()
		doc, err := describe(t, "@Security", `@Success 203 {object} page[thing] "x"`)
		require.NoError(t, err)
		doc.at("components", "schemas", "PageThing").is(object{
			"type": "object", "required": []string{"items"},
			"properties": object{"items": object{"type": "array", "items": object{"$ref": "#/components/schemas/Thing"}}},
		})
	})
	t.Run("that stand for alternatives are one of them", func(t *testing.T) {
		t.Parallel()
		doc, err := describe(t, "@Security", `@Success 203 {object} oneOrMany "x"`)
		require.NoError(t, err)
		schemas := doc.at("components", "schemas")
		schemas.at("OneOrMany").is(object{"oneOf": []object{{"$ref": "#/components/schemas/Shape"}, {"$ref": "#/components/schemas/Pile"}}})
		schemas.at("Pile", "required").is([]string{"shapes"})
	})
	t.Run("that stand for alternatives are distinguished by the member that says which it is", func(t *testing.T) {
		t.Parallel()
		doc, err := describe(t, "@Security", `@Success 203 {object} either "x"`)
		require.NoError(t, err)
		doc.at("components", "schemas", "Either", "discriminator").is(object{
			"propertyName": "kind", "mapping": object{"red": "#/components/schemas/Red", "green": "#/components/schemas/Green"},
		})
	})
	t.Run("leave anything open that is any", func(t *testing.T) {
		t.Parallel()
		member("any").is(object{})
	})
}

// TestAgentEndpoints is about operations whose failures are messages.
func TestAgentEndpoints(t *testing.T) {
	t.Parallel()
	doc, err := describe(t, "@Security BearerAuth", `@x-comet-failures "ErrorEnvelope"`, `@Success 101 "Another protocol"`,
		`@Failure 418 {object} ErrorEnvelope "x"`, `@Param body body draft true "x"`, `@Accept json`, `@x-comet-example {"name":"y"}`)
	require.NoError(t, err)
	op := doc.at("paths", "/things/{id}", "get")
	failure := object{"application/json": object{"schema": object{"$ref": "#/components/schemas/ErrorEnvelope"}}}

	t.Run("its failures are messages, its own and those it shares", func(t *testing.T) {
		t.Parallel()
		op.at("responses", "404", "content").is(failure)
		op.at("responses", "418", "content").is(failure)
		for status, name := range map[string]string{
			"401": "AgentUnauthenticated", "413": "AgentBodyTooLarge", "415": "AgentUnsupportedMediaType", "429": "AgentTooManyRequests", "default": "AgentFailure",
		} {
			op.at("responses", status).is(object{"$ref": "#/components/responses/" + name})
			doc.at("components", "responses", name, "content").is(failure)
		}
		require.NotContains(t, op.at("responses").names(), "403")
	})
	t.Run("a change of protocols has no body", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"description", "headers"}, op.at("responses", "101").names())
	})
	t.Run("its body has an example, and nothing is left of the annotations", func(t *testing.T) {
		t.Parallel()
		op.at("requestBody", "content", "application/json", "example").is(object{"name": "y"})
		require.NotContains(t, op.names(), "x-comet-example")
		require.NotContains(t, op.names(), "x-comet-failures")
	})
	t.Run("the others have problem documents", func(t *testing.T) {
		t.Parallel()
		doc.at("paths", "/things", "post", "responses", "401").is(object{"$ref": "#/components/responses/Unauthenticated"})
	})
}

func TestOperations(t *testing.T) {
	t.Parallel()
	doc, err := describe(t)
	require.NoError(t, err)
	get, add := doc.at("paths", "/things/{id}", "get"), doc.at("paths", "/things", "post")

	t.Run("are public only when they say so, with an empty list", func(t *testing.T) {
		t.Parallel()
		get.at("security").is([]any{})
		doc.at("components", "securitySchemes").is(object{
			"BearerAuth":  object{"type": "http", "scheme": "bearer", "description": "A token."},
			"LoginCookie": object{"type": "apiKey", "in": "cookie", "name": "session", "description": "A cookie."},
		})
	})
	t.Run("name the scope outside the requirement, because 3.0 cannot express it", func(t *testing.T) {
		t.Parallel()
		add.at("security").is([]object{{"BearerAuth": []any{}}})
		add.at("x-required-scopes").is([]string{"things:write"})
		add.at("description").is("Adds it.\n\nRequires the scope `things:write`.")
	})
	t.Run("get the failures every such operation has", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"200", "304", "400", "404", "500", "default"}, get.at("responses").names())
		require.Equal(t, []string{"204", "400", "401", "403", "413", "415", "429", "default"}, add.at("responses").names())
		add.at("responses", "401").is(object{"$ref": "#/components/responses/Unauthenticated"})
	})
	t.Run("answer failures with problem documents", func(t *testing.T) {
		t.Parallel()
		want := object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}
		get.at("responses", "404", "content").is(want)
		get.at("responses", "500", "content").is(want)
		doc.at("components", "responses", "Failure", "content").is(want)
	})
	t.Run("have no body where the status forbids one", func(t *testing.T) {
		t.Parallel()
		require.NotContains(t, get.at("responses", "304").names(), "content")
		require.NotContains(t, add.at("responses", "204").names(), "content")
	})
	t.Run("take and give YAML where annotated", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"application/json", "application/yaml"}, add.at("requestBody", "content").names())
		require.Equal(t, []string{"application/json", "application/yaml"}, get.at("responses", "200", "content").names())
	})
	t.Run("have the shared headers by reference and their own in place", func(t *testing.T) {
		t.Parallel()
		headers := get.at("responses", "200", "headers")
		require.Equal(t, []string{"ETag", "X-Own", "X-Request-Id"}, headers.names())
		headers.at("ETag").is(object{"$ref": "#/components/headers/ETag"})
		headers.at("X-Own").is(object{"description": "Ours", "schema": object{"type": "string"}})
		get.at("responses", "304", "headers", "ETag").is(object{"$ref": "#/components/headers/ETag"})
		require.Contains(t, add.at("responses", "204", "headers").names(), "RateLimit-Limit")
	})
	t.Run("keep examples, bounds and styles of parameters", func(t *testing.T) {
		t.Parallel()
		get.at("parameters").is([]object{
			{"name": "id", "in": "path", "required": true, "description": "Its id", "example": "7", "schema": object{"type": "string", "maxLength": 64}},
			{"name": "tag", "in": "query", "description": "Only with these", "style": "form", "explode": true, "example": []string{"a", "b"},
				"schema": object{"type": "array", "items": object{"type": "string"}}},
			{"name": "limit", "in": "query", "description": "Size", "schema": object{"type": "integer", "minimum": 1, "maximum": 9, "default": 3}},
		})
	})
	t.Run("stand below the server's own address first", func(t *testing.T) {
		t.Parallel()
		var urls []any
		for _, s := range doc.at("servers").value.([]any) {
			urls = append(urls, s.(object)["url"])
		}
		require.Equal(t, []any{"/", "http://127.0.0.1:8080"}, urls)
	})
	t.Run("lead to every shared component there is", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"BodyTooLarge", "Failure", "Forbidden", "TooManyRequests", "Unauthenticated", "UnsupportedMediaType"},
			doc.at("components", "responses").names())
		require.NotContains(t, doc.at("components", "headers").names(), "Link", "nothing refers to it")
	})
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules []string
		want  string
	}{
		"no word on security":                      {[]string{"@Deprecated"}, "GET /things/{id}: no @Security"},
		"a security scheme that is not there":      {[]string{"@Security Other"}, "@Security Other is not defined"},
		"a second tag":                             {[]string{"@Security", "@Tags other"}, "exactly one @Tags"},
		"a body on 204":                            {[]string{"@Security", `@Success 204 {object} thing "x"`}, "GET /things/{id} 204: this status has no body"},
		"a success without a schema":               {[]string{"@Security", `@Success 202 "x"`}, "GET /things/{id} 202: no schema"},
		"an unknown header":                        {[]string{"@Security", `@Header 200 {string} X-Odd`}, "header X-Odd needs a description"},
		"a type that is not there":                 {[]string{"@Security", `@Success 203 {object} nothing "x"`}, "nothing"},
		"alternatives among members":               {[]string{"@Security", `@Success 203 {object} mixed "x"`}, "Mixed: either all members are x-one-of or none"},
		"a path parameter that is not in the path": {[]string{"@Security", `@Param other path string true "x"`}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := describe(t, c.rules...)
			require.ErrorContains(t, err, c.want)
		})
	}

	t.Run("all of them at once", func(t *testing.T) {
		t.Parallel()
		_, err := describe(t, "@Security", "@Tags other", `@Success 202 "x"`)
		require.ErrorContains(t, err, "exactly one @Tags")
		require.ErrorContains(t, err, "202: no schema")
	})
	t.Run("no problem document", func(t *testing.T) {
		t.Parallel()
		_, _, err := generate(write(t, general, strings.NewReplacer("problem", "mistake", "//%RULES%", "//\t@Security").Replace(handlers)))
		require.ErrorContains(t, err, "no schema Problem")
	})
	t.Run("two types of one name", func(t *testing.T) {
		t.Parallel()
		_, err := shortNames([]string{"api.thing", "models.Thing"})
		require.ErrorContains(t, err, "api.thing and models.Thing")
	})
}

func TestOutput(t *testing.T) {
	t.Parallel()
	dirs := write(t, general, strings.Replace(handlers, "//%RULES%", "//\t@Security", 1))
	jsonText, yamlText, err := generate(dirs)
	require.NoError(t, err)

	t.Run("is the same for the same input", func(t *testing.T) {
		t.Parallel()
		for range 10 {
			again, againYAML, err := generate(dirs)
			require.NoError(t, err)
			require.Equal(t, string(jsonText), string(again))
			require.Equal(t, string(yamlText), string(againYAML))
		}
	})
	t.Run("says the same in both forms, also to YAML 1.1 readers", func(t *testing.T) {
		t.Parallel()
		var fromYAML any
		require.NoError(t, yaml.Unmarshal(yamlText, &fromYAML))
		text, err := json.Marshal(fromYAML)
		require.NoError(t, err)
		require.JSONEq(t, string(jsonText), string(text))
		require.Contains(t, string(yamlText), `example: "No"`)
	})
	t.Run("has the members of a schema in the order of the Go type", func(t *testing.T) {
		t.Parallel()
		last := 0
		thing := string(yamlText[strings.Index(string(yamlText), "    Thing:"):])
		for _, name := range []string{"id", "name", "color", "owner", "note", "at", "tags", "sums", "shape", "any"} {
			at := strings.Index(thing, "        "+name+":")
			require.Greater(t, at, last, name)
			last = at
		}
	})
	t.Run("goes to two files", func(t *testing.T) {
		t.Parallel()
		out := t.TempDir()
		require.NoError(t, run(dirs[0], nil, out))
		for name, want := range map[string][]byte{"openapi.json": jsonText, "openapi.yaml": yamlText} {
			got, err := os.ReadFile(filepath.Join(out, name))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		}
	})
}

// conventional is an API whose annotations state only what is special about an operation.
const conventional = `package api

type thing struct {
	Name string ` + "`json:\"name\" example:\"x\"`" + `
}

//	@Summary		List things
//	@Description	Lists them.
//	@Tags			things
//	@Security		BearerAuth[things:read]
//	@Param			q		query	string	false	"Only with this"
//	@Param			cursor	query	string	false	"Where the page starts"
//	@Success		200	{object}	thing	"A page"
//	@Router			/things [get]
func listThings() {}

//	@Summary		Add a thing
//	@Description	Adds it.
//	@Tags			things
//	@Security		BearerAuth[things:write]
//	@Param			Idempotency-Key	header	string	false	"A key"
//	@Param			body			body	thing	true	"The thing"
//	@Success		201	{object}	thing	"Added"
//	@Failure		404	{object}	problem	"No such owner"
//	@Router			/things [post]
func (s *Server) addThing() {}

type problem struct {
	Title string ` + "`json:\"title\" example:\"x\"`" + `
}

//	@Summary		Get fresh things
//	@Description	Gets them.
//	@ID				freshThings
//	@Tags			things
//	@Security		BearerAuth[things:read]
//	@Success		200	{object}	thing	"The thing"
//	@Header			200	{string}	Cache-Control
//	@Router			/fresh [get]
func getFresh() {}
`

func TestConventions(t *testing.T) {
	t.Parallel()
	text, _, err := generate(write(t, general, conventional))
	require.NoError(t, err)
	var root any
	require.NoError(t, json.Unmarshal(text, &root))
	doc := node{t, root}
	list, add, fresh := doc.at("paths", "/things", "get"), doc.at("paths", "/things", "post"), doc.at("paths", "/fresh", "get")
	parameters := func(n node) (names []string) {
		for _, p := range n.at("parameters").value.([]any) {
			names = append(names, p.(object)["name"].(string))
		}
		return names
	}

	t.Run("an operation is named after its function, unless it has an id", func(t *testing.T) {
		t.Parallel()
		list.at("operationId").is("listThings")
		add.at("operationId").is("addThing")
		fresh.at("operationId").is("freshThings")
	})
	t.Run("a list with a cursor has a limit before it, and links", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"q", "limit", "cursor", "If-None-Match"}, parameters(list))
		list.at("responses", "200", "headers", "Link").is(object{"$ref": "#/components/headers/Link"})
	})
	t.Run("a read is conditional, unless it has rules of its own for caches", func(t *testing.T) {
		t.Parallel()
		list.at("responses", "200", "headers", "ETag").is(object{"$ref": "#/components/headers/ETag"})
		require.Equal(t, []string{"200", "304", "400", "401", "403", "429", "default"}, list.at("responses").names())
		require.Equal(t, []string{"200", "401", "403", "429", "default"}, fresh.at("responses").names())
		require.NotContains(t, fresh.at("responses", "200", "headers").names(), "ETag")
	})
	t.Run("a request with an idempotency key can be a repetition, or a misuse of the key", func(t *testing.T) {
		t.Parallel()
		add.at("responses", "201", "headers", "Idempotency-Replayed").is(object{"$ref": "#/components/headers/Idempotency-Replayed"})
		require.Contains(t, add.at("responses").names(), "409")
	})
	t.Run("bodies are JSON unless the annotations name another type", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"application/json"}, add.at("requestBody", "content").names())
		require.Equal(t, []string{"application/json"}, list.at("responses", "200", "content").names())
	})
}
