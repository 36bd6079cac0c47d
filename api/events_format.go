package api

import (
	"context"

	"comet/models"
)

// eventForm writes an event as a stream tells it, in one line.
type eventForm func(ctx context.Context, e models.Event) ([]byte, error)

// asJSON is an event as one JSON object.
func (s *Server) asJSON(_ context.Context, e models.Event) ([]byte, error) {
	return s.encode(newEventView(e))
}

// eventForm reads in which form a stream is asked for.
func (s *Server) eventForm(q *query) eventForm {
	if q.Enum("format", "json", "json", "v5") == "json" {
		return s.asJSON
	}
	if s.opts.V5 == nil {
		q.Fail("format", "enum", "format must be json: this server does not speak PROTOCOL_V5")
	}
	return func(ctx context.Context, e models.Event) ([]byte, error) {
		line, err := s.opts.V5(ctx, e)
		return []byte(line), err
	}
}
