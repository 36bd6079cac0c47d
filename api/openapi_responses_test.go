package api

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// describedSchema is as much of an OpenAPI schema as the description uses.
type describedSchema struct {
	Ref        string                      `json:"$ref"`
	AllOf      []*describedSchema          `json:"allOf"`
	OneOf      []*describedSchema          `json:"oneOf"`
	Type       string                      `json:"type"`
	Format     string                      `json:"format"`
	Nullable   bool                        `json:"nullable"`
	Enum       []any                       `json:"enum"`
	Required   []string                    `json:"required"`
	Properties map[string]*describedSchema `json:"properties"`
	Items      *describedSchema            `json:"items"`
	Additional any                         `json:"additionalProperties"`
}

// violations returns every location at which a value violates the schema. An unknown member is
// a violation, except in a problem document.
func (d apiDescription) violations(at string, s *describedSchema, value any) (all []string) {
	if s.Ref != "" {
		target := d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		if target == nil {
			return []string{at + ": " + s.Ref + " is not there"}
		}
		return d.violations(at, target, value)
	}
	if value == nil {
		if !s.Nullable && s.Type != "" {
			all = append(all, at+" is null")
		}
		return all
	}
	if len(s.OneOf) > 0 {
		return d.alternatives(at, s.OneOf, value)
	}
	for _, part := range s.AllOf {
		all = append(all, d.violations(at, part, value)...)
	}
	if len(s.AllOf) > 0 {
		return all
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		all = append(all, fmt.Sprintf("%s is %v, not one of %v", at, value, s.Enum))
	}
	return append(all, d.ofType(at, s, value)...)
}

// alternatives holds a value against schemas of which it must be exactly one.
func (d apiDescription) alternatives(at string, schemas []*describedSchema, value any) (all []string) {
	fitting := 0
	for _, s := range schemas {
		differences := d.violations(at, s, value)
		if all = append(all, differences...); len(differences) == 0 {
			fitting++
		}
	}
	if fitting == 1 {
		return nil
	}
	return append(all, fmt.Sprintf("%s is %d of %d alternatives", at, fitting, len(schemas)))
}

func (d apiDescription) ofType(at string, s *describedSchema, value any) (all []string) {
	right := true
	switch v := value.(type) {
	case map[string]any:
		right = s.Type == "object" || s.Type == ""
		all = d.members(at, s, v)
	case []any:
		right = s.Type == "array" || s.Type == ""
		for i, entry := range v {
			if s.Items != nil {
				all = append(all, d.violations(at+"/"+strconv.Itoa(i), s.Items, entry)...)
			}
		}
	case string:
		right = s.Type == "string" || s.Type == ""
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339Nano, v)
			right = right && err == nil
		}
	case bool:
		right = s.Type == "boolean" || s.Type == ""
	case float64:
		right = s.Type == "number" || s.Type == "" || s.Type == "integer" && v == float64(int64(v))
	}
	if !right {
		all = append(all, fmt.Sprintf("%s is %v, not a %s %s", at, value, s.Type, s.Format))
	}
	return all
}

func (d apiDescription) members(at string, s *describedSchema, object map[string]any) (all []string) {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			all = append(all, at+"/"+name+" is missing")
		}
	}
	for name, value := range object {
		member, ok := s.Properties[name]
		switch {
		case ok:
			all = append(all, d.violations(at+"/"+name, member, value)...)
		case s.Additional == nil && s != d.Components.Schemas["Problem"] && s.Type != "":
			all = append(all, at+"/"+name+" is not described")
		}
	}
	return all
}

