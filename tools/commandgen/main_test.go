package main

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

const testAPI = `{
  "openapi": "3.0.3", "info": {"title": "test", "version": "1"},
  "paths": {"/things": {
    "get": {"parameters": [
      {"name": "agent_id", "in": "query", "schema": {"type": "string"}, "description": "Only things of this agent. More."},
      {"name": "state", "in": "query", "schema": {"type": "string", "enum": ["new", "old"]}, "description": "Only things in this state"},
      {"name": "since", "in": "query", "schema": {"type": "string", "format": "date-time"}}
    ], "responses": {}},
    "post": {"requestBody": {"content": {"application/json": {"schema": {"properties": {
      "name": {"type": "string"}, "timeout_ms": {"type": "integer"}
    }}}}}, "responses": {}}
  }}
}`

func TestGenerate(t *testing.T) {
	t.Parallel()
	api, err := openapi3.NewLoader().LoadFromData([]byte(testAPI))
	require.NoError(t, err)

	t.Run("types, choices and help come from the API", func(t *testing.T) {
		t.Parallel()
		code, err := generate([]byte(`
commands:
  - use: things list
    request: GET /things
    params: {--agent: {}, --state: {}, --after: {to: since, help: only later ones}}
    columns: {ID: id}
  - use: things create NAME
    request: POST /things
    example: things create x
    params: {NAME: {}, --timeout: {to: timeout_ms, help: how long}}
    run: createThing
`), api)
		require.NoError(t, err)
		for _, want := range []string{
			`{"--agent", "agent_id", text, "only things of this agent"},`, `{"--state", "state", oneOf("new", "old"), "only things in this state"},`,
			`{"--after", "since", timeOrAgo, "only later ones"},`, `{"NAME", "name", text, ""},`, `{"--timeout", "timeout_ms", millis, "how long"},`,
			`{"ID", "id"},`, `example: "  things create x",`, `createThing,`,
		} {
			require.Contains(t, string(code), want)
		}
	})

	t.Run("a mistake in the table is an error", func(t *testing.T) {
		t.Parallel()
		for table, want := range map[string]string{
			"commands: [{use: things list, request: GET /others}]":                                              "the API has no GET /others",
			"commands: [{use: things list, request: GET /things, params: {--color: red}}]":                      "no parameter and no member",
			"commands: [{use: things list, request: GET /things, params: {--since: {}}}]":                       "neither the table nor the API description has a help",
			"commands: [{use: things list, request: GET /things, fixed: {color: red}}]":                         "the request has no color",
			"commands: [{use: things list, request: GET /things, params: {--x: {to: agent_id.name, help: x}}}]": `set "kind"`,
			"commands: [{use: things list, colour: red}]":                                                       "field colour not found",
		} {
			_, err := generate([]byte(table), api)
			require.ErrorContains(t, err, want, table)
		}
	})
}
