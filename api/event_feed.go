package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"comet/internal/errs"
	"comet/internal/events/live"
	"comet/internal/pubsub"
	publications "comet/store/pubsub"
	"comet/store/schedules"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/workflow"
	"comet/models"
	"comet/store/partials"
)

// eventScopes returns the event types that can be streamed. Each type requires one of its scopes.
func eventScopes() []scopedEvents {
	return []scopedEvents{
		{[]models.Scope{models.ScopeTasksRead}, []models.EventType{
			events.TaskCreated, events.TaskWaiting, events.TaskAssigned, events.TaskStarted, events.TaskProgress,
			partials.EventAdded, events.TaskQuestion, events.TaskReplied, events.TaskSubtask, events.TaskRetried, events.TaskCompleted, events.TaskFailed,
			events.TaskCancelled, events.SessionClosed, publications.EventDead, events.WorkerChanged, events.BreakerOpened,
			schedules.EventCreated, schedules.EventChanged, schedules.EventDeleted, schedules.EventRun, schedules.EventFailed,
		}},
		{[]models.Scope{models.ScopeAgentsRead}, []models.EventType{
			events.AgentCreated, events.AgentUpdated, events.AgentDeactivated, events.BudgetWarning, events.BudgetExceeded, live.UsageChanged, events.LedgerCorrected, publications.EventSubscribed,
		}},
		{[]models.Scope{models.ScopeToolsCall}, []models.EventType{events.ToolCalled, events.ToolFailed}},
		{[]models.Scope{models.ScopeToolsCall, models.ScopeWorkflowsApprove}, []models.EventType{
			workflow.EventStarted, workflow.EventStepStarted, workflow.EventStepEnded, workflow.EventReplanned, workflow.EventPaused,
			workflow.EventResumed, workflow.EventEnded,
		}},
		{[]models.Scope{models.ScopeAdmin}, []models.EventType{
			events.TokenCreated, events.TokenRotated, events.TokenRevoked,
			events.KeyIssued, events.KeyChanged, events.KeyRevoked, events.WebhookDisabled, events.DeliveryDead,
			events.ToolQuarantined, events.ToolApproved, events.ToolClassified,
			workflow.EventDefinitionSaved, workflow.EventDefinitionRemoved, events.UpstreamSaved, events.UpstreamRemoved, events.UpstreamAuthorized, events.UpstreamUp, events.UpstreamDown,
			events.GraphSynced, events.EdgeCreated, events.EdgeUpdated, events.MetricsUpdated,
		}},
	}
}

type scopedEvents struct {
	scopes []models.Scope // one of them is sufficient
	types  []models.EventType
}

