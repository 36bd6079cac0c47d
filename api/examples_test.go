package api

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/openapi"
)

// exampleSchema is the part of a schema that a page builds the body of a request from.
type exampleSchema struct {
	Ref        string                    `json:"$ref"`
	Type       string                    `json:"type"`
	Example    any                       `json:"example"`
	Default    any                       `json:"default"`
	Enum       []any                     `json:"enum"`
	Minimum    float64                   `json:"minimum"`
	AllOf      []exampleSchema           `json:"allOf"`
	OneOf      []exampleSchema           `json:"oneOf"`
	Items      *exampleSchema            `json:"items"`
	Properties map[string]*exampleSchema `json:"properties"`
	Additional any                       `json:"additionalProperties"`
}

// value returns the value that Swagger UI fills in.
func (s *exampleSchema) value(schemas map[string]*exampleSchema) any {
	switch {
	case s.Ref != "":
		return schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")].value(schemas)
	case s.Example != nil:
		return s.Example
	case s.Default != nil:
		return s.Default
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AllOf) > 0:
		return s.AllOf[0].value(schemas)
	case len(s.OneOf) > 0:
		return s.OneOf[0].value(schemas)
	case s.Items != nil:
		return []any{s.Items.value(schemas)}
	}
	switch s.Type {
	case "string":
		return "string"
	case "integer", "number":
		return s.Minimum
	case "boolean":
		return true
	}
	members := map[string]any{}
	for name, member := range s.Properties {
		members[name] = member.value(schemas)
	}
	if s.Additional != nil && s.Additional != false {
		members["additionalProp1"] = map[string]any{}
	}
	return members
}

// exampleBodies returns the example body of each operation that has one, by operationId.
func exampleBodies(t *testing.T) (bodies, routes map[string]string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			RequestBody struct {
				Content map[string]struct {
					Schema  exampleSchema `json:"schema"`
					Example any           `json:"example"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]*exampleSchema `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
	bodies, routes = map[string]string{}, map[string]string{}
	for path, item := range doc.Paths {
		for method, op := range item {
			for kind, content := range op.RequestBody.Content {
				value := content.Example
				if value == nil {
					value = content.Schema.value(doc.Components.Schemas)
				}
				text, err := json.Marshal(value)
				require.NoError(t, err)
				if kind == "text/plain" {
					text = []byte(value.(string))
				}
				bodies[op.OperationID], routes[op.OperationID] = string(text), strings.ToUpper(method)+" "+path
			}
		}
	}
	return bodies, routes
}

// TestExampleBodiesSucceed sends the body that the page at /docs fills in for each operation to a
// server that has the agents of examples/roster.yaml.
func TestExampleBodiesSucceed(t *testing.T) {
	t.Parallel()
	d := newTaskServer(t)
	bodies, routes := exampleBodies(t)
	text, err := os.ReadFile("../examples/roster.yaml")
	require.NoError(t, err)
	doc, found := roster.Parse(text, input.YAML)
	report, err := d.core.Registry.Import(t.Context(), models.System(), doc, found, false, nil)
	require.NoError(t, err)
	d.ask(t, "POST", "/api/v1/agents", "/api/v1/agents", `{"id":"runner","name":"Runner","level":2,"parent_id":"orch-business","type":"infra","capabilities":["run_playbook"]}`, http.StatusCreated)
	for _, agent := range append(report.Changes, registry.ImportChange{ID: "runner"}) {
		require.NoError(t, d.core.Orchestrator.ReindexAgent(t.Context(), agent.ID))
	}
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("runner"), AgentID: new("runner"), Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
	require.NoError(t, err)

	asked := d.ask(t, "POST", "/api/v1/workflows", "/api/v1/workflows", `{"workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"tasks"},"approve":true}]}}`, http.StatusOK)
	ids := map[string]string{"agent_id": "finance-personal", "upstream_id": "example", "definition_id": "nightly-report", "workflow_id": asked["workflow_id"].(string), "checkpoint_id": asked["checkpoint_id"].(string)}
	send := func(operation string) {
		body, token := bodies[operation], d.admin
		require.NotEmpty(t, body, operation)
		delete(bodies, operation)
		method, path, _ := strings.Cut(routes[operation], " ")
		address := path
		for name, id := range ids {
			address = strings.ReplaceAll(address, "{"+name+"}", id)
		}
		header := http.Header{}
		switch {
		case operation == "sendV5Messages":
			header.Set("Content-Type", "text/plain")
		case strings.HasPrefix(path, "/api/agent/inbox"), path == "/api/agent/push":
			token = issued.Secret
		}
		status, _, text := d.send(t, method, address, token, body, header)
		require.Less(t, status, 300, "%s with %s: %s", operation, body, text)
		var made struct {
			ID    string
			KeyID string `json:"key_id"`
		}
		_ = json.Unmarshal(text, &made)
		switch operation {
		case "pinPublicKey":
			ids["key_id"] = made.KeyID
		case "createReservation":
			ids["reservation_id"] = made.ID
		case "submitTask":
			ids["task_id"] = made.ID
		case "createToken":
			ids["token_id"] = made.ID
		case "createWebhook":
			ids["webhook_id"] = made.ID
		case "createSchedule":
			ids["schedule_id"] = made.ID
		}
	}
	for _, operation := range []string{
		"importRoster", "createAgent", "createReservation", "settleReservation", "submitTask", "cancelTask",
		"createToken", "createWebhook", "putAgentKey", "pinPublicKey", "openSession", "createSchedule", "startWorkflow", "decideOnCheckpoint", "putUpstream", // the other operations need what these create
	} {
		send(operation)
	}
	ended, err := d.core.Workflows.Wait(t.Context(), models.System(), ids["workflow_id"]) // a running workflow can be continued, replanned and aborted
	require.NoError(t, err)
	require.Equal(t, "complete", ended.Status)
	for operation, body := range bodies {
		var status int
		switch operation {
		case "approveTool", "classifyTool", "redeliverDeadLetters": // of a connected MCP server, or of a publication
			status = http.StatusNotFound
		case "putRemoteAgent": // reads the card, here at an address that is refused
			status, body = http.StatusUnprocessableEntity, strings.Replace(body, "agent.example", "10.0.0.1", 1)
		case "replyToTask", "replyToSession", "continueWorkflow", "abortWorkflow", "replanWorkflow": // needs an open question, or a paused workflow
			status = http.StatusConflict
		default:
			send(operation)
			continue
		}
		method, path, _ := strings.Cut(routes[operation], " ")
		address := strings.NewReplacer("{task_id}", ids["task_id"], "{upstream_id}", "example", "{session_id}", "trip-to-lisbon", "{agent_id}", "finance-personal", "{workflow_id}", ids["workflow_id"]).Replace(path)
		got, _, text := d.send(t, method, address, d.admin, body, nil)
		require.Equal(t, status, got, "%s: %s", operation, text)
	}
}
