//go:build ignore

// Command tour is the tour of the API with the client that oapi-codegen generates at default settings. ../run
// generates the client beside this file and runs both against a new server, COMET_URL, with its
// admin token, COMET_TOKEN.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	received := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct{ Type string }
		check(json.NewDecoder(r.Body).Decode(&event))
		received <- event.Type
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	api := client(os.Getenv("COMET_TOKEN"))

	// A webhook, tested before the first event.
	hook := must(api.CreateWebhookWithResponse(ctx, nil, WebhookDraft{Url: receiver.URL, Events: []WebhookDraftEvents{WebhookDraftEventsAgentCreated}})).JSON201
	tested := must(api.TestWebhookWithResponse(ctx, hook.Id)).JSON200
	equal("the test of the webhook", true, tested.Succeeded)
	equal("the received test", "webhook.test", <-received)

	// Agents of the four levels; the server has the one of level 0.
	parent := "nova"
	for _, draft := range []AgentDraft{
		{Id: "tour-lead", Name: "Tour Lead", Level: AgentLevelOrchestrator},
		{Id: "tour-expert", Name: "Tour Expert", Level: AgentLevelSpecialist, TokenBudget: new(int64(1000))},
		{Id: "tour-counter", Name: "Tour Counter", Level: AgentLevelAssistant, Type: new("counter"), Capabilities: &[]string{"count"}},
	} {
		draft.ParentId, draft.SphereId = &parent, new(1)
		created := must(api.CreateAgentWithResponse(ctx, &CreateAgentParams{IdempotencyKey: &draft.Id}, draft)).JSON201
		equal("the received event", "agent.created", <-received)
		parent = created.Id
	}
	second := must(api.CreateAgentWithResponse(ctx, nil, AgentDraft{Id: "nova-2", Name: "NOVA 2", Level: AgentLevelSystem}))
	equal("a second system agent", ProblemCodeSystemAgentExists, second.ApplicationproblemJSON409.Code)
	deliveries := must(api.ListDeliveriesWithResponse(ctx, hook.Id, &ListDeliveriesParams{Event: new(ListDeliveriesParamsEventAgentCreated)})).JSON200
	equal("the deliveries", 3, len(deliveries.Deliveries))
	equal("their event", DeliveryEventAgentCreated, deliveries.Deliveries[0].Event)

	// All agents, page by page.
	var agents []AgentItem
	for page := (&ListAgentsParams{Limit: new(4)}); ; {
		list := must(api.ListAgentsWithResponse(ctx, page)).JSON200
		if agents = append(agents, list.Agents...); list.NextCursor == nil {
			break
		}
		page.Cursor = list.NextCursor
	}
	equal("the agents of all pages", 13, len(agents))

	// An update, and one that is based on an outdated version.
	tag := must(api.GetAgentWithResponse(ctx, parent, nil)).HTTPResponse.Header.Get("ETag")
	updated := must(api.UpdateAgentWithResponse(ctx, parent, &UpdateAgentParams{IfMatch: &tag}, AgentPatch{Description: new("Counts words")}))
	equal("the description", "Counts words", updated.JSON200.Description)
	outdated := must(api.UpdateAgentWithResponse(ctx, parent, &UpdateAgentParams{IfMatch: &tag}, AgentPatch{Description: new("Counts")}))
	equal("an outdated update", ProblemCodePreconditionFailed, outdated.ApplicationproblemJSON412.Code)

	// A task, which a worker with its own token executes.
	issued := must(api.CreateTokenWithResponse(ctx, nil, TokenDraft{Name: "counter", AgentId: &parent, Scopes: []TokenScope{TasksRead}})).JSON201
	worker := client(*issued.Token)
	equal("an empty inbox", 0, len(must(worker.PollInboxWithResponse(ctx, nil)).JSON200.Messages))
	task := must(api.SubmitTaskWithResponse(ctx, nil, TaskDraft{Capabilities: &[]string{"count"}, Parameters: &map[string]any{"text": "one two three"}})).JSON202
	work(ctx, worker)
	done := must(api.GetTaskWithResponse(ctx, task.Id, &GetTaskParams{Wait: new(60), Version: new(int(task.Version))})).JSON200
	for done.EndedAt == nil {
		done = must(api.GetTaskWithResponse(ctx, task.Id, &GetTaskParams{Wait: new(60), Version: new(int(done.Version))})).JSON200
	}
	equal("the state of the task", TaskDetailStateDone, done.State)
	equal("its output", "3", *done.Output.Text)

	// Usage, and a reservation that the budget does not cover.
	var report UsageReport
	check(report.FromUsageFactDraft(UsageFactDraft{Tokens: 400, Model: new("a-model")}))
	must(must(api.RecordUsageWithResponse(ctx, "tour-expert", nil, report)).JSON201.AsUsageFactRecorded())
	used := must(api.GetUsageWithResponse(ctx, "tour-expert", nil)).JSON200
	equal("the remaining budget", 600, *used.Remaining)
	refused := must(api.CreateReservationWithResponse(ctx, "tour-expert", nil, ReservationDraft{Tokens: 601})).ApplicationproblemJSON403
	equal("the refused reservation", ProblemCodeBudgetExceeded, refused.Code)
	equal("what remains of the budget", 600, *refused.Remaining)

	// Tools.
	tools := must(api.ListToolsWithResponse(ctx, nil)).JSON200.Tools
	equal("the first tool", "agentcards:search_tools", tools[0].Id)
	called := must(api.CallToolWithResponse(ctx, nil, ToolCallDraft{Tool: tools[0].Id, Arguments: &map[string]any{"query": "run code"}})).JSON200
	equal("an error of the tool", false, called.IsError)

	// The stored events of the task.
	events := must(api.StreamEvents(ctx, &StreamEventsParams{TaskId: &task.Id, LastEventId: new(0)}))
	defer events.Body.Close()
	for lines := bufio.NewScanner(events.Body); ; {
		equal("another line of the stream", true, lines.Scan())
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok && event == "task.completed" {
			break
		}
	}
	fmt.Println("the tour with the Go client is complete")
}

