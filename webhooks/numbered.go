package webhooks

import (
	"slices"
	"strings"

	"comet/models"
	"comet/store"
)

// PerEvent returns how many deliveries an event may have; it is meant for the relay.
func (w *Webhooks) PerEvent(tx *store.Tx) (int, error) { return tx.CountEnabledWebhooks() }

// Numbered writes the deliveries of the events with the positions (after, upTo] in the
// transaction that numbered them, so that each has its own exactly once. It is meant
// for the relay.
//
// A webhook hears of what is committed from its registration on; while it is disabled
// it hears of nothing. Which agents stand below one is what the tree says now.
func (w *Webhooks) Numbered(tx *store.Tx, after, upTo int64) error {
	subs, err := tx.Subscriptions()
	if err != nil || len(subs) == 0 {
		return err
	}
	var types []models.EventType
	for _, s := range subs {
		types = append(types, s.Events...)
	}
	slices.Sort(types)
	events, err := tx.EventsBetween(after, upTo, slices.Compact(types))
	if err != nil || len(events) == 0 {
		return err
	}
	subs, err = tx.KeepSubscriptions(concerned(subs, events))
	if err != nil {
		return err
	}
	chains, err := chainsOf(tx, subs, events)
	if err != nil {
		return err
	}
	var all []store.NewDelivery
	for _, s := range subs {
		if all, err = appendDeliveries(all, tx, s, selected(s, events, chains)); err != nil {
			return err
		}
	}
	return tx.InsertDeliveries(all)
}

// concerned returns the webhooks that want an event of one of the types.
func concerned(subs []store.Subscription, events []models.Event) (ids []string) {
	there := map[models.EventType]bool{}
	for _, e := range events {
		there[e.Type] = true
	}
	for _, s := range subs {
		if slices.ContainsFunc(s.Events, func(t models.EventType) bool { return there[t] }) {
			ids = append(ids, s.WebhookID)
		}
	}
	return ids
}

// chainsOf returns the agents above each agent of the events, where somebody asks.
func chainsOf(tx *store.Tx, subs []store.Subscription, events []models.Event) (map[string][]string, error) {
	if !slices.ContainsFunc(subs, func(s store.Subscription) bool { return s.Subtree }) {
		return nil, nil
	}
	var keys []string
	for _, e := range events {
		if aboutAgent(e) {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return tx.Chains(slices.Compact(keys))
}

func aboutAgent(e models.Event) bool { return strings.HasPrefix(string(e.Type), "agent.") }

// selected returns the events that pass the filters of a subscription.
func selected(s store.Subscription, events []models.Event, chains map[string][]string) (out []*models.Event) {
	for i := range events {
		e := &events[i]
		if slices.Contains(s.Events, e.Type) && ofAgent(s, *e, chains) {
			out = append(out, e)
		}
	}
	return out
}

func ofAgent(s store.Subscription, e models.Event, chains map[string][]string) bool {
	switch {
	case s.AgentID == nil:
		return true
	case !aboutAgent(e):
		return false
	case s.Subtree && slices.Contains(chains[e.Key], *s.AgentID):
		return true
	}
	return e.Key == *s.AgentID
}

// appendDeliveries adds a webhook's deliveries; in an ordered one, each waits behind an
// earlier one of its key.
func appendDeliveries(all []store.NewDelivery, tx *store.Tx, s store.Subscription, events []*models.Event) ([]store.NewDelivery, error) {
	busy, ordered := map[string]bool{}, s.Ordering == models.OrderingAgent
	if ordered {
		keys := make([]string, len(events))
		for i, e := range events {
			keys[i] = e.Key
		}
		slices.Sort(keys)
		if err := tx.UnfinishedKeys(s.WebhookID, slices.Compact(keys), busy); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		all = append(all, store.NewDelivery{WebhookID: s.WebhookID, Event: e, Ordered: ordered, Waiting: busy[e.Key]})
		busy[e.Key] = ordered
	}
	return all, nil
}
