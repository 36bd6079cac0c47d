package api

import (
	"context"
	"net/http"
	"time"

	"comet/internal/a2a/remote"
	"comet/internal/errs"
	"comet/models"
)

// workerView is the state of a worker.
type workerView struct {
	AgentID  string             `json:"agent_id" example:"research-web-01"`
	WorkerID string             `json:"v5_id,omitempty" example:"W1"`                                            // The worker's id in messages of PROTOCOL_V5; absent if it has none.
	State    models.WorkerState `json:"state" swaggertype:"string" enums:"offline,online,busy" example:"online"` // Whether the worker accepts tasks.
	Protocol string             `json:"protocol" example:"envelope"`                                             // The protocol of its messages.
	// The negotiated version of the protocol, such as V4; absent for the newest.
	ProtocolVersion string `json:"protocol_version,omitempty" example:"V4"`
	// Subtasks at this depth or deeper are not assigned to it; absent if it did not specify one.
	MaxDepth       int        `json:"max_depth,omitempty" example:"2"`
	Transport      string     `json:"transport" example:"websocket"`                   // The transport of its connection.
	Concurrency    int        `json:"concurrency" example:"4"`                         // Maximum number of attempts at a time.
	InFlight       int        `json:"in_flight" example:"1"`                           // Number of current attempts.
	Load           int        `json:"load" example:"25"`                               // In percent, as the worker reports it.
	LastSeenAt     time.Time  `json:"last_seen_at" example:"2026-01-10T15:30:00Z"`     // When its last message arrived.
	LastAssignedAt *time.Time `json:"last_assigned_at" example:"2026-01-10T15:29:00Z"` // Time of the last assignment.
	// Number of timeouts and lost connections since the last success.
	Failures  int         `json:"failures" example:"0"`
	Breaker   breakerView `json:"breaker"`
	UpdatedAt time.Time   `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// breakerView is the state of a worker's circuit breaker.
type breakerView struct {
	// A worker with a `closed` breaker gets tasks. An `open` one gets none until `until`, then it
	// is `half_open` until the worker responds to a probe.
	State string     `json:"state" enums:"closed,open,half_open" example:"closed"`
	Until *time.Time `json:"until" example:"2026-01-10T15:31:00Z"` // Null if it is closed.
}

// workerList is one page of workers.
type workerList struct {
	Workers    []workerView `json:"workers"`                                     // The workers on the page.
	NextCursor string       `json:"next_cursor,omitempty" example:"cmVzZWFyY2g"` // Absent on the last page.
}

func (s *Server) newWorkerView(w models.Worker, number int64) workerView {
	v := workerView{
		AgentID: w.AgentID, State: w.State, Protocol: w.Protocol, ProtocolVersion: w.ProtocolVersion, MaxDepth: w.MaxDepth, Transport: w.Transport, Concurrency: w.Concurrency, InFlight: w.InFlight, Load: w.Load,
		LastSeenAt: w.LastSeenAt, LastAssignedAt: orNull(w.LastAssignedAt), Failures: w.Failures, Breaker: breakerView{State: "closed"}, UpdatedAt: w.UpdatedAt,
	}
	if number != 0 {
		v.WorkerID = workerID(number)
	}
	if !w.BreakerUntil.IsZero() {
		v.Breaker = breakerView{State: "open", Until: &w.BreakerUntil}
		if w.Probing || !s.now().Before(w.BreakerUntil) {
			v.Breaker.State = "half_open"
		}
	}
	return v
}

// listWorkers lists the workers.
//
//	@Summary		List workers
//	@Description	Returns all agents that have ever connected to execute tasks, including those that are offline, in the order of their ids.
//	@Param			cursor			query	string	false	"`next_cursor` of the previous page"	maxlength(100)
//	@Param			v5_id			query	string	false	"Only the worker with this id in PROTOCOL_V5"	maxlength(10)	example(W41)
//	@Success		200	{object}	workerList	"A page of results"
func (s *Server) listWorkers(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor", "v5_id")
	limit, after, number := q.pageLimit(), q.idCursor(), q.workerNumber("v5_id")
	if err := q.Err(); err != nil {
		return nil, err
	}
	workers, err := s.workersPage(r, number, after, limit+1)
	if err != nil {
		return nil, err
	}
	workers, next := cutPage(workers, limit, func(w models.Worker) string { return w.AgentID })
	list, err := s.newWorkerViews(r.Context(), workers)
	return reply{next: next, body: workerList{list, next}}, err
}

// getWorker returns one worker.
//
//	@Summary		Get a worker
//	@Description	Returns the state of a worker. Agents that have never connected are not workers.
//	@Success		200	{object}	workerView	"The worker"
//	@Failure		404	"The worker does not exist"
func (s *Server) getWorker(r request) (any, error) {
	worker, err := s.core.Orchestrator.Worker(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	list, err := s.newWorkerViews(r.Context(), []models.Worker{worker})
	return list[0], err
}

// workersPage returns up to limit workers after an id, or the worker with a number, if it exists and the
// caller may read it.
func (s *Server) workersPage(r request, number int64, after string, limit int) ([]models.Worker, error) {
	ctx := r.Context()
	if number == 0 {
		return s.core.Orchestrator.Workers(ctx, orZero(r.caller.AgentID), after, limit)
	}
	id, err := s.core.Messages.AgentID(ctx, number)
	if err == nil {
		err = s.core.Registry.Confine(ctx, r.caller, id)
	}
	if err == nil && id > after {
		var w models.Worker
		if w, err = s.core.Orchestrator.Worker(ctx, id); err == nil {
			return []models.Worker{w}, nil
		}
	}
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.ForeignAgent) {
		err = nil
	}
	return nil, err
}

// newWorkerViews returns the views of workers with their short ids.
func (s *Server) newWorkerViews(ctx context.Context, workers []models.Worker) ([]workerView, error) {
	numbers, err := s.core.Messages.AgentNumbers(ctx, views(workers, func(w models.Worker) string { return w.AgentID }))
	return views(workers, func(w models.Worker) workerView { return s.newWorkerView(w, numbers[w.AgentID]) }), err
}

// getRemoteAgent returns the remote A2A agent of an agent.
//
//	@Summary		Get an agent's remote A2A agent
//	@Description	Returns the remote agent that executes the tasks of an agent, with a summary of its card and the result of the last check, without the secret.
//	@Success		200	{object}	remote.View	"The remote agent"
//	@Failure		404	"The agent does not exist or has no remote agent"
func (s *Server) getRemoteAgent(r request) (any, error) {
	v, err := s.core.Remotes.Get(r.Context(), r.id)
	return reply{version: v.Version, body: v}, err
}

// putRemoteAgent makes a remote A2A agent execute the tasks of an agent.
//
//	@Summary		Set an agent's remote A2A agent
//	@Description	Makes a remote agent that speaks A2A (1.0 over JSON-RPC or HTTP+JSON, or 0.3 over JSON-RPC) execute the tasks of the agent, in place of an earlier one. comet reads and checks its card at once, and then every hour. Addresses that are not public are refused unless `webhooks.allow_networks` permits them. The secret is stored encrypted, and is only sent to the server of the card.
//	@Param			body		body	remote.Draft	true	"The remote agent"
//	@Success		200	{object}	remote.View	"The remote agent was replaced"
//	@Success		201	{object}	remote.View	"The agent has its first remote agent"
//	@Failure		400	"A field is malformed, or the card cannot be read or used; the error says what is wrong with it"
//	@Failure		409	"The agent is deactivated"
//	@Failure		422	"The address is refused, or there are too many remote agents"
//	@Failure		502	"The server of the card cannot be reached or failed; try again later"
func (s *Server) putRemoteAgent(r request, d remote.Draft) (any, error) {
	v, first, err := s.core.Remotes.Put(r.Context(), r.caller, r.id, d)
	out := reply{version: v.Version, body: v}
	if first {
		out.status = http.StatusCreated
	}
	return out, err
}

// deleteRemoteAgent removes the remote A2A agent of an agent.
//
//	@Summary		Delete an agent's remote A2A agent
//	@Description	comet no longer sends tasks to the remote agent. Tasks that it has continue there; the agent is offline until it connects in another way.
//	@Success		204	"Deleted"
//	@Failure		404	"The agent does not exist or has no remote agent"
func (s *Server) deleteRemoteAgent(r request) error {
	return s.core.Remotes.Delete(r.Context(), r.caller, r.id)
}
