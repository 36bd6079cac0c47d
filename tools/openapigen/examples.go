package main

import (
	"encoding/json"

	"github.com/getkin/kin-openapi/openapi3"
)

// bodyExamples holds example bodies, by operationId, for operations whose body cannot be built from the
// examples of all members, because members exclude each other or cannot change.
var bodyExamples = map[string]string{ //nolint:gochecknoglobals // a table, never changed
	"updateAgent":          `{"name":"Updated Assistant Name","capabilities":["scheduling","reminders"],"token_budget":25000}`,
	"putAgentKey":          `{"required":true}`,
	"replyToSession":       `{"reply":"2026"}`,
	"submitTask":           `{"capabilities":["web_search"],"parameters":{"query":"trains to Lisbon"},"budget":4000}`,
	"createSchedule":       `{"cron":"30 8 * * 1-5","time_zone":"Europe/Paris","task":{"capabilities":["web_search"],"parameters":{"query":"trains to Lisbon"}}}`,
	"updateSchedule":       `{"cron":"0 9 * * *","time_zone":"Europe/Paris"}`,
	"createToken":          `{"name":"ci-importer","scopes":["agents:read","agents:write"]}`,
	"callTool":             `{"tool":"agentcards:search_tools","arguments":{"query":"read a file"}}`,
	"searchTools":          `{"query":"read a file","limit":5}`,
	"simulateToolPolicy":   `{"policy":{"deny":[{"tool":"filesystem:*"}]},"tools":["filesystem:write_file"]}`,
	"putToolPolicy":        `{"allow":[{"tool":"filesystem:write_*","arguments":{"path":"/srv/data/*"}}],"deny":[{"tool":"filesystem:delete_*"}],"classes":["read","write"]}`,
	"replanWorkflow":       `{"new_requirement":"count the words","workflow":{"tasks":[{"id":"t3","type":"code_execution","code":"return deps.t1.tools.length","depends_on":["t1"]}]}}`,
	"putDefinition":        `{"description":"Finds tools","workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"$input.query"}}]},"input_schema":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}`,
	"planWorkflow":         `{"workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"read a file"}},{"id":"t2","type":"code_execution","code":"return deps.t1.tools.length","depends_on":["t1"]}]}}`,
	"startWorkflow":        `{"workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"read a file"}},{"id":"t2","type":"code_execution","code":"return deps.t1.tools.length","depends_on":["t1"]}]}}`,
	"decideOnCheckpoint":   `{"approved":true,"feedback":"the arguments are right"}`,
	"putUpstream":          `{"url":"https://mcp.example.com/mcp"}`,
	"updateUpstream":       `{"comet":{"timeout":"45s"}}`,
	"createBudgetAddition": `{"tokens":50000,"ttl_seconds":86400,"reason":"month-end closing"}`,
	"sendV5Messages":       `"M1|User>O1|R|-|P1|N|-|0|-|-|call=web_search;query=trains"`,
}

// bodyExample sets the example of the body of op.
func (n *normaliser) bodyExample(op *openapi3.Operation) {
	text, ok := bodyExamples[op.OperationID]
	if !ok {
		return
	}
	for _, content := range op.RequestBody.Value.Content {
		if err := json.Unmarshal([]byte(text), &content.Example); err != nil {
			n.reject("example of %s: %w", op.OperationID, err)
		}
	}
}
