// Package schedule submits tasks and starts workflows at given times: once, at intervals, or by a cron
// expression in a time zone. A schedule acts with the authority that its token has when it is due. Each due
// time has exactly one effect, even if a replica is killed during the run: the task or workflow is created in
// the transaction that sets the next due time.
package schedule

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	"comet/store/schedules"
)

// MaxPerToken limits the schedules of a token. Those that have ended do not count.
const MaxPerToken = 1000

// retention is how long schedules that have ended are kept.
const retention = 7 * 24 * time.Hour

// runKind is the kind of the job that runs a schedule. Its key is the id of the schedule.
const runKind = "schedule.run"

// source is the source of workflows that a schedule has started.
const source = "schedule"

// Dependencies are what a Service uses. All are required.
type Dependencies struct {
	Store        *store.Store
	Auth         *auth.Auth
	Orchestrator *orchestrator.Orchestrator
	Workflows    *workflow.Engine
	Logger       *slog.Logger
}

// Service manages and runs schedules.
type Service struct{ Dependencies }

// New returns a service. It runs no schedule before RegisterJobs.
func New(d Dependencies) *Service { return &Service{d} }

// RegisterJobs registers the jobs of schedules.
func (s *Service) RegisterJobs(r *jobs.Runner) {
	r.Handle(runKind, s.run, jobs.Policy{MaxBackoff: time.Minute})
	r.Every("schedules.purge", time.Hour, func(ctx context.Context) error {
		return s.Store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
			return schedules.Purge(tx, tx.Now().Add(-retention), limit)
		})
	})
}

// Request is what a schedule does when it is due: exactly one member is set.
type Request struct {
	// Task is submitted. Its ID, RequestID and Override.ExpiresAt must not be set, and its With and Resolver
	// are not stored.
	Task     *orchestrator.Submission `json:"task,omitempty"`
	Workflow *workflow.Request        `json:"workflow,omitempty"`
}

// Schedule is a stored schedule.
type Schedule = schedules.Schedule

// Draft describes a new schedule.
type Draft struct {
	Timing
	Request
}

// Create stores a schedule that runs with the authority of a principal, whose token must be stored by comet. The
// errors are errs.InvalidRequest with JSON pointers such as /cron, errs.MissingScope and errs.ForeignAgent for
// what the principal may not do, errs.NotFound and errs.AgentInactive for the agent of a task, those of workflow.Plan, and errs.LimitReached for more than MaxPerToken
// schedules. A request with a known idempotency key has no second effect.
func (s *Service) Create(ctx context.Context, by models.Principal, d Draft, once *models.Idempotency) (out Schedule, err error) {
	begun := s.Store.Now()
	spec, err := d.spec(begun)
	if err != nil {
		return out, err
	}
	if err := s.check(ctx, by, &d.Request); err != nil {
		return out, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return out, err
	}
	text, err := json.Marshal(d.Request)
	if err != nil {
		return out, err
	}
	err = s.Store.Once(ctx, once, func(tx *store.Tx) (any, error) {
		out = Schedule{
			ID: id.String(), TokenID: by.TokenID, Actor: by.Name, Spec: spec, Request: text,
			Enabled: true, Version: 1, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
		}
		switch n, err := schedules.Count(tx, by.TokenID); {
		case err != nil:
			return out, err
		case n >= MaxPerToken:
			return out, errs.New(errs.LimitReached, "the token %q has %d schedules, which is the limit; delete one first", by.Name, n)
		}
		if err := plan(tx, &out, begun); err != nil {
			return out, err
		}
		if err := schedules.Insert(tx, out); err != nil {
			return out, err
		}
		return out, emit(tx, schedules.EventCreated, by, out, nil)
	})
	return out, err
}

// check validates a request and the authority for it, and sets its defaults.
func (s *Service) check(ctx context.Context, by models.Principal, r *Request) error {
	if by.Issued != nil {
		return errs.New(errs.InvalidRequest, "comet does not store the token %q, which an OIDC issuer has issued; create the schedule with a token of comet", by.Name)
	}
	switch _, err := s.Auth.Standing(ctx, by); {
	case err != nil:
		return err
	case (r.Task == nil) == (r.Workflow == nil):
		return input.Violated("/task", "exclusive", "exactly one of task and workflow is required")
	}
	if err := r.authorize(by); err != nil {
		return err
	}
	if r.Workflow != nil {
		p, err := s.Workflows.Plan(ctx, tools.Caller{Principal: by, Source: source}, *r.Workflow)
		if err == nil && p.Status != workflow.Ready {
			err = errUncertain()
		}
		return below("/workflow", err)
	}
	sub := *r.Task
	r.Task = &sub
	switch {
	case sub.ID != "":
		return input.Violated("/task/id", "forbidden", "the task of a schedule has no id: each run creates one")
	case sub.RequestID != "":
		return input.Violated("/task/request_id", "forbidden", "the task of a schedule has no request_id: each due time has one effect without it")
	case !sub.Override.ExpiresAt.IsZero():
		return input.Violated("/task/expires_at", "forbidden", "the task of a schedule has no expires_at; use attempt_timeout_ms")
	}
	if err := s.checkAgent(ctx, by, sub.AgentID); err != nil {
		return err
	}
	err := s.Orchestrator.Validate(&sub)
	sub.ID = "" // each run has another one
	return below("/task", err)
}