// send makes a request of the complete API.
func (d *describedServer) send(t *testing.T, method, address, token, body string, header http.Header) (int, http.Header, []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	for name, values := range header {
		request.Header[name] = values
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", contentTypeJSON)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, request)
	answer := w.Result()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header, text
}

// TestResponsesMatchTheDescription makes requests in order, each of them an operation of
// the description, and holds every answer against it.
func TestResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const draft = `{"id":"tester","name":"Tester","level":2,"sphere_id":9,"frequency_hz":555,"capabilities":["juggling"],"parent_id":"orch-scholar","type":"research"}`
	d, doc := newDescribedServer(t), readDescription(t)
	yamlHeader := http.Header{"Accept": {"application/yaml"}}
	for _, c := range []struct {
		method, path, address, body string
		header                      http.Header
		status                      int
	}{
		{"post", "/api/v1/agents", "/api/v1/agents", draft, nil, 201},
		{"post", "/api/v1/agents", "/api/v1/agents", draft, nil, 409},
		{"post", "/api/v1/agents", "/api/v1/agents", `{"id":"UPPER","level":9}`, nil, 400},
		{"post", "/api/v1/agents", "/api/v1/agents", strings.NewReplacer("tester", "spender", `"type"`, `"token_budget":100001,"type"`).Replace(draft), nil, 422},
		{"post", "/api/v1/agents", "/api/v1/agents", "id: x", http.Header{"Content-Type": {"text/plain"}}, 415},
		{"post", "/api/v1/agents", "/api/v1/agents", `"` + strings.Repeat("x", maxBody) + `"`, nil, 413},
		{"get", "/api/v1/agents", "/api/v1/agents", "", nil, 200},
		{"get", "/api/v1/agents", "/api/v1/agents?limit=2&sort=-name", "", nil, 200},
		{"get", "/api/v1/agents", "/api/v1/agents?limit=0&nonsense=1", "", nil, 400},
		{"get", "/api/v1/agents/{agent_id}", "/api/v1/agents/nova", "", nil, 200},
		{"get", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", "", nil, 200},
		{"get", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", "", http.Header{"If-None-Match": {"*"}}, 304},
		{"get", "/api/v1/agents/{agent_id}", "/api/v1/agents/unknown", "", nil, 404},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", `{"name":"Taster","capabilities":["tasting"]}`, nil, 200},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", `{"level":3}`, nil, 400},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", `{"description":null,"type":null}`, nil, 200},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", `{"name":"x"}`, http.Header{"If-Match": {`"99.0"`}}, 412},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/nova", `{"sphere_id":null,"parent_id":null,"token_budget":null}`, nil, 200},
		{"get", "/api/v1/agents/{agent_id}/ancestors", "/api/v1/agents/tester/ancestors", "", nil, 200},
		{"get", "/api/v1/agents/{agent_id}/audit", "/api/v1/agents/tester/audit?limit=1", "", nil, 200},
		{"patch", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", `{"budget_scope":"subtree"}`, nil, 200},
		{"get", "/api/v1/hierarchy", "/api/v1/hierarchy", "", nil, 200},
		{"get", "/api/v1/hierarchy", "/api/v1/hierarchy?usage=true", "", nil, 200},
		{"get", "/api/v1/hierarchy", "/api/v1/hierarchy?root=unknown", "", nil, 404},
		{"get", "/api/v1/roster", "/api/v1/roster", "", nil, 200},
		{"get", "/api/v1/roster", "/api/v1/roster", "", yamlHeader, 200},
		{"post", "/api/v1/roster", "/api/v1/roster?dry_run=true", `{"version":1,"agents":[` + draft + `]}`, nil, 200},
		{"post", "/api/v1/roster", "/api/v1/roster?dry_run=true", `{"version":1,"agents":[{"id":"x"}]}`, nil, 200},
		{"post", "/api/v1/roster", "/api/v1/roster", `{"version":1,"agents":[{"id":"x"}]}`, nil, 400},
		{"delete", "/api/v1/agents/{agent_id}", "/api/v1/agents/nova", "", nil, 409},
		{"delete", "/api/v1/agents/{agent_id}", "/api/v1/agents/tester", "", nil, 204},
		{"post", "/api/v1/tokens", "/api/v1/tokens", `{"name":"t","scopes":["agents:read"],"expires_at":"2099-01-01T00:00:00Z"}`, nil, 201},
		{"post", "/api/v1/tokens", "/api/v1/tokens", `{"name":"t","scopes":["agents:read"],"agent_id":null,"expires_at":null}`, nil, 201},
		{"post", "/api/v1/tokens", "/api/v1/tokens", `{"name":"t","scopes":["flying"]}`, nil, 400},
		{"get", "/api/v1/tokens", "/api/v1/tokens", "", nil, 200},
		{"get", "/api/v1/tokens/{token_id}", "/api/v1/tokens/unknown", "", nil, 404},
		{"get", "/api/v1/me", "/api/v1/me", "", nil, 200},
		{"get", "/healthz", "/healthz", "", nil, 200},
		{"get", "/readyz", "/readyz", "", nil, 200},
		{"get", "/problems/{code}", "/problems/not-found", "", nil, 200},
		{"get", "/problems/{code}", "/problems/nonsense", "", nil, 404},
		{"get", "/openapi.json", "/openapi.json", "", nil, 200},
		{"get", "/openapi.yaml", "/openapi.yaml", "", nil, 200},
		{"get", "/docs", "/docs", "", nil, 200},
	} {
		where := c.method + " " + c.address + " " + strconv.Itoa(c.status)
		status, header, body := d.send(t, strings.ToUpper(c.method), c.address, d.admin, c.body, c.header)
		require.Equal(t, c.status, status, "%s: %s", where, body)
		described, ok := doc.Paths[c.path][c.method].Responses[strconv.Itoa(status)]
		if !ok {
			described = doc.Paths[c.path][c.method].Responses["default"]
			require.GreaterOrEqual(t, status, 400, "%s is not described", where)
		}
		if described.Ref != "" {
			described = doc.Components.Responses[strings.TrimPrefix(described.Ref, "#/components/responses/")]
		}
		doc.holds(t, where, described, header, body)
	}
}

// holds compares one answer with its description.
func (d apiDescription) holds(t *testing.T, where string, r describedResponse, header http.Header, body []byte) {
	t.Helper()
	for _, name := range []string{"ETag", "Location", "Link", "Retry-After", "WWW-Authenticate", "Idempotency-Replayed"} {
		if header.Get(name) != "" {
			require.Contains(t, r.Headers, name, "%s sends it", where)
		}
	}
	if len(r.Content) == 0 {
		require.Empty(t, body, where)
		return
	}
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	require.NoError(t, err, where)
	require.Contains(t, r.Content, mediaType, where)
	var value any
	switch {
	case strings.HasSuffix(mediaType, "json"):
		require.NoError(t, json.Unmarshal(body, &value), where)
	case strings.HasSuffix(mediaType, "yaml"):
		require.NoError(t, yaml.Unmarshal(body, &value), where)
		text, err := json.Marshal(value) // the same types as from JSON
		require.NoError(t, err, where)
		require.NoError(t, json.Unmarshal(text, &value), where)
	default:
		value = string(body)
	}
	require.Empty(t, d.violations("", r.Content[mediaType].Schema, value), "%s: %s", where, body)
}
