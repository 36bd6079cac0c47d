package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
	"comet/internal/pubsub"
	"comet/models"
)

// subscriptionDraft selects publications that an agent receives.
type subscriptionDraft struct {
	Pattern string  `json:"pattern" validate:"required,text,max=200" maxLength:"200" example:"order.*"`                            // A type, the beginning of types followed by `.*`, or `*` for all types.
	From    *string `json:"from" validate:"omitnil,text,max=64" maxLength:"64" example:"finance-personal" extensions:"x-nullable"` // The only sender; null for all but the agent itself.
}

// subscriptionsDraft is the body of a request to set the subscriptions of an agent.
type subscriptionsDraft struct {
	Patterns []subscriptionDraft `json:"patterns" validate:"required,max=100,dive"` // What the agent receives; an empty list for nothing.
}

// subscriptionView is a subscription of an agent.
type subscriptionView struct {
	Pattern string `json:"pattern" example:"order.*"`                 // The types.
	From    string `json:"from,omitempty" example:"finance-personal"` // The only sender; absent for all but the agent itself.
}

// subscriptionsView is the subscriptions of an agent.
type subscriptionsView struct {
	Patterns []subscriptionView `json:"patterns"` // What the agent receives.
	// False if the subscriptions were never set: the agent then receives all publications of others if it connects with a protocol that has publications of its own, and nothing otherwise.
	Chosen bool `json:"chosen" example:"true"`
}

// getSubscriptions returns the subscriptions of an agent.
//
//	@Summary		Get the subscriptions of an agent
//	@Description	Returns which publications the agent receives.
//	@Success		200	{object}	subscriptionsView	"The subscriptions"
func (s *Server) getSubscriptions(r request) (any, error) {
	list, chosen, err := s.core.PubSub.Subscriptions(r.Context(), r.id)
	return subscriptionsView{views(list, func(p pubsub.Pattern) subscriptionView { return subscriptionView(p) }), chosen}, err
}

// putSubscriptions sets the subscriptions of an agent.
//
//	@Summary		Set the subscriptions of an agent
//	@Description	Replaces the subscriptions of the agent. A token with `messages:send` alone must be bound to the agent or to one above it. Publications that already wait for the agent are not affected.
//	@Param			body	body	subscriptionsDraft	true	"The subscriptions"
//	@Success		200	{object}	subscriptionsView	"The subscriptions"
//	@Failure		400	"A field is missing or malformed"
func (s *Server) putSubscriptions(r request, d subscriptionsDraft) (any, error) {
	err := s.core.PubSub.Subscribe(r.Context(), r.caller, r.id, views(d.Patterns, func(v subscriptionDraft) pubsub.Pattern {
		return pubsub.Pattern{Pattern: v.Pattern, From: orZero(v.From)}
	}))
	if err != nil {
		return nil, err
	}
	return s.getSubscriptions(r)
}

// publicationDraft is the body of a request to publish.
type publicationDraft struct {
	ID       *string        `json:"id" validate:"omitnil,text,max=200" maxLength:"200" example:"order-81-paid" extensions:"x-nullable"`  // An id of the sender, which receivers see.
	From     *string        `json:"from" validate:"omitnil,text,max=64" maxLength:"64" example:"shop" extensions:"x-nullable"`           // The name of the sender, default that of its token. Not for tokens that are bound to an agent, and not the id of an agent.
	To       *string        `json:"to" validate:"omitnil,text,max=64" maxLength:"64" example:"finance-personal" extensions:"x-nullable"` // The only receiver; null for all agents that subscribe to the type.
	Type     string         `json:"type" validate:"required,text,max=200" maxLength:"200" example:"order.paid"`                          // Words with dots between them.
	Name     string         `json:"name" validate:"omitempty,text,max=200" maxLength:"200" example:"Order paid"`                         // A display name.
	Payload  jsontext.Value `json:"payload" validate:"required" swaggertype:"object"`                                                    // Any JSON value of at most 1 MiB.
	Metadata struct {
		SchemaVersion string `json:"schema_version" validate:"omitempty,text,max=64" maxLength:"64" example:"1.0" default:"1.0"`                           // The version of the payload's schema.
		ContentType   string `json:"content_type" validate:"omitempty,text,max=128" maxLength:"128" example:"application/json" default:"application/json"` // The media type of the payload.
	} `json:"metadata"` // What describes the payload.
	Guarantee       string  `json:"guarantee" swaggertype:"string" enums:"at-most-once,at-least-once,exactly-once" default:"at-least-once" example:"exactly-once"` // How often receivers get it.
	DeduplicationID *string `json:"deduplication_id" validate:"omitnil,text,max=200" maxLength:"200" example:"order-81-paid" extensions:"x-nullable"`              // Unique for the sender within 24 hours, if the event is stored; required for exactly-once.
	Retry           struct {
		MaxAttempts        *int     `json:"max_attempts" validate:"omitnil,min=1,max=20" minimum:"1" maximum:"20" default:"5" example:"5" extensions:"x-nullable"`                              // Deliveries without an acknowledgement.
		InitialIntervalMS  *int64   `json:"initial_interval_ms" validate:"omitnil,min=100,max=3600000" minimum:"100" maximum:"3600000" default:"10000" example:"10000" extensions:"x-nullable"` // How long a receiver may take to acknowledge the first delivery.
		BackoffCoefficient *float64 `json:"backoff_coefficient" validate:"omitnil,min=1,max=10" minimum:"1" maximum:"10" default:"2" example:"2" extensions:"x-nullable"`                       // The factor by which the time for an acknowledgement grows with each further delivery.
	} `json:"retry"` // How the event is delivered again; not with at-most-once.
}

