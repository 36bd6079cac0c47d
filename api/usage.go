package api

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/usage"
	"comet/models"
)

// usageReport is the body of a request to record usage: one fact or several.
//
// Exactly one member is set; the description shows them as alternatives.
//
//nolint:unused // the description is made from it
type usageReport struct {
	Fact  *usage.FactDraft `json:"fact" extensions:"x-one-of"`
	Facts *usageFactBatch  `json:"facts" extensions:"x-one-of"`
}

// usageFactBatch is several facts in one request.
//
//nolint:unused // the description is made from it
type usageFactBatch struct {
	// The facts; all are recorded, or none.
	Facts []usage.FactDraft `json:"facts" validate:"required" minItems:"1" maxItems:"1000"`
}

// usageRecorded is the response to a report, in the form of the report.
//
//nolint:unused // the description is made from it
type usageRecorded struct {
	Fact  *usageFactRecorded  `json:"fact" extensions:"x-one-of"`
	Facts *usageFactsRecorded `json:"facts" extensions:"x-one-of"`
}

// usageFactRecorded is a fact and the agent's balance after it.
type usageFactRecorded struct {
	models.Fact
	Balance usage.Balance `json:"balance"`
}

// usageFactsRecorded contains the facts of a batch in the order of the request.
type usageFactsRecorded struct {
	Facts    []models.Fact `json:"facts"`                // The facts in the order of the request.
	Recorded int           `json:"recorded" example:"2"` // Number of new facts.
	Replayed int           `json:"replayed" example:"1"` // Number of facts that had been recorded before.
	// The agent's balance after the facts.
	Balance usage.Balance `json:"balance"`
}

// getUsage returns the usage and the budget of an agent (CHE·NU §5.2).
//
//	@Summary		Get an agent's usage
//	@Description	Returns the agent's budget and its usage of the current UTC day. `budget` and `remaining` are null for `nova`, which is unlimited. `remaining` is `budget` less the tokens used and reserved, and at least 0.
//	@Success		200	{object}	usage.AgentUsage	"The usage"
func (s *Server) getUsage(r request) (any, error) { return s.core.Usage.Usage(r.Context(), r.id) }

// recordUsage records the usage of an agent.
//
//	@Summary		Record usage
//	@Description	Records one fact, or up to 1,000 as `{"facts": [ … ]}`, all or none. Usage is recorded even if it exceeds the budget. A fact with a `request_id` is recorded once per agent: a repetition with the same content returns the first fact with `replayed: true`, one with other content is an error. A token bound to an agent records usage of that agent only.
//	@Param			body			body	usageReport	true	"The usage"
//	@Success		200	{object}	usageRecorded	"All facts had been recorded before"
//	@Success		201	{object}	usageRecorded	"Recorded"
//	@Failure		400	"A field is missing or malformed, or there are no facts or too many"
//	@Failure		409	"A request_id or the Idempotency-Key was used with different content"
//	@Failure		422	"The agent has reached the maximum usage that can be recorded per day"
func (s *Server) recordUsage(w http.ResponseWriter, r *http.Request) error {
	var d usageDocument
	req, body, err := s.readRequest(w, r, jsonBody, &d)
	if err != nil {
		return err
	}
	drafts := d.Facts
	switch {
	case d.Facts == nil:
		drafts = []usage.FactDraft{d.FactDraft}
	case d.FactDraft != usage.FactDraft{}:
		return input.Violated("/facts", "exclusive", "facts cannot be combined with members of a single fact; put all facts into facts")
	}
	return runOnce(s, w, r, body, func(once *models.Idempotency) (usage.Recorded, error) {
		recorded, err := s.core.Usage.Record(r.Context(), req.id, drafts, once)
		return recorded, d.locate(err)
	}, d.reply)
}

// usageDocument is the body of a request to record usage, in either form. Facts is nil for a single
// fact.
type usageDocument struct {
	usage.FactDraft
	Facts []usage.FactDraft `json:"facts"`
}

// locate changes the pointers of an error, which refer to a batch, to those of the form that was
// sent.
func (d usageDocument) locate(err error) error {
	var e *errs.Error
	if d.Facts != nil || !errors.As(err, &e) {
		return err
	}
	for i := range e.Fields {
		e.Fields[i].Pointer = strings.TrimPrefix(e.Fields[i].Pointer, "/facts/0")
	}
	return err
}

// reply returns the response to a report: 200 if all facts had been recorded before, else
// 201.
func (d usageDocument) reply(recorded usage.Recorded) reply {
	replayed := 0
	for _, f := range recorded.Facts {
		if f.Replayed {
			replayed++
		}
	}
	out := reply{status: http.StatusCreated}
	if replayed == len(recorded.Facts) {
		out.status = http.StatusOK
	}
	if d.Facts == nil {
		out.body = usageFactRecorded{recorded.Facts[0], recorded.Balance}
	} else {
		out.body = usageFactsRecorded{recorded.Facts, len(recorded.Facts) - replayed, replayed, recorded.Balance}
	}
	return out
}

