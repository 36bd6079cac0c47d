package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/netguard"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	"comet/models"
	"comet/openapi"
	"comet/webhooks"
	"comet/webhooks/signature"
)

// webhookServer is the complete API, with webhooks that deliver to this machine.
type webhookServer struct {
	*describedServer
	doc apiDescription
}

func newWebhookServer(t *testing.T) *webhookServer {
	t.Helper()
	d := newDescribedServer(t)
	hooks := webhooks.New(d.store, &webhooks.Options{
		Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), Poll: 10 * time.Millisecond,
	})
	relay := events.NewRelay(d.store, events.NewFeed(d.store, nil), &events.Options{Poll: 10 * time.Millisecond, Deliveries: hooks})
	for _, s := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{relay, hooks} {
		require.NoError(t, s.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, s.Stop(context.WithoutCancel(t.Context()))) })
	}
	d.core.Webhooks = hooks
	d.Server = New(d.core, nil)
	return &webhookServer{d, readDescription(t)}
}

// ask makes a request, holds the answer against the description and returns it.
func (d *webhookServer) ask(t *testing.T, method, path, address, body string, status int) map[string]any {
	t.Helper()
	text := d.askWith(t, method, path, address, body, nil, status)
	var answer map[string]any
	if len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &answer))
	}
	return answer
}

// askWith is ask with headers, for answers that need not be JSON.
func (d *webhookServer) askWith(t *testing.T, method, path, address, body string, headers http.Header, status int) []byte {
	t.Helper()
	where := method + " " + address + " " + strconv.Itoa(status)
	got, header, text := d.send(t, method, address, d.admin, body, headers)
	require.Equal(t, status, got, "%s: %s", where, text)
	r, ok := d.doc.Paths[path][strings.ToLower(method)].Responses[strconv.Itoa(status)]
	require.True(t, ok, "%s is not described", where)
	if r.Ref != "" {
		r = d.doc.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	}
	d.doc.holds(t, where, r, header, text)
	return text
}

// receiver is a server that stores the requests it receives.
func receiver(t *testing.T, status int) (url string, got <-chan deliveredRequest) {
	t.Helper()
	all := make(chan deliveredRequest, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			all <- deliveredRequest{r.Header.Clone(), body}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/", all
}

type deliveredRequest struct {
	header http.Header
	body   []byte
}

func TestWebhookResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const all, one = "/api/v1/webhooks", "/api/v1/webhooks/{webhook_id}"
	d := newWebhookServer(t)
	url, got := receiver(t, 500)
	hook := d.ask(t, "POST", all, all, `{"url":"`+url+`","events":["agent.updated"],"asymmetric":true}`, 201)["id"].(string)
	d.ask(t, "POST", all, all, `{"url":"`+url+`","events":["agent.updated"],"agent_id":"nova","subtree":true,"ordering":"agent","enabled":false}`, 201)
	d.ask(t, "POST", all, all, `{"url":"x","events":[]}`, 400)
	d.ask(t, "POST", all, all, `{"url":"http://10.0.0.1/","events":["agent.updated"]}`, 422)
	d.ask(t, "GET", all, all, "", 200)
	d.ask(t, "GET", all, all+"?limit=1", "", 200)
	d.ask(t, "GET", all, all+"?limit=0", "", 400)
	at := all + "/" + hook
	d.ask(t, "GET", one, at, "", 200)
	d.ask(t, "PATCH", one, at, `{"description":null,"ordering":"agent"}`, 200)
	d.ask(t, "PATCH", one, at, `{"url":null}`, 400)
	d.ask(t, "PATCH", one, at, `{"url":"http://10.0.0.1/"}`, 422)
	d.ask(t, "PATCH", one, all+"/x", `{}`, 404)
	d.ask(t, "POST", one+"/rotate-secret", at+"/rotate-secret", "", 200)
	d.ask(t, "POST", one+"/rotate-secret", at+"/rotate-secret", `{"secret":null,"grace_seconds":null}`, 200)
	d.ask(t, "POST", one+"/rotate-secret", at+"/rotate-secret", `{"secret":""}`, 400)
	tested := d.ask(t, "POST", one+"/test", at+"/test", "", 200)["delivery_id"].(string)

	d.ask(t, "PATCH", "/api/v1/agents/{agent_id}", "/api/v1/agents/orch-scholar", `{"name":"x"}`, 200)
	<-got // the test
	<-got // the event
	d.ask(t, "GET", one+"/deliveries", at+"/deliveries", "", 200)
	d.ask(t, "GET", one+"/deliveries", at+"/deliveries?limit=1&since=2026-01-10T00:00:00Z", "", 200)
	d.ask(t, "GET", one+"/deliveries", at+"/deliveries?status=failed", "", 400)
	d.ask(t, "GET", one+"/deliveries/{delivery_id}", at+"/deliveries/"+tested, "", 200)
	d.ask(t, "GET", one+"/deliveries/{delivery_id}", at+"/deliveries/x", "", 404)
	d.ask(t, "POST", one+"/redeliver", at+"/redeliver", `{"since":"2026-01-10T00:00:00Z"}`, 202)
	d.ask(t, "POST", one+"/redeliver", at+"/redeliver", `{}`, 400)
	d.ask(t, "POST", one+"/deliveries/{delivery_id}/redeliver", at+"/deliveries/"+tested+"/redeliver", "", 202)
	d.ask(t, "PATCH", one, at, `{"enabled":false}`, 200)
	d.ask(t, "POST", one+"/redeliver", at+"/redeliver", `{"since":"2026-01-10T00:00:00Z"}`, 409)
	d.ask(t, "POST", one+"/deliveries/{delivery_id}/redeliver", at+"/deliveries/"+tested+"/redeliver", "", 409)
	d.ask(t, "DELETE", one, at, "", 204)
	d.ask(t, "DELETE", one, at, "", 404)
}

