package webhooks

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	pushes "comet/store/a2a"
)

// Types returns the event types of the enabled webhooks, for the relay. It reads them again only after
// a change in this process, so it is only for SQLite, where no other process changes webhooks.
func (w *Webhooks) Types(ctx context.Context) ([]models.EventType, error) {
	changes := w.store.WebhookChanges() // before the read
	if last := w.subscribed.Load(); last != nil && last.changes == changes {
		return last.types, nil
	}
	subs, err := w.store.Webhooks(ctx).Subscriptions()
	if err != nil {
		return nil, err
	}
	types := w.typesOf(subs)
	w.subscribed.Store(&subscribed{changes, types})
	return types, nil
}

// typesOf returns the types that subscriptions select.
func (w *Webhooks) typesOf(subs []store.Subscription) []models.EventType {
	types := []models.EventType{}
	if slices.ContainsFunc(subs, ofTask) {
		types = slices.Clone(w.opts.TaskEvents)
	}
	for _, t := range events.ForWebhooks() {
		if slices.ContainsFunc(subs, func(s store.Subscription) bool { return wants(s.Events, t) }) {
			types = append(types, t)
		}
	}
	return types
}

func ofTask(s store.Subscription) bool { return s.TaskID != nil }

// selects reports whether a subscription selects an event, whatever its agent is.
func selects(s store.Subscription, e models.Event) bool {
	if s.TaskID != nil {
		return e.Key == *s.TaskID // only events for tasks were read
	}
	return slices.Contains(events.ForWebhooks(), e.Type) && wants(s.Events, e.Type)
}

// wants reports whether one of the filters, an event type, "*" or "agent.*", selects a type.
func wants(filters []models.EventType, t models.EventType) bool {
	return slices.ContainsFunc(filters, func(f models.EventType) bool {
		family, isFamily := strings.CutSuffix(string(f), "*")
		return f == t || isFamily && strings.HasPrefix(string(t), family)
	})
}

// PerEvent returns how many deliveries an event may have; the relay uses it.
func (w *Webhooks) PerEvent(tx *store.Tx) (int, error) {
	n, err := tx.Webhooks().CountEnabled()
	return n + MaxPerTask, err
}

// Numbered writes the deliveries of the events with positions (after, upTo] in the relay's
// transaction, so that each event has each of its deliveries exactly once.
//
// A webhook receives the events committed after its registration while it is enabled; RedeliverAll can
// deliver the others. Subtrees are those of the tree at this moment, also those that confine a webhook.
func (w *Webhooks) Numbered(tx *store.Tx, after, upTo int64) error {
	subs, err := tx.Webhooks().Subscriptions()
	if err == nil && slices.ContainsFunc(subs, ofTask) {
		var tasks []store.Subscription
		tasks, err = pushes.Subscriptions(tx, after, upTo)
		subs = append(slices.DeleteFunc(subs, ofTask), tasks...)
	}
	if err != nil || len(subs) == 0 {
		return err
	}
	events, err := tx.Events().Between(after, upTo, w.typesOf(subs), int(upTo-after))
	if err != nil || len(events) == 0 {
		return err
	}
	subs, err = tx.Webhooks().LockSubscriptions(subscribersOf(subs, events))
	if err != nil {
		return err
	}
	all, err := newDeliveries(tx, subs, events)
	if err == nil {
		err = tx.Deliveries().Insert(all)
	}
	return err
}

// newDeliveries returns the deliveries of events to subscriptions, which are locked.
func newDeliveries(tx *store.Tx, subs []store.Subscription, events []models.Event) (all []store.NewDelivery, err error) {
	chains, err := chainsOf(tx, subs, events)
	for _, s := range subs {
		if err == nil {
			all, err = appendDeliveries(all, tx, s, matching(s, events, chains))
		}
	}
	return all, err
}

func subscribersOf(subs []store.Subscription, events []models.Event) (ids []string) {
	for _, s := range subs {
		if slices.ContainsFunc(events, func(e models.Event) bool { return selects(s, e) }) {
			ids = append(ids, s.WebhookID)
		}
	}
	slices.Sort(ids)
	return ids
}

// chainsOf returns the ancestors of each agent of the events, if a subscription needs them.
func chainsOf(tx *store.Tx, subs []store.Subscription, events []models.Event) (map[string][]string, error) {
	if !slices.ContainsFunc(subs, func(s store.Subscription) bool { return s.Subtree || len(s.ConfinedTo) > 0 }) {
		return nil, nil
	}
	var keys []string
	for _, e := range events {
		if id := agentOf(e); id != "" {
			keys = append(keys, id)
		}
	}
	slices.Sort(keys)
	return tx.Agents().Chains(slices.Compact(keys))
}

// agentOf returns the agent of an event, "" for none; an event of a webhook has that of its filter, and one of a workflow
// that of the payer.
func agentOf(e models.Event) string {
	if strings.HasPrefix(string(e.Type), "agent.") {
		return e.Key
	}
	var data struct {
		AgentID string `json:"agent_id"`
	}
	_ = json.Unmarshal(e.Data, &data)
	return data.AgentID
}

func matching(s store.Subscription, all []models.Event, chains map[string][]string) (out []*models.Event) {
	for i, e := range all {
		if !selects(s, e) || e.Type == events.DeliveryDead && e.Key == s.WebhookID { // its receiver fails
			continue
		}
		id := agentOf(e)
		if slices.ContainsFunc(s.ConfinedTo, func(above string) bool { return !slices.Contains(chains[id], above) }) {
			continue
		}
		if s.AgentID == nil || id == *s.AgentID || s.Subtree && slices.Contains(chains[id], *s.AgentID) {
			out = append(out, &all[i])
		}
	}
	return out
}

// appendDeliveries adds a webhook's deliveries; ordered ones wait for an earlier one of their key.
func appendDeliveries(all []store.NewDelivery, tx *store.Tx, s store.Subscription, events []*models.Event) ([]store.NewDelivery, error) {
	busy, ordered := map[string]bool{}, s.Ordering == models.OrderingAgent
	if ordered {
		keys := make([]string, len(events))
		for i, e := range events {
			keys[i] = e.Key
		}
		slices.Sort(keys)
		if err := tx.Deliveries().UnfinishedKeys(s.WebhookID, slices.Compact(keys), busy); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		all = append(all, store.NewDelivery{WebhookID: s.WebhookID, Event: e, Ordered: ordered, Waiting: busy[e.Key]})
		busy[e.Key] = ordered
	}
	return all, nil
}