// work executes one task of the agent that the token of api is bound to.
func work(ctx context.Context, api *ClientWithResponses) {
	inbox := must(api.PollInboxWithResponse(ctx, &PollInboxParams{Wait: new(60)})).JSON200
	equal("the messages in the inbox", 1, len(inbox.Messages))
	request := must(inbox.Messages[0].AsWorkRequestEnvelope())
	words := strings.Fields((*request.Payload.Parameters)["text"].(string))
	var result Envelope
	check(result.FromWorkResultEnvelope(WorkResultEnvelope{
		ProtocolVersion: WorkResultEnvelopeProtocolVersionN10, Type: WorkResultEnvelopeTypeWorkResult,
		MessageId: uuid.New(), TraceId: request.TraceId, RequestId: request.RequestId,
		FromAgent: request.ToAgent, ToAgent: request.FromAgent, Timestamp: time.Now(),
		Payload: WorkResult{TaskId: request.Payload.TaskId, Status: WorkResultStatusCompleted, Output: new(fmt.Sprint(len(words)))},
	}))
	equal("the status of the result", http.StatusAccepted, must(api.SendMessageWithResponse(ctx, nil, result)).StatusCode())
	must(api.AcknowledgeInboxWithResponse(ctx, Acknowledgement{MessageIds: []string{request.MessageId.String()}}))
}

// client returns a client that sends the token.
func client(token string) *ClientWithResponses {
	return must(NewClientWithResponses(os.Getenv("COMET_URL"), WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	})))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// equal compares integers of any size by their text.
func equal(what string, want, have any) {
	if !reflect.DeepEqual(want, have) && fmt.Sprint(want) != fmt.Sprint(have) {
		log.Panicf("%s: got %v, want %v", what, have, want)
	}
}
