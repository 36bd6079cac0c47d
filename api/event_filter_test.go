package api

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/workflow"
	"comet/models"
	"comet/store/schedules"
)

// TestEventFilterOfToolCalls: names of tools and servers may be secret, so a token without the
// scope admin receives the calls of its own agent only.
func TestEventFilterOfToolCalls(t *testing.T) {
	t.Parallel()
	agent := "ada"
	called := func(by string) models.Event {
		return models.Event{Type: events.ToolCalled, Key: "fs:read", Data: []byte(`{"agent_id":"` + by + `"}`)}
	}
	edge := models.Event{Type: events.EdgeCreated, Key: "tools", Data: []byte(`{"from":"fs:secret","to":"fs:read"}`)}
	down := models.Event{Type: events.UpstreamDown, Key: "fs", Data: []byte(`{"id":"fs"}`)}
	for name, c := range map[string]struct {
		principal               models.Principal
		own, others, edge, down bool
	}{
		"an admin":                  {models.Principal{Scopes: []models.Scope{models.ScopeAdmin}}, true, true, true, true},
		"an agent":                  {models.Principal{Scopes: []models.Scope{models.ScopeToolsCall}, AgentID: &agent}, true, false, false, false},
		"a token without an agent":  {models.Principal{Scopes: []models.Scope{models.ScopeToolsCall}}, false, false, false, false},
		"a token without the scope": {models.Principal{Scopes: []models.Scope{models.ScopeTasksRead}, AgentID: &agent}, false, false, false, false},
	} {
		f, err := readEventFilter(newQuery(httptest.NewRequest("GET", "/api/v1/events", nil), "types"), c.principal)
		require.NoError(t, err)
		require.Equal(t, []bool{c.own, c.others, c.edge, c.down}, []bool{f.wants(called(agent)), f.wants(called("bob")), f.wants(edge), f.wants(down)}, name)
	}
}

// TestEventFilterOfPatterns checks that a pattern selects the types of a kind that the token may see.
func TestEventFilterOfPatterns(t *testing.T) {
	t.Parallel()
	reader := models.Principal{Scopes: []models.Scope{models.ScopeTasksRead}}
	read := func(types string) ([]models.EventType, error) {
		f, err := readEventFilter(newQuery(httptest.NewRequest("GET", "/api/v1/events?types="+types, nil), "types"), reader)
		return f.types, err
	}
	types, err := read("schedule.*,task.failed")
	require.NoError(t, err)
	require.Contains(t, types, events.TaskFailed)
	require.Contains(t, types, schedules.EventRun)
	require.NotContains(t, types, events.TaskCreated)
	types, err = read("task.*,agent.*")
	require.NoError(t, err, "some of them are allowed")
	require.Contains(t, types, events.TaskCreated)
	require.NotContains(t, types, events.AgentCreated)
	_, err = read("agent.*")
	require.True(t, errs.Is(err, errs.MissingScope))
	for _, wrong := range []string{"tasks.*", "*", "task*", "task.", "task.*.x"} {
		_, err = read(wrong)
		require.True(t, errs.Is(err, errs.InvalidParameter), wrong)
		require.NotContains(t, err.Error(), "mean ?", wrong)
	}
}

// TestEventFilterOfApprovers checks that a token with workflows:approve receives the events of the workflows that it may read.
func TestEventFilterOfApprovers(t *testing.T) {
	t.Parallel()
	agent := "ada"
	paused := func(payer, approver string) models.Event {
		return models.Event{Type: workflow.EventPaused, Key: "wf_1", Data: []byte(`{"agent_id":"` + payer + `","approver":"` + approver + `"}`)}
	}
	for name, c := range map[string]struct {
		principal         models.Principal
		own, other, human bool
	}{
		"an approver":               {models.Principal{Scopes: []models.Scope{models.ScopeWorkflowsApprove}}, false, true, true},
		"an approver of an agent":   {models.Principal{Scopes: []models.Scope{models.ScopeWorkflowsApprove}, AgentID: &agent}, false, true, true},
		"an agent that may approve": {models.Principal{Scopes: []models.Scope{models.ScopeWorkflowsApprove, models.ScopeToolsCall}, AgentID: &agent}, true, true, true},
		"an agent":                  {models.Principal{Scopes: []models.Scope{models.ScopeToolsCall}, AgentID: &agent}, true, false, false},
	} {
		f, err := readEventFilter(newQuery(httptest.NewRequest("GET", "/api/v1/events", nil), "types"), c.principal)
		require.NoError(t, err)
		require.Equal(t, []bool{c.own, c.other, c.human}, []bool{f.wants(paused(agent, "")), f.wants(paused("bob", "other")), f.wants(paused("bob", "human"))}, name)
		require.False(t, f.wants(paused("bob", "")), name)
		f.below = func([]string) (map[string]bool, error) { return map[string]bool{"ada": true}, nil }
		picked, err := f.pick([]models.Event{paused("bob", "other"), paused("ada", "other")})
		require.NoError(t, err)
		require.Equal(t, c.own || c.other, len(picked) == 1 && concernsAgent(picked[0], "ada"), "only agents of the subtree pay")
	}
	called := models.Event{Type: events.ToolCalled, Key: "fs:read", Data: []byte(`{"agent_id":"ada"}`)}
	f, err := readEventFilter(newQuery(httptest.NewRequest("GET", "/api/v1/events", nil), "types"), models.Principal{Scopes: []models.Scope{models.ScopeWorkflowsApprove}, AgentID: &agent})
	require.NoError(t, err)
	require.False(t, f.wants(called))
}

// TestEventFilterByWorkflow selects the events of one workflow.
func TestEventFilterByWorkflow(t *testing.T) {
	t.Parallel()
	f, err := readEventFilter(newQuery(httptest.NewRequest("GET", "/api/v1/events?workflow_id=wf_1", nil), "types", "workflow_id"), models.Principal{Scopes: []models.Scope{models.ScopeAdmin}})
	require.NoError(t, err)
	for event, wanted := range map[models.EventType]bool{workflow.EventPaused: true, workflow.EventStepEnded: true, events.TaskCreated: false} {
		require.Equal(t, wanted, f.wants(models.Event{Type: event, Key: "wf_1", Data: []byte(`{}`)}), event)
		require.False(t, f.wants(models.Event{Type: event, Key: "wf_2", Data: []byte(`{}`)}), event)
	}
}
