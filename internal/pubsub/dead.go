package pubsub

import (
	"cmp"
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/pubsub"
)

// Status is a publication with the state of its delivery.
type Status struct {
	models.Publication
	// Subscribers is the number of receivers so far; Distributing says that more will follow. Delivered is the number of
	// receivers that have acknowledged it, Waiting of those that have not yet, and Dead of those with a dead letter.
	Subscribers, Delivered, Waiting, Dead int
	Distributing                          bool
}

// Status returns the status of a stored publication. It returns errs.NotFound for one that the principal has not
// published and may not read.
func (p *PubSub) Status(ctx context.Context, by models.Principal, id string) (out Status, err error) {
	err = p.store.Snapshot(ctx, func(at store.Source) error {
		row, err := pubsub.Get(at, id)
		if err != nil {
			return err
		}
		n, err := pubsub.Count(at, id)
		out = Status{
			Publication: row.Publication, Subscribers: row.Subscribers, Delivered: row.Subscribers - n.Waiting - n.Dead,
			Waiting: n.Waiting, Dead: n.Dead, Distributing: row.Cursor != "",
		}
		if row.Sender == senderOf(by) || err != nil {
			return err
		}
		if by.AgentID == nil && by.Has(models.ScopeTasksRead) || by.AgentID != nil && row.To == *by.AgentID {
			return nil
		}
		if by.AgentID == nil || !by.Has(models.ScopeTasksRead) {
			return unknown(id)
		}
		return p.store.Agents(ctx).Confine(by, row.Sender)
	})
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.ForeignAgent) {
		err = unknown(id)
	}
	return out, err
}

func unknown(id string) error { return errs.New(errs.NotFound, "there is no publication %q", id) }

// DeadQuery selects dead letters.
type DeadQuery = pubsub.DeadQuery

// DeadLetter is a publication that an agent has not received.
type DeadLetter = pubsub.ListedLetter

// DeadLetters returns dead letters, ordered by publication and agent. A principal that is bound to an agent gets those of
// its agent by default, and may select an agent below it.
func (p *PubSub) DeadLetters(ctx context.Context, by models.Principal, q DeadQuery) ([]DeadLetter, error) {
	if by.AgentID != nil && !by.Administers() {
		q.AgentID = cmp.Or(q.AgentID, *by.AgentID)
		if err := p.store.Agents(ctx).Confine(by, q.AgentID); err != nil {
			return nil, err
		}
	}
	return pubsub.DeadLetters(p.store.Reads(ctx), q)
}

// Redeliver puts dead letters into the inboxes of their agents again, with all attempts, and returns their number. The
// publications keep their ids. It returns errs.NotFound for an agent or a publication that does not exist.
func (p *PubSub) Redeliver(ctx context.Context, by models.Principal, q DeadQuery) (redelivered int, err error) {
	if err := p.exist(ctx, by, q); err != nil {
		return 0, err
	}
	for q.Limit = batch; ; {
		dead, err := p.DeadLetters(ctx, by, q)
		if err != nil || len(dead) == 0 {
			return redelivered, err
		}
		q.After = dead[len(dead)-1].DeadLetter
		var order []string
		agents := map[string][]string{} // by publication
		for _, d := range dead {
			if agents[d.PublicationID] == nil {
				order = append(order, d.PublicationID)
			}
			agents[d.PublicationID] = append(agents[d.PublicationID], d.AgentID)
		}
		var revived []string
		err = p.store.Write(ctx, func(tx *store.Tx) error {
			revived = nil
			for _, id := range order {
				ids, err := pubsub.Revive(tx, id, agents[id], tx.Now().Add(retention))
				if err == nil {
					err = p.enqueue(tx, id, ids)
				}
				if err != nil {
					return err
				}
				revived = append(revived, ids...)
			}
			return nil
		})
		if err != nil {
			return redelivered, err
		}
		redelivered += len(revived)
		p.opts.Wake(revived)
	}
}

// exist returns an error for an agent or a publication of a query that does not exist or may not be selected.
func (p *PubSub) exist(ctx context.Context, by models.Principal, q DeadQuery) error {
	if q.AgentID != "" {
		err := p.store.Agents(ctx).Confine(by, q.AgentID)
		if err == nil {
			_, err = p.store.Agents(ctx).Get(q.AgentID)
		}
		if err != nil {
			return err
		}
	}
	if q.PublicationID == "" {
		return nil
	}
	_, err := pubsub.Get(p.store.Reads(ctx), q.PublicationID)
	if errs.Is(err, errs.NotFound) {
		return unknown(q.PublicationID)
	}
	return err
}