// describedWebhook is what the description says of one event.
type describedWebhook struct {
	Post struct {
		Parameters  []struct{ Name string }
		RequestBody struct {
			Content map[string]struct{ Schema *describedSchema }
		}
	}
}

// TestEventsMatchTheDescription makes everything happen that a webhook can receive and
// holds every request it gets against the description.
func TestEventsMatchTheDescription(t *testing.T) {
	t.Parallel()
	var doc struct {
		Webhooks map[string]describedWebhook `json:"x-webhooks"`
	}
	require.NoError(t, json.Unmarshal(openapi.JSON(), &doc))
	expected := map[string]bool{string(events.WebhookTest): true}
	for _, e := range events.ForWebhooks() {
		expected[string(e)] = true
	}
	for event := range doc.Webhooks {
		require.True(t, expected[event], "%s is described, but no event", event)
	}

	d := newWebhookServer(t)
	url, got := receiver(t, 204)
	gone, _ := receiver(t, 410)
	const hooks, agents = "/api/v1/webhooks", "/api/v1/agents"
	names, err := json.Marshal(events.ForWebhooks())
	require.NoError(t, err)
	hook := d.ask(t, "POST", hooks, hooks, `{"url":"`+url+`","events":`+string(names)+`}`, 201)
	d.ask(t, "POST", hooks, hooks, `{"url":"`+gone+`","events":["agent.created"]}`, 201)
	d.ask(t, "POST", hooks+"/{webhook_id}/test", hooks+"/"+hook["id"].(string)+"/test", "", 200)
	d.ask(t, "POST", agents, agents, `{"id":"spender","name":"Spender","level":2,"sphere_id":9,"frequency_hz":555,"parent_id":"orch-scholar","type":"research","token_budget":1000}`, 201)
	d.ask(t, "PATCH", agents+"/{agent_id}", agents+"/spender", `{"description":"x","type":null,"sphere_id":8}`, 200)
	d.ask(t, "POST", agents+"/{agent_id}/usage", agents+"/spender/usage", `{"tokens":1001}`, 201) // a warning and an end at once
	d.ask(t, "DELETE", agents+"/{agent_id}", agents+"/spender", "", 204)

	asks := d.ask(t, "POST", "/api/v1/workflows", "/api/v1/workflows", `{"workflow":{"tasks":[{"id":"a","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true}]}}`, 200)
	const decide = "/api/v1/workflows/{workflow_id}/checkpoints/{checkpoint_id}"
	d.ask(t, "POST", decide, strings.NewReplacer("{workflow_id}", asks["workflow_id"].(string), "{checkpoint_id}", asks["checkpoint_id"].(string)).Replace(decide), `{"approved":true}`, 200)

	const schedules, one = "/api/v1/schedules", "/api/v1/schedules/{schedule_id}"
	kept := d.ask(t, "POST", schedules, schedules, `{"every_ms":3600000,"task":{"capabilities":["fly"]}}`, 201)
	d.ask(t, "PATCH", one, schedules+"/"+kept["id"].(string), `{"enabled":false}`, 200)
	d.ask(t, "DELETE", one, schedules+"/"+kept["id"].(string), "", 204)
	const definitions, report = "/api/v1/workflow-definitions", "/api/v1/workflow-definitions/{definition_id}"
	d.ask(t, "PUT", report, definitions+"/report", `{"workflow":{"tasks":[{"id":"a","tool":"agentcards:search_tools","arguments":{"query":"x"}}]}}`, 201)
	d.ask(t, "POST", schedules, schedules, `{"delay_ms":1,"workflow":{"definition":{"name":"report"}}}`, 201)
	d.ask(t, "DELETE", report, definitions+"/report", "", 204)
	d.ask(t, "POST", schedules, schedules, `{"delay_ms":1,"workflow":{"workflow":{"tasks":[{"id":"a","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true}]}}}`, 201)
	runner := jobs.New(d.store, &jobs.Options{Poll: 10 * time.Millisecond})
	d.core.Schedules.RegisterJobs(runner)
	require.NoError(t, runner.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, runner.Stop(context.WithoutCancel(t.Context()))) })

	published := d.ask(t, "POST", publicationsPath, publicationsPath, `{"type":"order.paid","payload":{},"to":"orch-scholar"}`, 202)
	require.NoError(t, d.core.PubSub.End(t.Context(), models.InboxMessage{AgentID: "orch-scholar", ID: published["id"].(string)}, pubsub.Unsupported))

	verifier, err := signature.NewVerifier(hook["secret"].(string))
	require.NoError(t, err)
	for len(expected) > 0 {
		request := testkit.Receive(t, got)
		require.NoError(t, verifier.Verify(request.header, request.body, time.Now()))
		var event map[string]any
		require.NoError(t, json.Unmarshal(request.body, &event))
		name := event["type"].(string)
		described, ok := doc.Webhooks[name]
		require.True(t, ok, "%s is not described", name)
		for _, p := range described.Post.Parameters {
			require.NotEmpty(t, request.header.Get(p.Name), p.Name)
		}
		require.Len(t, described.Post.Parameters, 3)
		require.Empty(t, d.doc.violations("", described.Post.RequestBody.Content["application/json"].Schema, event), "%s", request.body)
		delete(expected, name)
	}
}
