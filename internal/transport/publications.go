package transport

import (
	"context"
	"encoding/json"

	"comet/internal/bus"
	"comet/models"
)

// receivePublications passes publications that are delivered at most once to the connections of this process, until ctx
// ends.
func (s *Server) receivePublications(ctx context.Context) {
	if s.core.Bus == nil || s.core.PubSub == nil {
		return
	}
	sub := s.subscribeTo(ctx, "subscribing to publications", func() (*bus.Subscription, error) {
		return s.core.Bus.Subscribe(string(bus.Publications), func(m bus.Message) {
			var p models.Publication
			if json.Unmarshal(m.Data, &p) == nil { // a replica has written it
				s.logWarning("cannot read the subscribers of a publication", p.From, s.passOn(ctx, &p))
			}
		})
	})
	if sub == nil {
		return
	}
	<-ctx.Done()
	sub.Unsubscribe()
}

// passOn passes a publication to the connected agents that subscribe to it. A connection whose agent is joining gets it
// once the agent has joined.
func (s *Server) passOn(ctx context.Context, p *models.Publication) error {
	var agents []string
	for _, c := range s.connections.appendAll(nil) {
		agents = append(agents, c.agentID)
	}
	if len(agents) == 0 {
		return nil
	}
	receivers, err := s.core.PubSub.Among(ctx, *p, agents)
	for _, id := range receivers {
		if c := s.connections.get(id); c != nil && !c.fleeting.add(p) {
			s.core.PubSub.Dropped.Inc()
		}
	}
	return err
}
