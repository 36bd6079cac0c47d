package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// usageReport is what a report of use says: one fact, or several. Exactly one is
// set; the description shows them as alternatives.
type usageReport struct {
	Fact  *models.FactDraft `json:"fact" extensions:"x-one-of"`
	Facts *usageFactBatch   `json:"facts" extensions:"x-one-of"`
}

// usageFactBatch is several facts in one request.
type usageFactBatch struct {
	// All of them are recorded, or none.
	Facts []models.FactDraft `json:"facts" validate:"required" minItems:"1" maxItems:"1000"`
}

// usageRecorded is the answer to a report, of the same form as the report.
type usageRecorded struct {
	Fact  *usageFactRecorded  `json:"fact" extensions:"x-one-of"`
	Facts *usageFactsRecorded `json:"facts" extensions:"x-one-of"`
}

// usageFactRecorded is a fact and what the agent has left after it.
type usageFactRecorded struct {
	models.Fact
	Balance models.Balance `json:"balance"`
}

// usageFactsRecorded is the facts of a batch, in its order.
type usageFactsRecorded struct {
	Facts    []models.Fact `json:"facts"`
	Recorded int           `json:"recorded" example:"2"` // How many were new.
	Replayed int           `json:"replayed" example:"1"` // How many had been recorded before.
	// Balance is what the agent has left after them.
	Balance models.Balance `json:"balance"`
}

// getUsage returns what an agent used and may still use (CHE·NU §5.2).
//
//	@Summary		Get an agent's usage
//	@Description	What the agent used today and may still use, in UTC days. `budget` and `remaining` are null for `nova`, which has no limit. `remaining` is `budget` less what is used and reserved, and never below 0.
//	@ID				getUsage
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	models.Usage	"The usage"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/usage [get]
func (s *Server) getUsage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	u, err := s.usage.Usage(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, u)
}

// recordUsage records what an agent used.
//
//	@Summary		Record usage
//	@Description	Records one fact, or up to 1,000 as `{"facts": [ … ]}`, all of them or none. What was used is always recorded, whatever the budget. A `request_id` makes a fact count once for its agent: repeated with the same content it answers with the first fact and `replayed: true`, with another content it is refused. A token bound to an agent records for that agent only.
//	@ID				recordUsage
//	@Tags			usage
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[usage:write]
//	@Param			agent_id		path	string		true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			Idempotency-Key	header	string		false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	usageReport	true	"What was used"
//	@Success		200	{object}	usageRecorded	"Everything had been recorded before"
//	@Header			200	{string}	Idempotency-Replayed
//	@Success		201	{object}	usageRecorded	"Recorded"
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed, or there are no facts or too many"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or it is bound to another agent"
//	@Failure		404	"No such agent"
//	@Failure		409	"A request_id or the key was used with another content"
//	@Failure		422	"The agent's day is full"
//	@Router			/api/v1/agents/{agent_id}/usage [post]
func (s *Server) recordUsage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	report, body, err := s.decodeReport(w, r)
	if err != nil {
		return err
	}
	render := func(result any) (models.StoredResponse, error) {
		return s.renderRecorded(report, result.(models.Recorded))
	}
	once, err := s.readIdempotencyKey(r, body, render)
	if err != nil {
		return err
	}
	recorded, err := s.usage.Record(r.Context(), caller(r), id, report.drafts(), once)
	if err != nil {
		return report.locate(err)
	}
	if s.writeReplay(w, once) {
		return nil
	}
	answer, err := render(recorded)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

// decodeReport reads a report in either form.
func (s *Server) decodeReport(w http.ResponseWriter, r *http.Request) (usageReport, []byte, error) {
	var both struct {
		models.FactDraft
		Facts []models.FactDraft `json:"facts"`
	}
	body, err := s.decode(w, r, &both)
	switch {
	case err != nil:
		return usageReport{}, nil, err
	case both.Facts == nil:
		return usageReport{Fact: &both.FactDraft}, body, nil
	case both.FactDraft != models.FactDraft{}:
		var wrong errs.Violations
		wrong.Add(errs.InvalidRequest, "/facts", "exclusive", "facts excludes the members of a single fact; put every fact into facts")
		return usageReport{}, nil, wrong.Err()
	}
	return usageReport{Facts: &usageFactBatch{both.Facts}}, body, nil
}

// drafts are the facts of either form.
func (u usageReport) drafts() []models.FactDraft {
	if u.Fact != nil {
		return []models.FactDraft{*u.Fact}
	}
	return u.Facts.Facts
}

// locate makes the places an error names those of the form that was sent: the
// core speaks of a batch.
func (u usageReport) locate(err error) error {
	var e *errs.Error
	if u.Fact == nil || !errors.As(err, &e) {
		return err
	}
	for i := range e.Fields {
		e.Fields[i].Pointer = strings.TrimPrefix(e.Fields[i].Pointer, "/facts/0")
	}
	return err
}

// renderRecorded makes the answer to a report. What had been recorded before is
// no news: 200.
func (s *Server) renderRecorded(u usageReport, recorded models.Recorded) (models.StoredResponse, error) {
	replayed := 0
	for _, f := range recorded.Facts {
		if f.Replayed {
			replayed++
		}
	}
	status := http.StatusCreated
	if replayed == len(recorded.Facts) {
		status = http.StatusOK
	}
	body, err := s.encode(newUsageRecorded(u, recorded, replayed).oneOf())
	return models.StoredResponse{Status: status, Body: body}, err
}