// published is the response to a request to publish.
type published struct {
	ID          string `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The id of the publication; of a repetition, that of the first one.
	Subscribers int    `json:"subscribers" example:"12"`                          // Number of receivers; with at-most-once also those that are not connected now.
	Replayed    bool   `json:"replayed" example:"false"`                          // Whether the sender has published it before, with the same deduplication id.
}

const publicationsPath = "/api/v1/publications"

// publish publishes an event.
//
//	@Summary		Publish an event
//	@Description	Publishes an event to the agents that subscribe to its type, or to one agent. `at-most-once` reaches the agents that are connected now and stores nothing. `at-least-once` is delivered again until the receiver acknowledges it; after the last attempt it becomes a dead letter. `exactly-once` is the same, and a repeated request with the same `deduplication_id` returns the first publication. An agent receives its own publications only if it subscribes to them with its id as `from`.
//	@Param			Idempotency-Key	header	string				false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"	maxlength(255)
//	@Param			body			body	publicationDraft	true	"The event"
//	@Success		202	{object}	published	"The event was accepted"
//	@Header			202	{string}	Location
//	@Failure		400	"A field is missing or malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or `from` is an agent"
//	@Failure		404	"The receiver does not exist"
//	@Failure		409	"The sender has used the deduplication id for other content"
//	@Failure		413	"The payload is too long"
//	@Failure		422	"Too many agents subscribe to the type"
func (s *Server) publish(r request, d publicationDraft, key *models.Idempotency) (pubsub.Published, error) {
	return s.core.PubSub.Publish(r.Context(), r.caller, pubsub.Draft{
		From: orZero(d.From), To: orZero(d.To), Type: d.Type, Name: d.Name, Payload: []byte(d.Payload), SchemaVersion: d.Metadata.SchemaVersion, ContentType: d.Metadata.ContentType,
		Guarantee: d.Guarantee, DeduplicationID: orZero(d.DeduplicationID), MessageID: orZero(d.ID),
		MaxAttempts: orZero(d.Retry.MaxAttempts), InitialInterval: time.Duration(orZero(d.Retry.InitialIntervalMS)) * time.Millisecond, Coefficient: orZero(d.Retry.BackoffCoefficient), Once: key,
	})
}

func publishedReply(p pubsub.Published) reply {
	return reply{status: http.StatusAccepted, location: publicationsPath + "/" + p.ID, body: published(p)}
}

// publicationView is a publication with the state of its delivery.
type publicationView struct {
	ID              string         `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                                                     // The id, the same for every receiver.
	MessageID       string         `json:"message_id,omitempty" example:"order-81-paid"`                                                          // The sender's own id; absent for none.
	From            string         `json:"from" example:"shop"`                                                                                   // The sender.
	To              string         `json:"to,omitempty" example:"finance-personal"`                                                               // The only receiver; absent for all subscribers.
	Type            string         `json:"type" example:"order.paid"`                                                                             // The type.
	Name            string         `json:"name" example:"Order paid"`                                                                             // The name.
	Payload         jsontext.Value `json:"payload" swaggertype:"object"`                                                                          // The payload.
	Guarantee       string         `json:"guarantee" swaggertype:"string" enums:"at-most-once,at-least-once,exactly-once" example:"exactly-once"` // How often receivers get it.
	DeduplicationID string         `json:"deduplication_id,omitempty" example:"order-81-paid"`                                                    // Absent for none, and after 24 hours.
	CreatedAt       time.Time      `json:"created_at" example:"2026-01-10T15:30:00Z"`                                                             // When it was published.
	Subscribers     int            `json:"subscribers" example:"12"`                                                                              // Number of receivers so far.
	Distributing    bool           `json:"distributing" example:"false"`                                                                          // Whether there will be more receivers.
	Delivered       int            `json:"delivered" example:"10"`                                                                                // Receivers that have acknowledged it.
	Waiting         int            `json:"waiting" example:"1"`                                                                                   // Receivers that have not acknowledged it yet.
	Dead            int            `json:"dead" example:"1"`                                                                                      // Receivers for which it is a dead letter.
}

// getPublication returns a publication.
//
//	@Summary		Get a publication
//	@Description	Returns a stored publication and how many receivers have acknowledged it. It is kept for seven days. A token without `tasks:read` can read only its own publications and those whose only receiver is its agent.
//	@Success		200	{object}	publicationView	"The publication"
func (s *Server) getPublication(r request) (any, error) {
	p, err := s.core.PubSub.Status(r.Context(), r.caller, r.id)
	return publicationView{
		p.ID, p.MessageID, p.From, p.To, p.Type, p.Name, jsontext.Value(p.Payload), p.Guarantee, p.DeduplicationID, p.CreatedAt,
		p.Subscribers, p.Distributing, p.Delivered, p.Waiting, p.Dead,
	}, err
}