const (
	maxBuckets = 1000 // of a response
	maxGroups  = 100  // of a bucket
	defaultTop = 10
	day        = 24 * time.Hour

	// Default and maximum length of a history by hour and by day.
	hourlyBack, hourlyMost = day, 31 * day
	dailyBack, dailyMost   = 30 * day, 366 * day
)

// usageHistory is the usage of an agent over time.
type usageHistory struct {
	AgentID string `json:"agent_id" example:"finance-personal"`
	Window  string `json:"window" example:"hour" enums:"hour,day"` // The width of a window.
	// The label by which the buckets are broken down; absent without a breakdown.
	By   string    `json:"group_by,omitempty" example:"model" enums:"model,kind,task"`
	From time.Time `json:"from" example:"2026-01-09T15:30:00Z"` // The start, UTC.
	To   time.Time `json:"to" example:"2026-01-10T15:30:00Z"`   // The end, UTC.
	// One bucket per window between from and to, oldest first, including windows without usage.
	Buckets []usage.HistoryBucket `json:"buckets"`
}

// getUsageHistory returns the usage of an agent over time.
//
//	@Summary		Get an agent's usage over time
//	@Description	Returns the agent's own usage per UTC hour or day: the windows that start at or after `from` and before `to`, oldest first, including windows without usage; at most 1,000. By default the last 24 hours, or the last 30 days. `group_by` breaks each window down, largest groups first; facts without the label have the value `""`. A breakdown covers at most 31 days by hour and 366 by day.
//	@Param			window			query	string	false	"Width of a window"	enums(hour,day)	default(hour)
//	@Param			group_by				query	string	false	"Label to break the windows down by"	enums(model,kind,task)	example(model)
//	@Param			from			query	string	false	"Start, in RFC 3339 or as YYYY-MM-DD"	maxlength(40)	example(2026-01-10)
//	@Param			to				query	string	false	"End, in RFC 3339 or as YYYY-MM-DD; by default now"	maxlength(40)	example(2026-01-11T00:00:00Z)
//	@Param			top				query	int		false	"Maximum number of groups per window; the usage of the others is `other_tokens`"	minimum(1)	maximum(100)	default(10)
//	@Success		200	{object}	usageHistory	"The history"
func (s *Server) getUsageHistory(r request) (any, error) {
	q := newQuery(r.Request, "window", "group_by", "from", "to", "top")
	h := historyQuery(q, s.now())
	if err := q.Err(); err != nil {
		return nil, err
	}
	buckets, err := s.core.Usage.History(r.Context(), r.id, h)
	return usageHistory{r.id, string(h.Window), string(h.By), h.From, h.To, buckets}, err
}

// historyQuery reads the query parameters of a history.
func historyQuery(q *query, now time.Time) usage.HistoryQuery {
	h := usage.HistoryQuery{
		Window: usage.HistoryWindow(q.Enum("window", string(usage.WindowHour), string(usage.WindowHour), string(usage.WindowDay))),
		By:     usage.HistoryBy(q.Enum("group_by", "", string(usage.ByModel), string(usage.ByKind), string(usage.ByTask))),
		To:     now.UTC().Truncate(time.Microsecond), Top: q.Int("top", 1, maxGroups, defaultTop),
	}
	if h.By == usage.ByNothing && q.Has("top") {
		q.Fail("top", "requires", "top requires group_by")
	}
	width, back, most := time.Hour, hourlyBack, hourlyMost
	if h.Window == usage.WindowDay {
		width, back, most = day, dailyBack, dailyMost
	}
	h.To = *cmp.Or(q.OptInstant("to"), &h.To)
	h.From = *cmp.Or(q.OptInstant("from"), new(h.To.Add(-back)))
	first := h.From.Add(width - 1).Truncate(width)
	switch {
	case !h.From.Before(h.To):
		q.Fail("from", "range", "from must be earlier than to, %s", h.To.Format(time.RFC3339))
	case h.To.Sub(first) > maxBuckets*width:
		q.Fail("from", "range", "a history has at most %d windows; request a shorter time or window=day", maxBuckets)
	case h.By != usage.ByNothing && h.To.Sub(h.From) > most:
		q.Fail("from", "range", "a breakdown by %s covers at most %d days; request a shorter time", h.Window, most/day)
	}
	return h
}

// OptInstant parses an RFC 3339 time or a date, which means its midnight UTC; nil if it is absent.
func (q *query) OptInstant(name string) *time.Time {
	if values := q.Values(name); len(values) == 1 {
		if at, err := time.Parse(time.DateOnly, values[0]); err == nil {
			return &at
		}
	}
	at := q.parseTime(name, "%s must be a time such as 2026-01-10T15:30:00Z or a day such as 2026-01-10, not %s")
	if at == nil {
		return nil
	}
	return new(at.UTC().Truncate(time.Microsecond))
}
