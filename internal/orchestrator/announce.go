package orchestrator

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/models"
)

// Announcement is something that agents are told and that is about no task (PROTOCOL_V5
// §3.3, type B). It goes to those who are there: agents that are offline do not hear of it.
type Announcement struct {
	// Dialect is what they speak.
	Dialect string
	// Sphere is whose agents are told, 0 for all; Agent is the one that is, "" for all.
	Sphere int
	Agent  string
	// Priority is 0 to 3.
	Priority int
	// Data is JSON for the dialect that writes it.
	Data json.RawMessage
}

// toldAtATime is how many agents are told in one transaction.
const toldAtATime = 500

// Announce tells agents something and returns how many. One that is named and not there, or
// that speaks another dialect, is errs.NotFound.
func (o *Orchestrator) Announce(ctx context.Context, a Announcement) (told int, err error) {
	if a.Agent != "" {
		if w := o.crowd.worker(a.Agent); w.Dialect != a.Dialect || w.State == models.WorkerOffline {
			return 0, errs.New(errs.NotFound, "the agent %q is not there", a.Agent)
		}
		return 1, o.do(ctx, func(s *step) error { return s.tell(a, a.Agent) })
	}
	for after := ""; ; {
		var ids []string
		err = o.do(ctx, func(s *step) error {
			if ids, err = s.tx.Audience(a.Dialect, a.Sphere, after, toldAtATime); err != nil {
				return err
			}
			for _, id := range ids {
				if err := s.tell(a, id); err != nil {
					return err
				}
			}
			return nil
		})
		if told += len(ids); err != nil || len(ids) < toldAtATime {
			return told, err
		}
		after = ids[len(ids)-1]
	}
}

func (s *step) tell(a Announcement, agentID string) error {
	_, err := s.tx.Tell(models.InboxMessage{AgentID: agentID, Kind: models.MessageNotice, Priority: a.Priority, Data: a.Data})
	s.wake(WakeInbox, agentID)
	return err
}
