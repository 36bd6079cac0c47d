package openapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		SecuritySchemes map[string]struct{ Type, Scheme, In string }
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

func TestEmbeddedDescription(t *testing.T) {
	t.Parallel()
	for name, embedded := range map[string]func() []byte{"openapi.json": openapi.JSON, "openapi.yaml": openapi.YAML} {
		t.Run("is "+name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			require.True(t, bytes.Equal(text, embedded()), "run tools/generate")
		})
	}
}

// resolve follows a reference to a shared response.
func (d description) resolve(t *testing.T, r response) response {
	t.Helper()
	if r.Ref == "" {
		return r
	}
	shared, ok := d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	require.True(t, ok, "%s does not exist", r.Ref)
	return shared
}

// isAgentEndpoint selects the routes whose failures are error envelopes.
func isAgentEndpoint(route string) bool { return strings.Contains(route, " /api/agent/") }

func TestJSONAndYAMLAreEqual(t *testing.T) {
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

// TestDescriptionsContainNoGoNames: names with capitals inside are names of Go, unless they are field
// terms, the headings of a section, like “AgentCards”, or quoted names of members.
func TestDescriptionsContainNoGoNames(t *testing.T) {
	t.Parallel()
	terms := []string{"AgentCards", "GitHub", "GraphML", "JavaScript", "KiB", "MiB", "OpenAPI", "OpenID", "PageRank", "SubjectPublicKeyInfo", "TypeScript", "WebSocket", "WebSockets", "mcpServers"}
	var root any
	require.NoError(t, json.Unmarshal(openapi.JSON(), &root))
	mixed := regexp.MustCompile(`\b[A-Za-z]*[a-z][A-Z][A-Za-z]*\b|\bmap\[|\*[A-Z]`)
	texts := 0
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, v := range value {
				if text, ok := v.(string); ok && (key == "description" || key == "summary") {
					texts++
					for _, word := range mixed.FindAllString(text, -1) {
						require.True(t, slices.Contains(terms, word) || strings.Contains(text, "`"+word+"`"), "%s/%s has %s: %s", path, key, word, text)
					}
				}
				walk(path+"/"+key, v)
			}
		case []any:
			for i, v := range value {
				walk(path+"/"+strconv.Itoa(i), v)
			}
		}
	}
	walk("", root)
	require.Greater(t, texts, 1000)
}

func TestEveryOperation(t *testing.T) {
	t.Parallel()
	doc, operations := setup(t)
	require.Equal(t, "3.0.3", doc.OpenAPI)

	t.Run("has a unique operationId", func(t *testing.T) {
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

	t.Run("has a bearer scheme, the REST API also the cookie of logins, or none", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			require.NotNil(t, op.Security, "%s: neither a scheme nor an empty list", route)
			for _, requirement := range op.Security {
				for name := range requirement {
					scheme := doc.Components.SecuritySchemes[name]
					cookie := scheme.Type == "apiKey" && scheme.In == "cookie" && strings.Contains(route, " /api/v1/")
					require.True(t, cookie || scheme.Scheme == "bearer", "%s: %s", route, name)
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

	t.Run("has problem documents, or errors of the agents' protocol, for all failures", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			require.Contains(t, op.Responses, "default", route)
			failure, forbidden := "application/problem+json", len(op.Security) > 0
			if isAgentEndpoint(route) {
				failure, forbidden = "application/json", false // 5004 is 401 in any case
			}
			if strings.Contains(route, " /api/genesis/") {
				failure = "application/json"
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
				if isAgentEndpoint(route) {
					require.JSONEq(t, `{"schema":{"$ref":"#/components/schemas/ErrorEnvelope"}}`, string(content[failure]), "%s %s", route, status)
				}
			}
		}
	})

	t.Run("has a body unless the status forbids one", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			for status, r := range op.Responses {
				code, err := strconv.Atoi(status)
				without := err == nil && (code == http.StatusSwitchingProtocols || code == http.StatusNoContent || code == http.StatusNotModified)
				require.Equal(t, without, len(doc.resolve(t, r).Content) == 0, "%s %s", route, status)
			}
		}
	})

	t.Run("has X-Request-Id in all responses", func(t *testing.T) {
		t.Parallel()
		for route, op := range operations {
			for status, r := range op.Responses {
				require.Contains(t, doc.resolve(t, r).Headers, "X-Request-Id", "%s %s", route, status)
			}
		}
	})
}

// schema is the part of a schema that the descriptions are looked for in.
type schema struct {
	Ref         string            `json:"$ref"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
}

func TestEveryPartIsDescribed(t *testing.T) {
	t.Parallel()
	type described struct {
		Description string `json:"description"`
	}
	type operation struct {
		described

		Parameters []struct {
			described

			Name string `json:"name"`
		} `json:"parameters"`
		RequestBody *described `json:"requestBody"`
		Responses   map[string]struct {
			described

			Ref     string `json:"$ref"`
			Headers map[string]struct {
				described

				Ref string `json:"$ref"`
			} `json:"headers"`
		} `json:"responses"`
	}
	var doc struct {
		Paths      map[string]map[string]operation `json:"paths"`
		Webhooks   map[string]map[string]operation `json:"x-webhooks"`
		Tags       []described                     `json:"tags"`
		Components struct {
			Schemas         map[string]schema    `json:"schemas"`
			Headers         map[string]described `json:"headers"`
			Responses       map[string]described `json:"responses"`
			SecuritySchemes map[string]described `json:"securitySchemes"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))

	t.Run("every operation, parameter, body, response and header", func(t *testing.T) {
		t.Parallel()
		maps.Copy(doc.Paths, doc.Webhooks)
		for path, item := range doc.Paths {
			for method, op := range item {
				where := method + " " + path
				assert.NotEmpty(t, op.Description, where)
				for _, p := range op.Parameters {
					assert.NotEmpty(t, p.Description, "%s: parameter %s", where, p.Name)
				}
				if op.RequestBody != nil {
					assert.NotEmpty(t, op.RequestBody.Description, "%s: body", where)
				}
				for status, r := range op.Responses {
					assert.NotEmpty(t, r.Ref+r.Description, "%s: response %s", where, status)
					for name, h := range r.Headers {
						assert.NotEmpty(t, h.Ref+h.Description, "%s: header %s of response %s", where, name, status)
					}
				}
			}
		}
	})

	t.Run("every schema and member", func(t *testing.T) {
		t.Parallel()
		var check func(where string, s schema)
		check = func(where string, s schema) {
			for name, member := range s.Properties {
				// A reference is described by its target.
				assert.NotEmpty(t, member.Ref+member.Description, "%s.%s", where, name)
				check(where+"."+name, member)
			}
			if s.Items != nil {
				check(where+"[]", *s.Items)
			}
		}
		for name, s := range doc.Components.Schemas {
			assert.NotEmpty(t, s.Description, name)
			check(name, s)
		}
	})

	t.Run("every shared component", func(t *testing.T) {
		t.Parallel()
		for _, components := range []map[string]described{doc.Components.Headers, doc.Components.Responses, doc.Components.SecuritySchemes} {
			for name, c := range components {
				assert.NotEmpty(t, c.Description, name)
			}
		}
		for _, tag := range doc.Tags {
			assert.NotEmpty(t, tag.Description)
		}
	})
}
