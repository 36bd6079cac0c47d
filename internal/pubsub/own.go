package pubsub

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/models"
	"comet/store/pubsub"
)

// Follow passes comet's own events to the agents that subscribe to publications of nova, until ctx ends: deliver is called
// with an agent and the event as a publication that is delivered at most once. Every process follows the events for
// the agents that are connected to it. Without subscribers it reads nothing but the log in memory. While the database does
// not respond, the events wait.
//
// An agent receives the events of its subtree, and those of tools and workflows only if it pays for them.
func (p *PubSub) Follow(ctx context.Context, deliver func(agentID string, of *models.Publication)) {
	if p.opts.Feed == nil {
		return
	}
	f := &follower{PubSub: p, deliver: deliver, types: append(slices.Collect(maps.Keys(p.opts.Events)), pubsub.EventSubscribed)}
	background.NewPollLoop(background.PollOptions{Task: "following events for subscribers", Logger: p.opts.Logger}, f.poll).Run(ctx)
}

// follower is the state of Follow.
type follower struct {
	*PubSub

	deliver func(string, *models.Publication)
	types   []models.EventType
	sub     *events.Subscription
	own     map[string][]string // the patterns of agents; nil to read them
}

// poll reads the subscriptions, or waits for events and passes them on. After an error it begins with the same events.
func (f *follower) poll(ctx context.Context) (idle time.Duration, err error) {
	if f.sub == nil { // before the subscriptions are read
		if f.sub, err = f.opts.Feed.SubscribeNew(ctx); err != nil {
			return 0, err
		}
	}
	if f.own == nil {
		f.own = map[string][]string{}
		err = f.readPatterns(ctx, "")
	} else {
		position := f.sub.Position()
		if err = f.next(ctx); err != nil {
			f.sub = f.opts.Feed.Subscribe(position)
		}
	}
	if err != nil {
		f.own = nil
	}
	return 0, err
}

// readPatterns reads the patterns of an agent, "" for all agents.
func (f *follower) readPatterns(ctx context.Context, agentID string) error {
	rows, err := pubsub.OfSender(f.store.Reads(ctx), models.RootAgentID, agentID)
	delete(f.own, agentID)
	for _, s := range rows {
		f.own[s.AgentID] = append(f.own[s.AgentID], s.Pattern)
	}
	return err
}

// next waits for events and passes them on.
func (f *follower) next(ctx context.Context) error {
	limit, types := batch, f.types
	if len(f.own) == 0 {
		limit, types = 1, []models.EventType{pubsub.EventSubscribed}
	}
	news, err := f.sub.Only(types...).Next(ctx, limit)
	for _, e := range news { // first, so that nothing is delivered after the end of a subscription
		if err == nil && e.Type == pubsub.EventSubscribed {
			err = f.readPatterns(ctx, e.Key)
		}
	}
	if err != nil || len(f.own) == 0 {
		return err
	}
	return f.passOn(ctx, news)
}

// passOn delivers events to those of the agents that subscribe to them and may see them. One statement reads the trees above
// their agents.
func (f *follower) passOn(ctx context.Context, news []models.Event) error {
	about := make([][]string, len(news))
	for i, e := range news {
		about[i] = AgentsOf(e)
	}
	above, err := f.store.Agents(ctx).Chains(slices.Compact(slices.Sorted(slices.Values(slices.Concat(about...)))))
	if err != nil {
		return err
	}
	for i, e := range news {
		if _, published := f.opts.Events[e.Type]; !published {
			continue
		}
		receivers := append([]string{models.RootAgentID}, about[i]...)
		if !strings.HasPrefix(string(e.Type), "tool.") && !strings.HasPrefix(string(e.Type), "workflow.") {
			for _, id := range about[i] {
				receivers = append(receivers, above[id]...)
			}
		}
		slices.Sort(receivers)
		var of *models.Publication
		for _, id := range slices.Compact(receivers) {
			if !slices.ContainsFunc(f.own[id], func(pattern string) bool { return selects(pattern, string(e.Type)) }) {
				continue
			}
			if of == nil {
				of = publicationOf(e)
			}
			f.deliver(id, of)
		}
	}
	return nil
}

// selects reports whether a pattern selects a type.
func selects(pattern, typ string) bool {
	words, open := strings.CutSuffix(pattern, "*")
	return pattern == typ || open && strings.HasPrefix(typ, words)
}

// publicationOf returns an event as a publication of nova.
func publicationOf(e models.Event) *models.Publication {
	payload, _ := json.Marshal(struct { // the store has encoded the data
		Position int64           `json:"position"`
		Key      string          `json:"key"`
		At       time.Time       `json:"at"`
		Data     json.RawMessage `json:"data"`
	}{e.Position, e.Key, e.At, e.Data})
	return &models.Publication{
		ID: e.ID, From: models.RootAgentID, Type: string(e.Type), Name: string(e.Type), Payload: payload,
		SchemaVersion: "1.0", ContentType: "application/json", Guarantee: AtMostOnce, MaxAttempts: 1, CreatedAt: e.At,
	}
}

// mayFollow returns errs.MissingScope for a pattern of publications of nova that selects events which the principal may not read.
func (p *PubSub) mayFollow(by models.Principal, s Pattern) error {
	if s.From != models.RootAgentID {
		return nil
	}
	for _, t := range slices.Sorted(maps.Keys(p.opts.Events)) {
		if scope := p.opts.Events[t]; selects(s.Pattern, string(t)) && !by.Has(scope) {
			return errs.New(errs.MissingScope, "the pattern %s from %s selects the events %s of comet, which require the scope %q; the token %q lacks it", input.Quote(s.Pattern), s.From, t, scope, by.Name).With("scope", scope)
		}
	}
	return nil
}

// AgentsOf returns the agent that an event is about, or those that work on a task and requested it; "" is none.
func AgentsOf(e models.Event) []string {
	kind, _, _ := strings.Cut(string(e.Type), ".")
	if kind == "agent" || kind == "worker" {
		return []string{e.Key}
	}
	var data struct {
		AgentID    string `json:"agent_id"`
		OwnerAgent string `json:"owner_agent"`
	}
	_ = json.Unmarshal(e.Data, &data) // the store has encoded it
	return []string{data.AgentID, data.OwnerAgent}
}
