package schedule

import (
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	"comet/store/schedules"
)

// run runs a schedule that is due. If the run is refused, the reason is stored, and the schedule continues with
// its next due time; after a transient error, such as a full queue, the job runs again.
func (s *Service) run(ctx context.Context, job *jobs.Job) error {
	row, err := schedules.Get(s.Store.Reads(ctx), job.Key)
	if errs.Is(err, errs.NotFound) || err == nil && !row.Enabled {
		return nil // its job was deleted with it, or when it was paused
	}
	if err != nil {
		return err
	}
	by := models.Principal{TokenID: row.TokenID, Name: row.Actor}
	standing, err := s.Auth.Standing(ctx, by)
	if err == nil {
		by = standing
		err = s.execute(ctx, by, row, func(tx *store.Tx, id string) error {
			row := row
			row.LastID, row.LastError = id, ""
			return settle(tx, job, by, row)
		})
	}
	if err == nil || mayPass(err) {
		return err
	}
	row.LastID, row.LastError = "", errs.From(err).Detail
	if errs.Is(err, errs.Unauthenticated) {
		row.Enabled, row.Reason = false, row.LastError
	}
	s.Logger.WarnContext(ctx, "a schedule has failed", "schedule", row.ID, "token", row.Actor, "error", row.LastError)
	return s.Store.Write(ctx, func(tx *store.Tx) error { return settle(tx, job, by, row) })
}

// mayPass reports whether an error is transient.
func mayPass(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Internal, errs.Unavailable, errs.Busy, errs.Timeout, errs.RateLimited:
		return true
	}
	return false
}

// execute makes the request of a schedule. created runs in the transaction that creates the task or workflow.
func (s *Service) execute(ctx context.Context, by models.Principal, row Schedule, created func(tx *store.Tx, id string) error) error {
	var r Request
	if err := json.Unmarshal(row.Request, &r); err != nil {
		return err
	}
	if err := r.authorize(by); err != nil {
		return err
	}
	if r.Workflow == nil {
		r.Task.With = func(tx *store.Tx, t *models.Task) error { return created(tx, t.ID) }
		_, err := s.Orchestrator.Submit(ctx, by, *r.Task, nil)
		return err
	}
	r.Workflow.With = created
	_, p, err := s.Workflows.Begin(ctx, tools.Caller{Principal: by, Source: source}, *r.Workflow, nil)
	if err == nil && p.Status != workflow.Ready {
		err = errUncertain()
	}
	return err
}

// settle stores the outcome of a run and the next due time, and replaces the job by the next one. It returns
// store.ErrLeaseLost if the schedule was changed, or was run by another replica.
func settle(tx *store.Tx, job *jobs.Job, by models.Principal, row Schedule) error {
	due := row.NextAt
	at, missed, err := following(row.Spec, due, tx.Now())
	if err != nil {
		return err
	}
	if !row.Enabled {
		at = time.Time{}
	}
	row.LastAt, row.NextAt, row.Enabled = due, at, !at.IsZero()
	switch ok, err := schedules.Save(tx, &row); {
	case err != nil:
		return err
	case !ok:
		return store.ErrLeaseLost
	}
	if err := job.Finish(tx); err != nil {
		return err
	}
	if row.Enabled {
		if err := enqueue(tx, row); err != nil {
			return err
		}
	}
	kind := schedules.EventRun
	if row.LastError != "" {
		kind = schedules.EventFailed
	}
	return emit(tx, kind, by, row, func(d *EventData) {
		d.DueAt, d.Missed, d.ID, d.Error = due, missed, row.LastID, row.LastError
	})
}
