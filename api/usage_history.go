package api

import (
	"net/http"
	"time"

	"comet/internal/words"
	"comet/models"
)

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
		q.Fail(name, "date_time", "%s must be a time such as 2026-01-10T15:30:00Z (a + is written %%2B) or a day such as 2026-01-10, not %s", name, words.Quote(text))
		return nil
	}
	return new(at.UTC().Truncate(time.Microsecond))
}