// PublishedEvents returns the event types that agents can subscribe to as publications of nova, and the scope that each
// requires: those that are stored and require no admin.
func PublishedEvents() map[models.EventType]models.Scope {
	out := map[models.EventType]models.Scope{}
	for _, group := range eventScopes() {
		for _, t := range group.types {
			if scope := group.scopes[0]; scope != models.ScopeAdmin && t != live.UsageChanged {
				out[t] = scope
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
	// approves adds the workflows that other tokens or persons approve.
	approves bool
	// below returns which of the agents are in the subtree of a token that is bound to an agent; nil for other tokens.
	below func(agents []string) (map[string]bool, error)
}

// readEventFilter reads the parameters of a stream. Without types it selects all types that the
// caller may see. A pattern such as task.* selects the types of one kind that the caller may see. It returns
// errs.MissingScope for a type that the caller may not see, and for a pattern that matches no type that it may see.
func readEventFilter(q *query, p models.Principal) (f eventFilter, err error) {
	f.agent, f.task = orZero(q.OptString("agent_id", input.MaxID)), orZero(q.OptString("task_id", input.MaxID))
	f.workflow = orZero(q.OptString("workflow_id", input.MaxID))
	var wanted []string
	if list := q.OptString("types", 1000); list != nil {
		wanted = strings.Split(*list, ",")
	}
	var known []string
	var lacks []models.Scope // of the types that a pattern matches
	for _, group := range eventScopes() {
		allowed := slices.ContainsFunc(group.scopes, p.Has)
		for _, t := range group.types {
			kind, _, _ := strings.Cut(string(t), ".")
			known = append(known, string(t), kind+".*")
			named, all := slices.Contains(wanted, string(t)), slices.Contains(wanted, kind+".*")
			switch {
			case allowed && (named || all || wanted == nil):
				f.types = append(f.types, t)
			case named && err == nil:
				err = auth.Require(p, group.scopes[0], group.scopes[1:]...)
			case all && lacks == nil:
				lacks = group.scopes
			}
		}
	}
	if len(f.types) == 0 && lacks != nil && err == nil {
		err = auth.Require(p, lacks[0], lacks[1:]...)
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
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
		f.caller, f.approves = new(""), p.Has(models.ScopeWorkflowsApprove)
		if p.AgentID != nil && p.Has(models.ScopeToolsCall) {
			f.caller = p.AgentID
		}
	}
	return f, err
}

// newEventFilter returns the filter of a request's parameters and token.
func (s *Server) newEventFilter(r *http.Request, q *query) (eventFilter, error) {
	by := caller(r)
	filter, err := readEventFilter(q, by)
	if err != nil {
		return filter, err
	}
	if filter.workflow != "" {
		switch err := s.core.Workflows.Readable(r.Context(), by, filter.workflow); {
		case err == nil:
			filter.caller = nil // any agent may pay
		case !errs.Is(err, errs.NotFound):
			return filter, err
		}
	}
	if by.AgentID != nil {
		filter.below = s.below(r.Context(), *by.AgentID)
	}
	return filter, nil
}

// wants reports whether the filter selects the event.
func (f eventFilter) wants(e models.Event) bool {
	if !slices.Contains(f.types, e.Type) {
		return false
	}
	kind, _, _ := strings.Cut(string(e.Type), ".")
	if f.caller != nil && (kind == "tool" || kind == "workflow") && (*f.caller == "" || !concernsAgent(e, *f.caller)) &&
		!(f.approves && kind == "workflow" && hasApprover(e)) {
		return false
	}
	if f.task != "" && (e.Key != f.task || kind != "task") || f.workflow != "" && (e.Key != f.workflow || kind != "workflow") {
		return false
	}
	return f.agent == "" || concernsAgent(e, f.agent)
}

// hasApprover reports whether another token or a person approves the steps of the event's workflow.
func hasApprover(e models.Event) bool {
	var data struct{ Approver string }
	return json.Unmarshal(e.Data, &data) == nil && data.Approver != ""
}

// pick returns the events of a batch that the filter selects and the token may read.
func (f eventFilter) pick(batch []models.Event) (picked []models.Event, err error) {
	for _, e := range batch {
		if f.wants(e) {
			picked = append(picked, e)
		}
	}
	if f.below == nil || len(picked) == 0 {
		return picked, nil
	}
	var agents []string
	for _, e := range picked {
		agents = append(agents, pubsub.AgentsOf(e)...)
	}
	below, err := f.below(agents)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(picked, func(e models.Event) bool {
		return !slices.ContainsFunc(pubsub.AgentsOf(e), func(id string) bool { return below[id] })
	}), nil
}

// below returns the function eventFilter.below for a token that is bound to the agent root. All streams share the data that
// it reads.
func (s *Server) below(ctx context.Context, root string) func([]string) (map[string]bool, error) {
	return func(agents []string) (map[string]bool, error) {
		chains, err := s.core.Registry.Chains(ctx, agents)
		out := map[string]bool{root: true}
		for id, chain := range chains {
			out[id] = slices.Contains(chain, root)
		}
		return out, err
	}
}

// concernsAgent reports whether an event is about an agent, its work, or a task it requested.
func concernsAgent(e models.Event, agent string) bool {
	return slices.Contains(pubsub.AgentsOf(e), agent)
}

func newEventView(e models.Event) eventView {
	return eventView{ID: e.ID, Position: e.Position, Type: e.Type, Key: e.Key, At: e.At, Data: jsontext.Value(e.Data)}
}

// eventHistory is a page of retained events, in the order of their positions.
type eventHistory struct {
	Events []eventView `json:"events"`                          // The events on the page, the oldest first.
	Newest int64       `json:"newest_position" example:"88412"` // The position of the newest event of all types.
	Oldest int64       `json:"oldest_position" example:"1201"`  // The position of the oldest retained event, 0 without one.
	// The position that `before` must have for the page of earlier events, which may exist even if this page is empty.
	NextBefore int64 `json:"next_before,omitempty" example:"88362"`
	NextAfter  int64 `json:"next_after,omitempty" example:"88412"` // The position that `after` must have for the page of later events.
}

// maxScanned is how many events a page of the history looks at, and historyBatch how many it reads at once.
const maxScanned, historyBatch = 10_000, 500

// listEvents returns retained events.
//
//	@Summary		List past events
//	@Description	Returns a page of the events that the stream has sent, with the same filters and rights. Without a position the page has the newest events; `before` selects those before a position and `after` those after it. A request looks at 10,000 events at most, so that a page may have fewer events than `limit`; `next_before` and `next_after` continue it.
//	@Param			before		query	int		false	"Only events before this position"	minimum(1)	example(88412)
//	@Param			after		query	int		false	"Only events after this position"	minimum(0)	example(88362)
//	@Param			types		query	string	false	"Types, separated by commas; by default all that the token may read. `task.*` selects all types of this kind that the token may read"	maxlength(1000)	example(task.completed,task.failed)
//	@Param			agent_id	query	string	false	"Only events about this agent, its work, or tasks that it requested"	maxlength(64)	example(finance-personal)
//	@Param			task_id		query	string	false	"Only events of this task"	maxlength(64)
//	@Param			workflow_id	query	string	false	"Only events of this workflow"	maxlength(64)
//	@Param			limit		query	int		false	"Maximum number of events on the page"	minimum(1)	maximum(1000)	default(100)
//	@Success		200	{object}	eventHistory	"A page of events"
func (s *Server) listEvents(r request) (any, error) {
	q := newQuery(r.Request, "before", "after", "types", "agent_id", "task_id", "workflow_id", "limit")
	before, after, limit := q.OptInt("before", 1, 1<<53), q.OptInt("after", 0, 1<<53), q.pageLimit()
	if before != nil && after != nil {
		q.Fail("after", "exclusive", "after cannot be combined with before")
	}
	filter, err := s.newEventFilter(r.Request, q)
	if err != nil {
		return nil, err
	}
	out := eventHistory{Events: []eventView{}}
	if out.Oldest, out.Newest, err = s.core.Feed.Bounds(r.Context()); err != nil {
		return nil, err
	}
	if after != nil {
		return out, s.listLater(r.Context(), &out, filter, int64(*after), limit)
	}
	end := out.Newest + 1
	if before != nil {
		end = min(end, int64(*before))
	}
	return out, s.listEarlier(r.Context(), &out, filter, end, limit)
}

// add adds an event and reports whether the page is full.
func (out *eventHistory) add(e models.Event, limit int) (full bool) {
	out.Events = append(out.Events, newEventView(e))
	return len(out.Events) == limit
}

// listLater adds the first events after a position.
func (s *Server) listLater(ctx context.Context, out *eventHistory, f eventFilter, after int64, limit int) error {
	after = max(after, out.Oldest-1)
	end := min(after+maxScanned, out.Newest)
	for after < end && len(out.Events) < limit {
		batch, err := s.core.Feed.Between(ctx, after, end, f.types, historyBatch)
		if err != nil {
			return err
		}
		if after = end; len(batch) == historyBatch {
			after = batch[historyBatch-1].Position
		}
		if batch, err = f.pick(batch); err != nil {
			return err
		}
		for _, e := range batch {
			if out.add(e, limit) {
				after = e.Position
				break
			}
		}
	}
	if after < out.Newest {
		out.NextAfter = after
	}
	return nil
}

// listEarlier adds the last events before a position.
func (s *Server) listEarlier(ctx context.Context, out *eventHistory, f eventFilter, before int64, limit int) error {
	floor := max(before-maxScanned, out.Oldest, 1)
	for before > floor && len(out.Events) < limit {
		from := max(before-historyBatch, floor)
		batch, err := s.core.Feed.Between(ctx, from-1, before-1, f.types, historyBatch)
		if err != nil {
			return err
		}
		before = from
		if batch, err = f.pick(batch); err != nil {
			return err
		}
		for _, e := range slices.Backward(batch) {
			if out.add(e, limit) {
				before = e.Position
				break
			}
		}
	}
	slices.Reverse(out.Events)
	if before > max(out.Oldest, 1) {
		out.NextBefore = before
	}
	return nil
}
