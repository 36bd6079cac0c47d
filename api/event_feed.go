package api

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/input"
	"comet/models"
)

// eventScopes returns the event types that can be streamed and the scope that each requires.
func eventScopes() []scopedEvents {
	return []scopedEvents{
		{models.ScopeTasksRead, []models.EventType{
			events.TaskCreated, events.TaskWaiting, events.TaskAssigned, events.TaskStarted, events.TaskProgress,
			events.TaskQuestion, events.TaskReplied, events.TaskRetried, events.TaskCompleted, events.TaskFailed,
			events.TaskCancelled, events.SessionClosed, events.WorkerChanged, events.BreakerOpened,
		}},
		{models.ScopeAgentsRead, []models.EventType{
			events.AgentCreated, events.AgentUpdated, events.AgentDeactivated, events.BudgetWarning, events.BudgetExceeded,
		}},
		{models.ScopeToolsCall, []models.EventType{events.ToolCalled, events.ToolFailed}},
		{models.ScopeAdmin, []models.EventType{
			events.TokenCreated, events.TokenRotated, events.TokenRevoked,
			events.KeyIssued, events.KeyChanged, events.KeyRevoked, events.WebhookDisabled,
			events.ToolQuarantined, events.ToolApproved, events.ToolClassified,
			events.UpstreamSaved, events.UpstreamRemoved, events.UpstreamUp, events.UpstreamDown,
			events.GraphSynced, events.EdgeCreated, events.EdgeUpdated, events.MetricsUpdated,
		}},
	}
}

type scopedEvents struct {
	scope models.Scope
	types []models.EventType
}

// eventFilter selects the events of a stream.
type eventFilter struct {
	types       []models.EventType
	agent, task string // "" for all
	// caller limits tool calls to those of one agent, "" for none; nil for all agents.
	caller *string
}

// readEventFilter reads the parameters of a stream. Without types it selects all that the caller
// may see; a requested type that the caller may not see is errs.MissingScope.
func readEventFilter(q *query, p models.Principal) (f eventFilter, err error) {
	f.agent, f.task = orZero(q.OptString("agent_id", input.MaxID)), orZero(q.OptString("task_id", input.MaxID))
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
	if !p.Has(models.ScopeAdmin) {
		f.caller = new(orZero(p.AgentID))
	}
	return f, err
}

// wants reports whether the filter selects the event.
func (f eventFilter) wants(e models.Event) bool {
	if !slices.Contains(f.types, e.Type) {
		return false
	}
	if f.caller != nil && strings.HasPrefix(string(e.Type), "tool.") && (*f.caller == "" || !concernsAgent(e, *f.caller)) {
		return false
	}
	if f.task != "" && (e.Key != f.task || !strings.HasPrefix(string(e.Type), "task.")) {
		return false
	}
	return f.agent == "" || concernsAgent(e, f.agent)
}

// concernsAgent reports whether an event is about an agent, its work, or a task it requested.
func concernsAgent(e models.Event, agent string) bool {
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

// maxRecentEvents is the number of events that a process caches for its streams.
const maxRecentEvents = 2000

// eventCache reads events once for all streams of the process, as long as there are any, so that
// the number of queries does not grow with the number of streams. A stream that is behind the cache
// reads from the database until it has caught up.
type eventCache struct {
	feed *events.Feed

	mu      sync.Mutex
	streams int
	recent  *recentEvents
	stop    func()
}

// join returns the cache and a function to call when the stream ends.
func (n *eventCache) join(ctx context.Context) (*recentEvents, func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.streams == 0 {
		sub, err := n.feed.SubscribeNew(ctx)
		if err != nil {
			return nil, nil, err
		}
		n.begin(sub)
	}
	n.streams++
	return n.recent, n.leave, nil
}

func (n *eventCache) begin(sub *events.Subscription) {
	ctx, cancel := context.WithCancel(context.Background())
	kept := &recentEvents{start: sub.Position(), added: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			batch, err := sub.Next(ctx, streamBatch)
			if err != nil {
				return
			}
			kept.add(batch)
		}
	})
	n.recent, n.stop = kept, func() {
		cancel()
		reader.Wait()
	}
}

// leave stops the reader after the last stream has ended.
func (n *eventCache) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.streams--; n.streams == 0 {
		n.stop()
		n.recent, n.stop = nil, nil
	}
}

// recentEvents is the cache of the newest events.
type recentEvents struct {
	mu     sync.Mutex
	events []models.Event // in order; elements do not change
	start  int64          // the cache is complete after this position
	added  chan struct{}  // closed and replaced when events are added
}

func (n *recentEvents) add(batch []models.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, batch...)
	if len(n.events) > 2*maxRecentEvents {
		n.start = n.events[len(n.events)-maxRecentEvents-1].Position
		n.events = slices.Clone(n.events[len(n.events)-maxRecentEvents:])
	}
	close(n.added)
	n.added = make(chan struct{})
}

// after returns up to limit events after a position, and a channel that is closed when more are
// added. ok is false if the cache does not reach back to the position.
func (n *recentEvents) after(at int64, limit int) (batch []models.Event, fresh <-chan struct{}, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at < n.start {
		return nil, nil, false
	}
	i := sort.Search(len(n.events), func(i int) bool { return n.events[i].Position > at })
	return n.events[i:min(i+limit, len(n.events)):len(n.events)], n.added, true
}

// nextEvents waits for events after a position and returns up to limit of them. It returns only
// errors of ctx.
func (s *Server) nextEvents(ctx context.Context, kept *recentEvents, at int64, limit int) ([]models.Event, error) {
	for {
		batch, fresh, ok := kept.after(at, limit)
		if !ok {
			return s.core.Feed.Subscribe(at).Next(ctx, limit)
		}
		if len(batch) > 0 {
			return batch, nil
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
