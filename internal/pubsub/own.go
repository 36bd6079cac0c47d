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
	"comet/internal/input"
	"comet/models"
	"comet/store/pubsub"
)

// Follow passes comet's own events to the agents that subscribe to publications of nova, until ctx ends: deliver is called
// with an agent and the event as a publication that is delivered at most once. Every process follows the events for
// the agents that are connected to it. Without subscribers it reads nothing but the log in memory.
//
// An agent receives the events of its subtree, and those of tools and workflows only if it pays for them.
func (p *PubSub) Follow(ctx context.Context, deliver func(agentID string, of *models.Publication)) {
	if p.opts.Feed == nil {
		return
	}
	background.NewPollLoop(background.PollOptions{Task: "following events for subscribers", Logger: p.opts.Logger}, func(ctx context.Context) (time.Duration, error) {
		return 0, p.follow(ctx, deliver)
	}).Run(ctx)
}

// follow passes on the events from now on until it fails.
func (p *PubSub) follow(ctx context.Context, deliver func(string, *models.Publication)) error {
	sub, err := p.opts.Feed.SubscribeNew(ctx) // before the subscriptions are read
	if err != nil {
		return err
	}
	rows, err := pubsub.OfSender(p.store.Reads(ctx), models.RootAgentID, "")
	if err != nil {
		return err
	}
	own := map[string][]string{} // the patterns of agents
	add := func(rows []pubsub.Subscription) {
		for _, s := range rows {
			own[s.AgentID] = append(own[s.AgentID], s.Pattern)
		}
	}
	add(rows)
	all := []models.EventType{pubsub.EventSubscribed}
	for t := range p.opts.Events {
		all = append(all, t)
	}
	for {
		limit, types := batch, all
		if len(own) == 0 {
			limit, types = 1, all[:1]
		}
		news, err := sub.Only(types...).Next(ctx, limit)
		if err != nil {
			return err
		}
		for _, e := range news { // first, so that nothing is delivered after the end of a subscription
			if err == nil && e.Type == pubsub.EventSubscribed {
				rows, err = pubsub.OfSender(p.store.Reads(ctx), models.RootAgentID, e.Key)
				delete(own, e.Key)
				add(rows)
			}
		}
		if err == nil && len(own) > 0 {
			err = p.passOn(ctx, news, own, deliver)
		}
		if err != nil {
			return err
		}
	}
}

// passOn delivers events to those of the agents that subscribe to them and may see them. One statement reads the trees above
// their agents.
func (p *PubSub) passOn(ctx context.Context, news []models.Event, own map[string][]string, deliver func(string, *models.Publication)) error {
	about := make([][]string, len(news))
	for i, e := range news {
		about[i] = AgentsOf(e)
	}
	above, err := p.store.Agents(ctx).Chains(slices.Compact(slices.Sorted(slices.Values(slices.Concat(about...)))))
	if err != nil {
		return err
	}
	for i, e := range news {
		if _, published := p.opts.Events[e.Type]; !published {
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
			if !slices.ContainsFunc(own[id], func(pattern string) bool { return selects(pattern, string(e.Type)) }) {
				continue
			}
			if of == nil {
				if of, err = publicationOf(e); err != nil {
					return err
				}
			}
			deliver(id, of)
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
func publicationOf(e models.Event) (*models.Publication, error) {
	payload, err := json.Marshal(struct {
		Position int64           `json:"position"`
		Key      string          `json:"key"`
		At       time.Time       `json:"at"`
		Data     json.RawMessage `json:"data"`
	}{e.Position, e.Key, e.At, e.Data})
	return &models.Publication{
		ID: e.ID, From: models.RootAgentID, Type: string(e.Type), Name: string(e.Type), Payload: payload,
		SchemaVersion: "1.0", ContentType: "application/json", Guarantee: AtMostOnce, MaxAttempts: 1, CreatedAt: e.At,
	}, err
}

// mayFollow returns errs.MissingScope for a pattern of publications of nova that selects events which the principal may not read.
func (p *PubSub) mayFollow(by models.Principal, s Pattern) error {
	if s.From != models.RootAgentID {
		return nil
	}
	for _, t := range slices.Sorted(maps.Keys(p.opts.Events)) {
		if scope := p.opts.Events[t]; selects(s.Pattern, string(t)) && !by.Has(scope) {
			return errs.New(errs.MissingScope, "the pattern %s from %s selects comet's events %s, which require the scope %q; the token %q lacks it", input.Quote(s.Pattern), s.From, t, scope, by.Name).With("scope", scope)
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