func newUsageRecorded(u usageReport, recorded models.Recorded, replayed int) usageRecorded {
	if u.Fact != nil {
		return usageRecorded{Fact: &usageFactRecorded{recorded.Facts[0], recorded.Balance}}
	}
	return usageRecorded{Facts: &usageFactsRecorded{recorded.Facts, len(recorded.Facts) - replayed, replayed, recorded.Balance}}
}

// oneOf is what goes over the wire.
func (u usageRecorded) oneOf() any {
	if u.Fact != nil {
		return u.Fact
	}
	return u.Facts
}

const (
	maxBuckets = 1000 // of one answer
	maxGroups  = 100  // of one bucket
	defaultTop = 10
	day        = 24 * time.Hour

	// How far a history goes back by default, and a breakdown at most.
	hourlyBack, hourlyMost = day, 31 * day
	dailyBack, dailyMost   = 30 * day, 366 * day
)

// usageHistory is what an agent used over time.
type usageHistory struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	Window  string `json:"window" example:"hour" enums:"hour,day"`
	// By is what the windows are broken down by; absent where they are not.
	By   string    `json:"group_by,omitempty" example:"model" enums:"model,kind,task"`
	From time.Time `json:"from" example:"2026-01-09T15:30:00Z"`
	To   time.Time `json:"to" example:"2026-01-10T15:30:00Z"`
	// Buckets are the windows that begin between from and to, the oldest first,
	// also those in which nothing was used.
	Buckets []models.HistoryBucket `json:"buckets"`
}

// getUsageHistory returns what an agent used over time.
//
//	@Summary		Get an agent's usage over time
//	@Description	The agent's own use in UTC hours or days: the windows that begin at or after `from` and before `to`, the oldest first, also those in which nothing was used; at most 1,000. `by` breaks each window down, the largest groups first; what has no label has the value `""`. A breakdown covers at most 31 days by the hour and 366 by the day. By default the last 24 hours, or the last 30 days.
//	@ID				getUsageHistory
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			window			query	string	false	"Width of a window"	enums(hour,day)	default(hour)
//	@Param			group_by				query	string	false	"What to break the windows down by"	enums(model,kind,task)	example(model)
//	@Param			from			query	string	false	"Begin, as RFC 3339 or YYYY-MM-DD"	maxlength(40)	example(2026-01-10)
//	@Param			to				query	string	false	"End, as RFC 3339 or YYYY-MM-DD, by default now"	maxlength(40)	example(2026-01-11T00:00:00Z)
//	@Param			top				query	int		false	"How many groups of a window are named; the others are summed up in `other_tokens`"	minimum(1)	maximum(100)	default(10)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	usageHistory	"The history"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/usage/history [get]
func (s *Server) getUsageHistory(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "window", "group_by", "from", "to", "top")
	id, err := decodeID(r, "agent_id")
	if err != nil {
		return err
	}
	h := historyQuery(q, s.now())
	if err := q.Err(); err != nil {
		return err
	}
	buckets, err := s.usage.History(r.Context(), id, h)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, usageHistory{id, string(h.Window), string(h.By), h.From, h.To, buckets})
}

// historyQuery reads the parameters of a history.
func historyQuery(q *query, now time.Time) models.HistoryQuery {
	h := models.HistoryQuery{
		Window: models.HistoryWindow(q.Enum("window", string(models.WindowHour), string(models.WindowHour), string(models.WindowDay))),
		By:     models.HistoryBy(q.Enum("group_by", "", string(models.ByModel), string(models.ByKind), string(models.ByTask))),
		To:     now.UTC().Truncate(time.Microsecond), Top: q.Int("top", 1, maxGroups, defaultTop),
	}
	if h.By == models.ByNothing && q.Has("top") {
		q.Fail("top", "requires", "top needs group_by")
	}
	width, back, most := time.Hour, hourlyBack, hourlyMost
	if h.Window == models.WindowDay {
		width, back, most = day, dailyBack, dailyMost
	}
	if at := q.OptInstant("to"); at != nil {
		h.To = *at
	}
	h.From = h.To.Add(-back)
	if at := q.OptInstant("from"); at != nil {
		h.From = *at
	}
	first := h.From.Add(width - 1).Truncate(width)
	switch {
	case !h.From.Before(h.To):
		q.Fail("from", "range", "from must lie before to, %s", h.To.Format(time.RFC3339))
	case h.To.Sub(first) > maxBuckets*width:
		q.Fail("from", "range", "a history has at most %d windows; ask for a shorter time or for days", maxBuckets)
	case h.By != models.ByNothing && h.To.Sub(h.From) > most:
		q.Fail("from", "range", "a breakdown by the %s covers at most %d days", h.Window, most/day)
	}
	return h
}

// OptInstant returns a moment in UTC, written as RFC 3339 or as a day, which stands
// for its midnight; nil where it was not sent.
func (q *query) OptInstant(name string) *time.Time {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return &at
	}
	var at time.Time
	if err := at.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		q.Fail(name, "date_time", "%s must be a time such as 2026-01-10T15:30:00Z (a + is written %%2B) or a day such as 2026-01-10, not %s", name, input.Quote(text))
		return nil
	}
	return new(at.UTC().Truncate(time.Microsecond))
}
