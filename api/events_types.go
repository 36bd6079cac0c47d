package api

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/words"
	"comet/models"
)

// streamed are the events there are a stream of, and the scope each needs.
func streamed() []streamedEvents {
	return []streamedEvents{
		{models.ScopeTasksRead, []models.EventType{
			models.EventTaskCreated, models.EventTaskWaiting, models.EventTaskAssigned, models.EventTaskStarted, models.EventTaskProgress,
			models.EventTaskQuestion, models.EventTaskReplied, models.EventTaskRetried, models.EventTaskCompleted, models.EventTaskFailed,
			models.EventTaskCancelled, models.EventSessionClosed, models.EventWorkerChanged, models.EventBreakerOpened,
		}},
		{models.ScopeAgentsRead, []models.EventType{
			models.EventAgentCreated, models.EventAgentUpdated, models.EventAgentDeactivated, models.EventBudgetWarning, models.EventBudgetExceeded,
		}},
		{models.ScopeToolsCall, []models.EventType{models.EventToolCalled, models.EventToolFailed}},
		{models.ScopeAdmin, []models.EventType{
			models.EventTokenCreated, models.EventTokenRotated, models.EventTokenRevoked,
			models.EventKeyIssued, models.EventKeyChanged, models.EventKeyRevoked, models.EventWebhookDisabled,
			models.EventToolQuarantined, models.EventToolApproved, models.EventToolClassified,
			models.EventUpstreamSaved, models.EventUpstreamRemoved, models.EventUpstreamUp, models.EventUpstreamDown,
			models.EventGraphSynced, models.EventEdgeCreated, models.EventEdgeUpdated, models.EventMetricsUpdated,
		}},
	}
}

type streamedEvents struct {
	scope models.Scope
	types []models.EventType
}

// eventFilter is what a stream tells of.
type eventFilter struct {
	types       []models.EventType
	agent, task string // "" for all
	// caller limits the tool calls to those that one agent made, "" for none; nil shows the calls of all agents.
	caller *string
}

// readEventFilter reads the parameters of a stream. Types that are not named are all the
// caller may see; one that is named and is not for the caller is errs.MissingScope.
func readEventFilter(q *query, p models.Principal) (f eventFilter, err error) {
	f.agent, f.task = orZero(q.OptString("agent_id", models.MaxIDLength)), orZero(q.OptString("task_id", models.MaxIDLength))
	var wanted []string
	if list := q.OptString("types", 1000); list != nil {
		wanted = strings.Split(*list, ",")
	}
	var known []string
	for _, group := range streamed() {
		for _, t := range group.types {
			known = append(known, string(t))
			switch named := slices.Contains(wanted, string(t)); {
			case named && err == nil:
				err = auth.Require(p, group.scope)
				f.types = append(f.types, t)
			case wanted == nil && p.Has(group.scope):
				f.types = append(f.types, t)
			}
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			q.Fail("types", "enum", "types must be a list of %s with commas between them, not %s", strings.Join(known, ", "), words.Quote(name))
			break
		}
	}
	if wrong := q.Err(); wrong != nil {
		return f, wrong
	}
	if !p.Has(models.ScopeAdmin) {
		f.caller = new(orZero(p.AgentID))
	}
	return f, err
}

// wants reports whether an event passes.
func (f eventFilter) wants(e models.Event) bool {
	if !slices.Contains(f.types, e.Type) {
		return false
	}
	if f.caller != nil && strings.HasPrefix(string(e.Type), "tool.") && (*f.caller == "" || !concerns(e, *f.caller)) {
		return false
	}
	if f.task != "" && (e.Key != f.task || !strings.HasPrefix(string(e.Type), "task.")) {
		return false
	}
	return f.agent == "" || concerns(e, f.agent)
}

// concerns reports whether an event is about an agent: what happens to it, what it does,
// and what becomes of what it asked for.
func concerns(e models.Event, agent string) bool {
	kind, _, _ := strings.Cut(string(e.Type), ".")
	if kind == "agent" || kind == "worker" {
		return e.Key == agent
	}
	var data struct {
		AgentID    string `json:"agent_id"`
		OwnerAgent string `json:"owner_agent"`
	}
	return json.Unmarshal(e.Data, &data) == nil && (data.AgentID == agent || data.OwnerAgent == agent)
}

func newEventView(e models.Event) eventView {
	return eventView{ID: e.ID, Position: e.Position, Type: e.Type, Key: e.Key, At: e.At, Data: jsontext.Value(e.Data)}
}
