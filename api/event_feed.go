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

// eventScopes are the events there are a stream of, and the scope each needs.
func eventScopes() []scopedEvents {
	return []scopedEvents{
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

type scopedEvents struct {
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
			q.Fail("types", "enum", "types must be a list of %s with commas between them, not %s", strings.Join(known, ", "), input.Quote(name))
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
	if f.caller != nil && strings.HasPrefix(string(e.Type), "tool.") && (*f.caller == "" || !concernsAgent(e, *f.caller)) {
		return false
	}
	if f.task != "" && (e.Key != f.task || !strings.HasPrefix(string(e.Type), "task.")) {
		return false
	}
	return f.agent == "" || concernsAgent(e, f.agent)
}

// concernsAgent reports whether an event is about an agent: what happens to it, what it does,
// and what becomes of what it asked for.
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

// maxRecentEvents is how many of the newest events are kept for the streams of a process.
const maxRecentEvents = 2000

// eventCache reads what happens once for all streams, as long as there are any: a thousand
// streams that each asked the database would ask it a thousand times for every event.
// A stream that is further behind than what is kept asks for itself until it is not.
type eventCache struct {
	feed *events.Feed

	mu      sync.Mutex
	streams int
	recent  *recentEvents
	stop    func()
}

// join returns the newest events, and what the stream calls when it ends.
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

// leave ends the reading with the last stream, and waits for its end.
func (n *eventCache) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.streams--; n.streams == 0 {
		n.stop()
		n.recent, n.stop = nil, nil
	}
}

// recentEvents are the events that were read last.
type recentEvents struct {
	mu     sync.Mutex
	events []models.Event // in order; what is in it does not change
	start  int64          // it has all that came behind this position
	added  chan struct{}  // closed and replaced when there are more
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

// after returns up to limit events behind a position, and what ends the wait for more.
// ok is false where some of them are not kept any more.
func (n *recentEvents) after(at int64, limit int) (batch []models.Event, fresh <-chan struct{}, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at < n.start {
		return nil, nil, false
	}
	i := sort.Search(len(n.events), func(i int) bool { return n.events[i].Position > at })
	return n.events[i:min(i+limit, len(n.events)):len(n.events)], n.added, true
}

// nextEvents waits for events behind a position and returns up to limit of them. Its only
// error is that of ctx.
func (s *Server) nextEvents(ctx context.Context, kept *recentEvents, at int64, limit int) ([]models.Event, error) {
	for {
		batch, fresh, ok := kept.after(at, limit)
		if !ok {
			return s.feed.Subscribe(at).Next(ctx, limit)
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
