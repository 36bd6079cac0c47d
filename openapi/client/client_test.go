package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/oapi-codegen/nullable"
	"github.com/stretchr/testify/require"

	"comet/openapi"
	"comet/openapi/client"
)

// answering starts a server that gives one answer and returns a client of it; sent
// is the body of the last request.
func answering(t *testing.T, status int, contentType, body string) (c *client.ClientWithResponses, sent func() string) {
	t.Helper()
	bodies := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		bodies <- string(text)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	c, err := client.NewClientWithResponses(server.URL)
	require.NoError(t, err)
	return c, func() string { return <-bodies }
}

func TestPartialUpdate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patch client.AgentPatch
		want  string
	}{
		"leaves out what is not set": {client.AgentPatch{}, `{}`},
		"sends null where it is meant": {
			client.AgentPatch{ParentID: nullable.NewNullNullable[string](), TokenBudget: nullable.NewNullNullable[int64]()},
			`{"parent_id":null,"token_budget":null}`,
		},
		"sends values": {
			client.AgentPatch{TokenBudget: nullable.NewNullableWithValue(int64(25000)), IsActive: new(false), Capabilities: &[]string{}},
			`{"token_budget":25000,"is_active":false,"capabilities":[]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, sent := answering(t, http.StatusNotFound, "application/problem+json", `{"type":"/problems/not-found","title":"Not found","status":404,"code":"not-found"}`)
			answer, err := api.UpdateAgentWithResponse(t.Context(), "x", nil, c.patch)
			require.NoError(t, err)
			require.JSONEq(t, c.want, sent())
			require.Equal(t, "Not found", answer.ApplicationProblemJSON404.Title)
		})
	}

	t.Run("can tell absent from null in every member that takes null", func(t *testing.T) {
		t.Parallel()
		var doc struct {
			Components struct {
				Schemas map[string]struct {
					Properties map[string]struct{ Nullable bool }
				}
			}
		}
		require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
		for schema, patch := range map[string]reflect.Type{
			"AgentPatch": reflect.TypeFor[client.AgentPatch](), "WebhookPatch": reflect.TypeFor[client.WebhookPatch](),
		} {
			for i := range patch.NumField() {
				field := patch.Field(i)
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				threeWays := strings.HasPrefix(field.Type.String(), "nullable.Nullable[")
				require.Equal(t, doc.Components.Schemas[schema].Properties[name].Nullable, threeWays, "%s: see overlay.yaml", name)
			}
		}
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	t.Run("have pointers where null is possible", func(t *testing.T) {
		t.Parallel()
		api, _ := answering(t, http.StatusOK, "application/json",
			`{"agents":[{"id":"nova","name":"NOVA","level":0,"sphere_id":null,"frequency_hz":999,"capabilities":[],"parent_id":null,"token_budget":null,"is_active":true}],"limit":100}`)
		answer, err := api.ListAgentsWithResponse(t.Context(), &client.ListAgentsParams{Capability: &[]string{"a", "b"}})
		require.NoError(t, err)
		require.Len(t, answer.JSON200.Agents, 1)
		require.Equal(t, client.AgentLevelSystem, answer.JSON200.Agents[0].Level)
		require.Nil(t, answer.JSON200.Agents[0].TokenBudget)
		require.Nil(t, answer.JSON200.Total)
	})
	t.Run("may carry members this client does not know", func(t *testing.T) {
		t.Parallel()
		api, _ := answering(t, http.StatusOK, "application/json; charset=utf-8", `{"agents":[],"limit":1,"brand_new":{}}`)
		answer, err := api.ListAgentsWithResponse(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, answer.JSON200.Agents)
	})
	t.Run("are read from YAML with the same names", func(t *testing.T) {
		t.Parallel()
		api, _ := answering(t, http.StatusOK, "application/yaml",
			"version: 1\nagents:\n  - id: nova\n    name: NOVA\n    level: 0\n    frequency_hz: 999\n    token_budget: null\n")
		answer, err := api.ExportRosterWithResponse(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 999, answer.YAML200.Agents[0].FrequencyHz)
	})
	t.Run("of a kind that is not described are kept as they came", func(t *testing.T) {
		t.Parallel()
		api, _ := answering(t, http.StatusBadGateway, "text/html", "<h1>a proxy</h1>")
		answer, err := api.GetMeWithResponse(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadGateway, answer.StatusCode())
		require.Equal(t, "<h1>a proxy</h1>", string(answer.Body))
		require.Nil(t, answer.ApplicationProblemJSONDefault)
	})
}
