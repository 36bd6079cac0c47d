package api

import (
	"context"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// workerView is an agent that takes work, and how it goes with it.
type workerView struct {
	AgentID string `json:"agent_id" example:"research-web-01"`
	// What PROTOCOL_V5 calls the agent. Absent where it was never called that.
	V5ID     string             `json:"v5_id,omitempty" example:"W1"`
	State    models.WorkerState `json:"state" swaggertype:"string" enums:"offline,online,busy" example:"online"`
	Protocol string             `json:"protocol" example:"envelope"` // What it speaks.
	// Which version of that was agreed on, such as V4 of the dialect pipe. Absent for the newest.
	ProtocolVersion string `json:"protocol_version,omitempty" example:"V4"`
	// The depth from which on it takes nothing that was handed off; absent where it did not say.
	MaxDepth       int        `json:"max_depth,omitempty" example:"2"`
	Transport      string     `json:"transport" example:"websocket"` // How it is reached.
	Concurrency    int        `json:"concurrency" example:"4"`       // How many attempts it takes at a time.
	InFlight       int        `json:"in_flight" example:"1"`         // How many it has.
	Load           int        `json:"load" example:"25"`             // In percent, as it says itself.
	LastSeenAt     time.Time  `json:"last_seen_at" example:"2026-01-10T15:30:00Z"`
	LastAssignedAt *time.Time `json:"last_assigned_at" example:"2026-01-10T15:29:00Z"` // The last assignment.
	// How many timeouts and lost lines there were since the last success.
	Failures  int         `json:"failures" example:"0"`
	Breaker   breakerView `json:"breaker"`
	UpdatedAt time.Time   `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// breakerView is whether a worker gets new work.
type breakerView struct {
	// Closed gives it work, open does not until its time has come, and half_open waits
	// for a sign of life.
	State string     `json:"state" enums:"closed,open,half_open" example:"closed"`
	Until *time.Time `json:"until" example:"2026-01-10T15:31:00Z"` // Null while it is closed.
}

// workerList is one page of workers.
type workerList struct {
	Workers    []workerView `json:"workers"`
	NextCursor string       `json:"next_cursor,omitempty" example:"cmVzZWFyY2g"` // Absent on the last page.
}

func (s *Server) newWorkerView(w models.Worker, number int64) workerView {
	v := workerView{
		AgentID: w.AgentID, State: w.State, Protocol: w.Protocol, ProtocolVersion: w.ProtocolVersion, MaxDepth: w.MaxDepth, Transport: w.Transport, Concurrency: w.Concurrency, InFlight: w.InFlight, Load: w.Load,
		LastSeenAt: w.LastSeenAt, LastAssignedAt: orNull(w.LastAssignedAt), Failures: w.Failures, Breaker: breakerView{State: "closed"}, UpdatedAt: w.UpdatedAt,
	}
	if number != 0 {
		v.V5ID = models.WorkerName(number)
	}
	if !w.BreakerUntil.IsZero() {
		v.Breaker = breakerView{State: "open", Until: &w.BreakerUntil}
		if w.Probing || !s.now().Before(w.BreakerUntil) {
			v.Breaker.State = "half_open"
		}
	}
	return v
}

// listWorkers lists the agents that take work.
//
//	@Summary		List workers
//	@Description	Every agent that ever came to take work, in the order of the ids, those that are away too.
//	@ID				listWorkers
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			v5_id			query	string	false	"Only the agent that PROTOCOL_V5 calls that"	maxlength(10)	example(W41)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	workerList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/workers [get]
func (s *Server) listWorkers(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "limit", "cursor", "v5_id")
	limit, after, number := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor(), q.workerNumber("v5_id")
	if err := q.Err(); err != nil {
		return err
	}
	workers, err := s.workersPage(r.Context(), number, after, limit+1)
	if err != nil {
		return err
	}
	var page workerList
	if len(workers) > limit {
		workers = workers[:limit]
		page.NextCursor = encodeCursor(workers[limit-1].AgentID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Workers, err = s.newWorkerViews(r.Context(), workers)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// getWorker returns one worker.
//
//	@Summary		Get a worker
//	@Description	How an agent takes work; one that never came is not there, registered or not.
//	@ID				getWorker
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(research-web-01)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	workerView	"The worker"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such worker"
//	@Router			/api/v1/workers/{agent_id} [get]
func (s *Server) getWorker(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	worker, err := s.orchestrator.Worker(r.Context(), id)
	if err != nil {
		return err
	}
	views, err := s.newWorkerViews(r.Context(), []models.Worker{worker})
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, views[0])
}

// maxWorkerName is the longest name of a worker in PROTOCOL_V5, in characters (§2.2).
const maxWorkerName = 10

// workerNumber is the number of the worker with a name such as W41, 0 where none was sent.
func (q *query) workerNumber(name string) int64 {
	text := q.OptString(name, maxWorkerName)
	if text == nil {
		return 0
	}
	n, ok := models.WorkerNumber(*text)
	if !ok {
		q.Fail(name, "pattern", "%s must be W1 to W99, or from the 100th on W1.1, not %s", name, input.Quote(*text))
	}
	return n
}

// workersPage are up to limit workers behind an id, or the one with a number, which there
// may not be.
func (s *Server) workersPage(ctx context.Context, number int64, after string, limit int) ([]models.Worker, error) {
	if number == 0 {
		return s.orchestrator.Workers(ctx, after, limit)
	}
	id, err := s.orchestrator.AgentByNumber(ctx, number)
	if err == nil && id > after {
		var w models.Worker
		if w, err = s.orchestrator.Worker(ctx, id); err == nil {
			return []models.Worker{w}, nil
		}
	}
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return nil, err
}

// newWorkerViews are workers with their numbers.
func (s *Server) newWorkerViews(ctx context.Context, workers []models.Worker) ([]workerView, error) {
	ids := make([]string, len(workers))
	for i, w := range workers {
		ids[i] = w.AgentID
	}
	numbers, err := s.orchestrator.AgentNumbers(ctx, ids)
	views := make([]workerView, len(workers))
	for i, w := range workers {
		views[i] = s.newWorkerView(w, numbers[w.AgentID])
	}
	return views, err
}
