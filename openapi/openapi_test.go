package openapi_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"comet/openapi"
)

type operation struct {
	OperationID string                      `json:"operationId"`
	Summary     string                      `json:"summary"`
	Tags        []string                    `json:"tags"`
	Security    []map[string][]string       `json:"security"`
	Parameters  []struct{ Name, In string } `json:"parameters"`
	Responses   map[string]response         `json:"responses"`
}

type response struct {
	Ref     string                     `json:"$ref"`
	Content map[string]json.RawMessage `json:"content"`
	Headers map[string]json.RawMessage `json:"headers"`
}

type description struct {
	OpenAPI    string                                `json:"openapi"`
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Tags       []struct{ Name string }               `json:"tags"`
	Components struct {
		Responses       map[string]response `json:"responses"`
		SecuritySchemes map[string]struct{ Type, Scheme string }
	} `json:"components"`
}

func setup(t *testing.T) (doc description, operations map[string]operation) {
	t.Helper()
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
	operations = map[string]operation{}
	for path, item := range doc.Paths {
		for method, raw := range item {
			var op operation
			require.NoError(t, json.Unmarshal(raw, &op), "%s %s", method, path)
			operations[strings.ToUpper(method)+" "+path] = op
		}
	}
	require.NotEmpty(t, operations)
	return doc, operations
}

// resolve follows a reference to a shared response.
func (d description) resolve(t *testing.T, r response) response {
	t.Helper()
	if r.Ref == "" {
		return r
	}
	shared, ok := d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	require.True(t, ok, "%s is not there", r.Ref)
	return shared
}

// isAgentDoor selects the routes whose failures are error envelopes.
func isAgentDoor(route string) bool { return strings.Contains(route, " /api/agent/") }

func TestJSONAndYAMLSayTheSame(t *testing.T) {
	t.Parallel()
	var fromJSON, fromYAML any
	require.NoError(t, json.Unmarshal(openapi.JSON(), &fromJSON))
	require.NoError(t, yaml.Unmarshal(openapi.YAML(), &fromYAML))
	// One round through JSON gives both the same number types.
	text, err := json.Marshal(fromYAML)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &fromYAML))
	require.Equal(t, fromJSON, fromYAML)
}

func TestEveryOperation(t *testing.T) {
	t.Parallel()
	doc, operations := setup(t)
	require.Equal(t, "3.0.3", doc.OpenAPI)

	t.Run("has an operationId of its own", func(t *testing.T) {
		t.Parallel()
		ids := map[string]string{}
		for route, op := range operations {
			require.Regexp(t, `^[a-z][A-Za-z0-9]*$`, op.OperationID, route)
			require.Empty(t, ids[op.OperationID], "%s has the same operationId", route)
			ids[op.OperationID] = route
		}
	})

	t.Run("has a summary and one declared tag", func(t *testing.T) {
		t.Parallel()
		var tags []string
		for _, tag := range doc.Tags {
			tags = append(tags, tag.Name)
		}
		for route, op := range operations {
			require.NotEmpty(t, op.Summary, route)
			require.Len(t, op.Tags, 1, route)
			require.Contains(t, tags, op.Tags[0], route)
		}
	})

	t.Run("names a bearer scheme or says that it needs none", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			require.NotNil(t, op.Security, "%s: neither a scheme nor an empty list", route)
			for _, requirement := range op.Security {
				for scheme := range requirement {
					require.Equal(t, "bearer", doc.Components.SecuritySchemes[scheme].Scheme, route)
				}
			}
			_, path, _ := strings.Cut(route, " ")
			secured := strings.HasPrefix(path, "/api/") || path == "/events/stream" // AgentCards names that one
			require.Equal(t, secured, len(op.Security) > 0, "%s: exactly the API needs a token", route)
		}
	})

	t.Run("describes its path parameters", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			for _, p := range op.Parameters {
				if p.In == "path" {
					require.Contains(t, route, "{"+p.Name+"}", route)
				}
			}
			inPath := 0
			for _, p := range op.Parameters {
				if p.In == "path" {
					inPath++
				}
			}
			require.Equal(t, strings.Count(route, "{"), inPath, route)
		}
	})

	t.Run("answers every failure with a problem document, or as the agents' protocol says it", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			require.Contains(t, op.Responses, "default", route)
			failure, forbidden := "application/problem+json", len(op.Security) > 0
			if isAgentDoor(route) {
				failure, forbidden = "application/json", false // 5004 is 401 in any case
			}
			if strings.Contains(route, " /api/v5/") {
				failure, forbidden = "text/plain", false // and so is E90
			}
			if len(op.Security) > 0 {
				require.Contains(t, op.Responses, "401", route)
			}
			_, ok := op.Responses["403"]
			require.Equal(t, forbidden, ok, route)
			for status, r := range op.Responses {
				if code, err := strconv.Atoi(status); err == nil && code < http.StatusBadRequest {
					continue
				}
				content := doc.resolve(t, r).Content
				require.Len(t, content, 1, "%s %s", route, status)
				require.Contains(t, content, failure, "%s %s", route, status)
				if isAgentDoor(route) {
					require.JSONEq(t, `{"schema":{"$ref":"#/components/schemas/ErrorEnvelope"}}`, string(content[failure]), "%s %s", route, status)
				}
			}
		}
	})

	t.Run("has a body in its answer unless the status forbids one", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			for status, r := range op.Responses {
				code, err := strconv.Atoi(status)
				without := err == nil && (code == http.StatusSwitchingProtocols || code == http.StatusNoContent || code == http.StatusNotModified)
				require.Equal(t, without, len(doc.resolve(t, r).Content) == 0, "%s %s", route, status)
			}
		}
	})

	t.Run("returns the request's id whatever the answer", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			for status, r := range op.Responses {
				require.Contains(t, doc.resolve(t, r).Headers, "X-Request-Id", "%s %s", route, status)
			}
		}
	})
}