// checkAgent returns an error for an agent, "" for none, to which a principal cannot submit a task now.
func (s *Service) checkAgent(ctx context.Context, by models.Principal, id string) error {
	if id == "" {
		return nil
	}
	if err := s.Store.Agents(ctx).Confine(by, id); err != nil {
		return err
	}
	agent, err := s.Orchestrator.Agent(ctx, id)
	if err == nil && !agent.IsActive {
		err = errs.New(errs.AgentInactive, "the agent %q is deactivated; restore it first", id)
	}
	return err
}

// authorize returns errs.MissingScope for a request that a principal may not make.
func (r Request) authorize(by models.Principal) error {
	if r.Workflow != nil {
		return auth.Require(by, models.ScopeToolsCall)
	}
	return auth.Require(by, models.ScopeMessagesSend)
}

func errUncertain() error {
	return input.Violated("/intent", "uncertain", "the plan for the intent is not complete or not certain; send the workflow")
}

// below puts the JSON pointers of an error below one.
func below(pointer string, err error) error {
	if e := errs.From(err); err != nil && len(e.Fields) > 0 {
		out := *e
		out.Fields = append([]errs.Field(nil), e.Fields...)
		for i := range out.Fields {
			out.Fields[i].Pointer = pointer + out.Fields[i].Pointer
		}
		return &out
	}
	return err
}

// plan sets when a schedule without a job is due after a time, and enqueues its job.
func plan(tx *store.Tx, row *Schedule, after time.Time) (err error) {
	row.NextAt, row.Reason = time.Time{}, ""
	if !row.Enabled {
		return nil
	}
	if row.NextAt, err = next(row.Spec, after); err != nil {
		return err
	}
	if row.NextAt.IsZero() {
		return input.Violated("/enabled", "ended", "the time of the schedule, %s, has passed; send another one", row.Spec.At.Format(time.RFC3339))
	}
	return enqueue(tx, *row)
}

func enqueue(tx *store.Tx, row Schedule) error {
	_, err := tx.Jobs().Enqueue(store.Job{Kind: runKind, Key: row.ID, RunAt: row.NextAt})
	return err
}

// Get returns a schedule of the principal, or of any token if it administers the system, or errs.NotFound.
func (s *Service) Get(ctx context.Context, by models.Principal, id string) (Schedule, error) {
	row, err := schedules.Get(s.Store.Reads(ctx), id)
	return visible(by, row, id, err)
}

func visible(by models.Principal, row Schedule, id string, err error) (Schedule, error) {
	if errs.Is(err, errs.NotFound) || err == nil && row.TokenID != by.TokenID && !by.Administers() {
		return Schedule{}, errs.New(errs.NotFound, "there is no schedule %q", id)
	}
	return row, err
}

// List returns up to limit schedules that the principal sees, as for Get, that follow the id after, "" for the first ones.
func (s *Service) List(ctx context.Context, by models.Principal, after string, limit int) ([]Schedule, error) {
	owner := by.TokenID
	if by.Administers() {
		owner = ""
	}
	return schedules.List(s.Store.Reads(ctx), owner, after, limit)
}

// Patch changes a schedule. Nil members do not change.
type Patch struct {
	// Enabled false pauses it. True resumes it with the next due time from now on.
	Enabled *bool
	Timing  *Timing
}

// Update changes a schedule. It returns errs.NotFound as Get does, the error of the precondition, and
// errs.InvalidRequest for an invalid timing and for resuming a schedule whose only time has passed.
func (s *Service) Update(ctx context.Context, by models.Principal, id string, p Patch, pre models.Precondition) (out Schedule, err error) {
	err = s.Store.Write(ctx, func(tx *store.Tx) error {
		row, err := s.lock(tx, by, id, pre)
		if err != nil {
			return err
		}
		before := row
		if p.Timing != nil {
			if row.Spec, err = p.Timing.over(row.Spec).spec(tx.Now()); err != nil {
				return err
			}
		}
		if p.Enabled != nil {
			row.Enabled = *p.Enabled
		}
		if out = row; reflect.DeepEqual(before, row) {
			return nil
		}
		if err := tx.Jobs().Delete(runKind, id); err != nil {
			return err
		}
		if err := plan(tx, &row, tx.Now()); err != nil {
			return err
		}
		if _, err := schedules.Save(tx, &row); err != nil {
			return err
		}
		out = row
		return emit(tx, schedules.EventChanged, by, row, nil)
	})
	return out, err
}

func (s *Service) lock(tx *store.Tx, by models.Principal, id string, pre models.Precondition) (Schedule, error) {
	row, err := schedules.Lock(tx, id)
	if row, err = visible(by, row, id, err); err == nil {
		err = pre.Check(row.Version)
	}
	return row, err
}

// Delete deletes a schedule. What it has submitted continues. The errors are those of Update.
func (s *Service) Delete(ctx context.Context, by models.Principal, id string, pre models.Precondition) error {
	return s.Store.Write(ctx, func(tx *store.Tx) error {
		row, err := s.lock(tx, by, id, pre)
		if err != nil {
			return err
		}
		if err := tx.Jobs().Delete(runKind, id); err != nil {
			return err
		}
		if err := schedules.Delete(tx, id); err != nil {
			return err
		}
		row.Enabled, row.NextAt = false, time.Time{}
		return emit(tx, schedules.EventDeleted, by, row, nil)
	})
}
