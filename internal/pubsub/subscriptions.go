package pubsub

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/pubsub"
)

// Pattern selects publications: those of a type (order.paid), of all types that begin with words (order.*), or all (*).
type Pattern struct {
	Pattern string `json:"pattern"`
	// From is the only sender, "" for all but the agent itself.
	From string `json:"from,omitempty"`
}

var patterns = regexp.MustCompile(`^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}(\.\*)?)$`)

// Check returns errs.InvalidRequest for patterns that Subscribe rejects.
func Check(list []Pattern) error {
	if len(list) > MaxPatterns {
		return input.Violated("/patterns", "max", "patterns must have at most %d elements, not %d", MaxPatterns, len(list))
	}
	for i, s := range list {
		pointer := "/patterns/" + strconv.Itoa(i)
		switch {
		case !patterns.MatchString(s.Pattern) || len(s.Pattern) > 200:
			return input.Violated(pointer+"/pattern", "pattern", "the pattern %s is neither a type such as order.paid, nor the beginning of types such as order.*, nor *", input.Quote(s.Pattern))
		case !isText(s.From, input.MaxID):
			return input.Violated(pointer+"/from", "max", "the sender of the pattern %s must be text of at most %d bytes", input.Quote(s.Pattern), input.MaxID)
		}
	}
	return nil
}

// Subscribe replaces the subscriptions of an agent. With none it receives only what is published to it alone. It returns
// errs.InvalidRequest for an invalid pattern, errs.NotFound for the agent, errs.MissingScope for a principal that may not
// change agents or read the events of nova that a pattern selects, and errs.ForeignAgent for one that is bound to an agent which is neither this one nor above it.
func (p *PubSub) Subscribe(ctx context.Context, by models.Principal, agentID string, list []Pattern) error {
	if by.AgentID == nil && !by.Has(models.ScopeAgentsWrite) {
		return errs.New(errs.MissingScope, "the token %q lacks the scope %q and is bound to no agent", by.Name, models.ScopeAgentsWrite).With("scope", models.ScopeAgentsWrite)
	}
	if err := p.store.Agents(ctx).Confine(by, agentID); err != nil {
		return err
	}
	if err := Check(list); err != nil {
		return err
	}
	rows := make([]pubsub.Subscription, 0, max(len(list), 1))
	for _, s := range list {
		if err := p.mayFollow(by, s); err != nil {
			return err
		}
		rows = append(rows, pubsub.Subscription{AgentID: agentID, Pattern: s.Pattern, FromName: s.From, CreatedAt: p.store.Now()})
	}
	if len(rows) == 0 {
		rows = append(rows, pubsub.Subscription{AgentID: agentID, CreatedAt: p.store.Now()})
	}
	return p.store.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.Agents().Lock(agentID); err != nil { // of concurrent lists, one remains
			return err
		}
		if err := pubsub.Subscribe(tx, agentID, rows); err != nil {
			return err
		}
		return tx.Events().Emit(pubsub.EventSubscribed, agentID, subscribed{agentID, append([]Pattern{}, list...), by.Name})
	})
}

// subscribed is the data of pubsub.EventSubscribed.
type subscribed struct {
	AgentID  string    `json:"agent_id"`
	Patterns []Pattern `json:"patterns"`
	Actor    string    `json:"actor"`
}

// Subscriptions returns the subscriptions of an agent. chosen is false if they were never set: the agent then
// receives everything if it has connected with one of Options.Protocols, and otherwise nothing.
func (p *PubSub) Subscriptions(ctx context.Context, agentID string) (list []Pattern, chosen bool, err error) {
	if _, err := p.store.Agents(ctx).Get(agentID); err != nil {
		return nil, false, err
	}
	rows, err := pubsub.Subscriptions(p.store.Reads(ctx), agentID)
	for _, s := range rows {
		if s.Pattern != "" {
			list = append(list, Pattern{s.Pattern, s.FromName})
		}
	}
	return list, len(rows) > 0, err
}

// audience selects the receivers of a publication.
func (p *PubSub) audience(publication models.Publication) pubsub.Audience {
	matching := []string{publication.Type, "*"}
	for i, c := range publication.Type {
		if c == '.' {
			matching = append(matching, publication.Type[:i]+".*")
		}
	}
	return pubsub.Audience{Patterns: matching, From: publication.From, Protocols: p.opts.Protocols}
}

// Among returns those of the agents that receive a publication.
func (p *PubSub) Among(ctx context.Context, publication models.Publication, agentIDs []string) ([]string, error) {
	if publication.To != "" {
		return slices.DeleteFunc(agentIDs, func(id string) bool { return id != publication.To }), nil
	}
	audience := p.audience(publication)
	audience.Among = agentIDs
	return pubsub.Receivers(p.store.Reads(ctx), audience, "", len(agentIDs))
}