// deadLetterView is a publication that an agent has not received.
type deadLetterView struct {
	PublicationID string    `json:"publication_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                         // The publication's id.
	AgentID       string    `json:"agent_id" example:"research-web-01"`                                                    // The receiver.
	From          string    `json:"from" example:"shop"`                                                                   // The sender.
	Type          string    `json:"type" example:"order.paid"`                                                             // The type.
	Name          string    `json:"name" example:"Order paid"`                                                             // The name.
	Attempts      int       `json:"attempts" example:"5"`                                                                  // Number of deliveries.
	Reason        string    `json:"reason" enums:"unacknowledged,expired,queue_full,unsupported" example:"unacknowledged"` // No delivery was acknowledged; it waited for 24 hours; 1,000 newer publications waited for the agent; or the agent's protocol has no form for publications.
	DeadAt        time.Time `json:"dead_at" example:"2026-01-10T15:35:10Z"`                                                // When it became a dead letter.
}

// deadLetterList is one page of dead letters.
type deadLetterList struct {
	DeadLetters []deadLetterView `json:"dead_letters"`                                            // The dead letters on the page.
	NextCursor  string           `json:"next_cursor,omitempty" example:"MDE4OTBhNWQgcmVzZWFyY2g"` // Absent on the last page.
}

// listDeadLetters lists publications that agents have not received.
//
//	@Summary		List dead letters
//	@Description	Returns publications that agents have not received, ordered by publication and agent. They are kept for seven days. A token that is bound to an agent receives those of its agent, or of the agent below it that `agent_id` selects.
//	@Param			agent_id		query	string	false	"Only dead letters of this receiver"	maxlength(64)	example(research-web-01)
//	@Param			publication_id	query	string	false	"Only dead letters of this publication"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			type			query	string	false	"Only dead letters of this type"	maxlength(200)	example(order.paid)
//	@Param			cursor			query	string	false	"`next_cursor` of the previous page"	maxlength(200)
//	@Success		200	{object}	deadLetterList	"A page of results"
func (s *Server) listDeadLetters(r request) (any, error) {
	q := newQuery(r.Request, "agent_id", "publication_id", "type", "limit", "cursor")
	limit := q.pageLimit()
	search := pubsub.DeadQuery{
		AgentID: orZero(q.OptString("agent_id", input.MaxID)), PublicationID: orZero(q.OptString("publication_id", input.MaxID)), Type: orZero(q.OptString("type", 200)), Limit: limit + 1,
	}
	if key, ok := q.cursor(200); ok {
		publication, agent, valid := strings.Cut(key, " ")
		if search.After.PublicationID, search.After.AgentID = publication, agent; !valid || !storable(key) {
			q.failCursor()
		}
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	list, err := s.core.PubSub.DeadLetters(r.Context(), r.caller, search)
	list, next := cutPage(list, limit, func(d pubsub.DeadLetter) string { return d.PublicationID + " " + d.AgentID })
	return reply{next: next, body: deadLetterList{views(list, func(d pubsub.DeadLetter) deadLetterView {
		return deadLetterView{d.PublicationID, d.AgentID, d.FromName, d.Type, d.Name, d.Attempts, d.Reason, d.DeadAt}
	}), next}}, err
}

// redeliveryFilter selects dead letters.
type redeliveryFilter struct {
	AgentID       *string `json:"agent_id" validate:"omitnil,text,max=64" maxLength:"64" example:"research-web-01" extensions:"x-nullable"`                            // Only those of this receiver.
	PublicationID *string `json:"publication_id" validate:"omitnil,text,max=64" maxLength:"64" example:"01890a5d-ac96-774b-bcce-b302099a8057" extensions:"x-nullable"` // Only those of this publication.
	Type          *string `json:"type" validate:"omitnil,text,max=200" maxLength:"200" example:"order.paid" extensions:"x-nullable"`                                   // Only those of this type.
}

// redeliverDeadLetters delivers dead letters again.
//
//	@Summary		Redeliver dead letters
//	@Description	Delivers the selected dead letters again, with the full number of attempts: those of a publication, an agent or a type, or all that the token may list. The publications keep their ids, so that receivers can recognize them.
//	@Param			body	body	redeliveryFilter	true	"The dead letters; `{}` for all"
//	@Success		202	{object}	redeliveryResult	"The number of dead letters"
//	@Failure		400	"A field is malformed"
//	@Failure		404	"The agent or the publication does not exist"
func (s *Server) redeliverDeadLetters(r request, d redeliveryFilter) (any, error) {
	n, err := s.core.PubSub.Redeliver(r.Context(), r.caller, pubsub.DeadQuery{AgentID: orZero(d.AgentID), PublicationID: orZero(d.PublicationID), Type: orZero(d.Type)})
	return reply{status: http.StatusAccepted, body: redeliveryResult{int64(n)}}, err
}
