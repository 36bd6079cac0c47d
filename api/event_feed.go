package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"comet/internal/pubsub"
	publications "comet/store/pubsub"
	"comet/store/schedules"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/workflow"
	"comet/models"
	"comet/store/partials"
)

// eventScopes returns the event types that can be streamed and the scope that each requires.
func eventScopes() []scopedEvents {
	return []scopedEvents{
		{models.ScopeTasksRead, []models.EventType{
			events.TaskCreated, events.TaskWaiting, events.TaskAssigned, events.TaskStarted, events.TaskProgress,
			partials.EventAdded, events.TaskQuestion, events.TaskReplied, events.TaskSubtask, events.TaskRetried, events.TaskCompleted, events.TaskFailed,
			events.TaskCancelled, events.SessionClosed, publications.EventDead, events.WorkerChanged, events.BreakerOpened,
			schedules.EventCreated, schedules.EventChanged, schedules.EventDeleted, schedules.EventRun, schedules.EventFailed,
		}},
		{models.ScopeAgentsRead, []models.EventType{
			events.AgentCreated, events.AgentUpdated, events.AgentDeactivated, events.BudgetWarning, events.BudgetExceeded, events.LedgerCorrected, publications.EventSubscribed,
		}},
		{models.ScopeToolsCall, []models.EventType{
			events.ToolCalled, events.ToolFailed, workflow.EventStarted, workflow.EventStepStarted, workflow.EventStepEnded,
			workflow.EventReplanned, workflow.EventPaused, workflow.EventResumed, workflow.EventEnded,
		}},
		{models.ScopeAdmin, []models.EventType{
			events.TokenCreated, events.TokenRotated, events.TokenRevoked,
			events.KeyIssued, events.KeyChanged, events.KeyRevoked, events.WebhookDisabled, events.DeliveryDead,
			events.ToolQuarantined, events.ToolApproved, events.ToolClassified,
			workflow.EventDefinitionSaved, workflow.EventDefinitionRemoved, events.UpstreamSaved, events.UpstreamRemoved, events.UpstreamAuthorized, events.UpstreamUp, events.UpstreamDown,
			events.GraphSynced, events.EdgeCreated, events.EdgeUpdated, events.MetricsUpdated,
		}},
	}
}

type scopedEvents struct {
	scope models.Scope
	types []models.EventType
}

// PublishedEvents returns the event types that agents can subscribe to as publications of nova, and the scope that each
// requires: those that require no admin.
func PublishedEvents() map[models.EventType]models.Scope {
	out := map[models.EventType]models.Scope{}
	for _, group := range eventScopes() {
		for _, t := range group.types {
			if group.scope != models.ScopeAdmin {
				out[t] = group.scope
			}
		}
	}
	return out
}

// eventFilter selects the events of a stream.
type eventFilter struct {
	types                 []models.EventType
	agent, task, workflow string // "" for all
	// caller limits tool calls and workflows to those of one agent, "" for none; nil for all agents.
	caller *string
	// inSubtree reports whether one of the agents is in the subtree of a bound token; nil for others.
	inSubtree func(agents []string) (bool, error)
}

// readEventFilter reads the parameters of a stream. Without types it selects all that the caller
// may see; a requested type that the caller may not see is errs.MissingScope.
func readEventFilter(q *query, p models.Principal) (f eventFilter, err error) {
	f.agent, f.task = orZero(q.OptString("agent_id", input.MaxID)), orZero(q.OptString("task_id", input.MaxID))
	f.workflow = orZero(q.OptString("workflow_id", input.MaxID))
	var wanted []string
	if list := q.OptString("types", 1000); list != nil {
		wanted = strings.Split(*list, ",")
	}
	var known []string
	for _, group := range eventScopes() {
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
			q.Fail("types", "enum", "types must be a list of %s with commas between them, not %s%s",
				strings.Join(known, ", "), input.Quote(name), input.DidYouMean(name, known))
			break
		}
	}
	if wrong := q.Err(); wrong != nil {
		return f, wrong
	}
	if !p.Administers() {
		f.caller = new(orZero(p.AgentID))
	}
	return f, err
}

// wants reports whether the filter selects the event.
func (f eventFilter) wants(e models.Event) bool {
	if !slices.Contains(f.types, e.Type) {
		return false
	}
	kind, _, _ := strings.Cut(string(e.Type), ".")
	if f.caller != nil && (kind == "tool" || kind == "workflow") && (*f.caller == "" || !concernsAgent(e, *f.caller)) {
		return false
	}
	if f.task != "" && (e.Key != f.task || kind != "task") || f.workflow != "" && (e.Key != f.workflow || kind != "workflow") {
		return false
	}
	return f.agent == "" || concernsAgent(e, f.agent)
}

// allows is wants for an event of agents that the token may read.
func (f eventFilter) allows(e models.Event) (bool, error) {
	if wanted := f.wants(e); !wanted || f.inSubtree == nil {
		return wanted, nil
	}
	return f.inSubtree(pubsub.AgentsOf(e))
}

// subtreeCheck returns the function inSubtree of an eventFilter for a bound token. It reads an agent at
// most once a second.
func (s *Server) subtreeCheck(ctx context.Context, by models.Principal) func([]string) (bool, error) {
	known, read := map[string]bool{}, time.Time{}
	return func(agents []string) (bool, error) {
		if now := s.opts.Clock(); now.Sub(read) >= time.Second {
			clear(known)
			read = now
		}
		for _, id := range agents {
			if _, ok := known[id]; !ok {
				err := s.core.Registry.Confine(ctx, by, id)
				if err != nil && !errs.Is(err, errs.ForeignAgent) {
					return false, err
				}
				known[id] = err == nil
			}
			if known[id] {
				return true, nil
			}
		}
		return false, nil
	}
}

// concernsAgent reports whether an event is about an agent, its work, or a task it requested.
func concernsAgent(e models.Event, agent string) bool {
	return slices.Contains(pubsub.AgentsOf(e), agent)
}

func newEventView(e models.Event) eventView {
	return eventView{ID: e.ID, Position: e.Position, Type: e.Type, Key: e.Key, At: e.At, Data: jsontext.Value(e.Data)}
}
