package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// happened is a webhook of the sample API.
const happened = `
// A thing was made.
//
//	@Summary		A thing was made
//	@Description	By a client.
//	@ID				onThingMade
//	@Tags			things
//	@Param			data	body	made	true	"What was made"
//	@Router			/x-webhooks/thing.made_new [post]
func _() {}

type made struct {
	Name string  ` + "`json:\"name\" example:\"x\"`" + `
	By   *string ` + "`json:\"by\" example:\"nova\"`" + `
}
`

func TestWebhooks(t *testing.T) {
	t.Parallel()
	text, _, err := generate(write(t, general, strings.Replace(handlers, "//%RULES%", "//\t@Security", 1)+happened))
	require.NoError(t, err)
	var root any
	require.NoError(t, json.Unmarshal(text, &root))
	doc := node{t, root}
	hook := doc.at("x-webhooks", "thing.made_new", "post")

	t.Run("are no paths", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"/things", "/things/{id}"}, doc.at("paths").names())
		require.Equal(t, []string{"thing.made_new"}, doc.at("x-webhooks").names())
	})
	t.Run("send an envelope of their own around the data", func(t *testing.T) {
		t.Parallel()
		hook.at("requestBody", "content", "application/json", "schema").is(object{"$ref": "#/components/schemas/ThingMadeNewEvent"})
		event := doc.at("components", "schemas", "ThingMadeNewEvent")
		event.at("required").is([]string{"type", "timestamp", "data"})
		event.at("properties", "type").is(object{"description": "The type of the event.", "type": "string", "enum": []string{"thing.made_new"}})
		event.at("properties", "timestamp", "format").is("date-time")
		event.at("properties", "data").is(object{"$ref": "#/components/schemas/Made"})
		require.Contains(t, string(text), "\"type\": {\n            \"description\": \"The type of the event.\",\n            \"type\": \"string\",\n            \"enum\": [\n              \"thing.made_new\"")
	})
	t.Run("have data that is always whole, as an answer's is", func(t *testing.T) {
		t.Parallel()
		require.ElementsMatch(t, []any{"name", "by"}, doc.at("components", "schemas", "Made", "required").value)
		doc.at("components", "schemas", "Made", "properties", "by", "nullable").is(true)
	})
	t.Run("carry the three headers and need no token", func(t *testing.T) {
		t.Parallel()
		var names []string
		for _, p := range hook.at("parameters").value.([]any) {
			header := node{t, p}
			header.at("in").is("header")
			header.at("required").is(true)
			names = append(names, header.at("name").value.(string))
		}
		require.Equal(t, []string{"webhook-id", "webhook-timestamp", "webhook-signature"}, names)
		hook.at("security").is([]any{})
	})
	t.Run("expect any 2xx", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"2XX", "410", "default"}, hook.at("responses").names())
	})
	t.Run("are only there where there are some", func(t *testing.T) {
		t.Parallel()
		plain, err := describe(t)
		require.NoError(t, err)
		require.NotContains(t, plain.names(), "x-webhooks")
	})
}

func TestWebhooksThatAreNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"without a body":    {"//\t@Param			data	body	made	true	\"What was made\"\n", "", "is a POST with a body"},
		"by GET":            {"[post]", "[get]", "is a POST with a body"},
		"without a summary": {"//\t@Summary		A thing was made\n", "", "needs @ID, @Summary, @Description"},
		"of a bare type":    {"body	made", "body	string", "must be a named type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, happened, c.old)
			_, _, err := generate(write(t, general, handlers+strings.Replace(happened, c.old, c.new, 1)))
			require.ErrorContains(t, err, c.want)
		})
	}
}
