package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/sandbox"
	"comet/internal/schedule"
	"comet/internal/testkit"
	"comet/internal/testkit/toolstest"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/schedules"
	"comet/store/storetest"
)

// TestMain also acts as a process of the sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument {
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// fixture has schedules on a database, whose clock the test moves, and a worker for the capability work.
type fixture struct {
	*schedule.Service
	*toolstest.Tools
	by models.Principal // a token with all that schedules need
}

// onDatabases runs a subtest on a fresh database of every kind.
func onDatabases(t *testing.T, name string, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			s := toolstest.Start(t, db, nil)
			f := &fixture{Tools: s, Service: newService(db.Store, s)}
			f.by = f.token(t, auth.TokenDraft{Scopes: []models.Scope{models.ScopeMessagesSend, models.ScopeToolsCall}})
			s.Work.AddAgent(t, "a", "", "work")
			_, err := s.Work.Join(t.Context(), "a", orchestrator.JoinRequest{Protocol: "plain", Transport: "poll", Concurrency: 1000})
			require.NoError(t, err)
			fn(t, f)
		})
	})
}

func newService(s *store.Store, with *toolstest.Tools) *schedule.Service {
	return schedule.New(schedule.Dependencies{Store: s, Auth: with.Tokens, Orchestrator: with.Work.Orchestrator, Workflows: with.Workflows, Logger: slog.New(slog.DiscardHandler)})
}

// start starts a runner of the schedules.
func (f *fixture) start(t *testing.T, s *schedule.Service) {
	t.Helper()
	r := jobs.New(s.Store, &jobs.Options{Poll: 20 * time.Millisecond})
	s.RegisterJobs(r)
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
}

func (f *fixture) token(t *testing.T, d auth.TokenDraft) models.Principal {
	t.Helper()
	d.Name = new("a test")
	issued, err := f.Tokens.Create(t.Context(), models.System(), d, nil)
	require.NoError(t, err)
	by, err := f.Tokens.Verify(t.Context(), issued.Secret)
	require.NoError(t, err)
	return by
}

func task() schedule.Request {
	return schedule.Request{Task: &orchestrator.Submission{Capabilities: []string{"work"}, Priority: 2, Parameters: json.RawMessage(`{"n":1}`)}}
}

func (f *fixture) create(t *testing.T, timing schedule.Timing, r schedule.Request) schedule.Schedule {
	t.Helper()
	out, err := f.Create(t.Context(), f.by, schedule.Draft{Timing: timing, Request: r}, nil)
	require.NoError(t, err)
	return out
}

// await waits until a schedule satisfies a condition.
func (f *fixture) await(t *testing.T, id string, is func(schedule.Schedule) bool) (out schedule.Schedule) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = f.Get(context.Background(), f.by, id)
		return err == nil && is(out)
	}, testkit.Timeout, 5*time.Millisecond)
	return out
}

func hasRun(s schedule.Schedule) bool { return !s.LastAt.IsZero() }

// tasks returns the tasks of a token.
func (f *fixture) tasks(t *testing.T, owner string) []models.ListedTask {
	t.Helper()
	all, err := f.Work.Tasks(t.Context(), store.TaskQuery{Owner: owner, Limit: 1000})
	require.NoError(t, err)
	return all
}

// last returns the data of the newest event of a type.
func (f *fixture) last(t *testing.T, kind models.EventType) (data schedule.EventData) {
	t.Helper()
	require.Eventually(t, func() bool {
		head, err := f.DB.Events(context.Background()).LastPosition()
		if err != nil {
			return false
		}
		all, err := f.DB.Events(context.Background()).Between(0, head, []models.EventType{kind}, 1000)
		return err == nil && len(all) > 0 && json.Unmarshal(all[len(all)-1].Data, &data) == nil
	}, testkit.Timeout, 5*time.Millisecond)
	return data
}

// TestRun covers what a schedule does when it is due.
func TestRun(t *testing.T) {
	t.Parallel()

	onDatabases(t, "a single time", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		begun := f.DB.Now()
		s := f.create(t, schedule.Timing{Delay: time.Minute}, task())
		require.WithinRange(t, s.NextAt, begun.Add(time.Minute), f.DB.Now().Add(time.Minute))
		require.Equal(t, s.ID, f.last(t, schedules.EventCreated).ScheduleID)
		f.DB.Clock.Advance(time.Minute)
		done := f.await(t, s.ID, hasRun)
		require.False(t, done.Enabled)
		require.Zero(t, done.NextAt)
		got, err := f.Work.Detail(t.Context(), done.LastID)
		require.NoError(t, err)
		require.Equal(t, f.by.TokenID, got.Task.Owner)
		require.Equal(t, 2, got.Task.Priority)
		require.JSONEq(t, `{"n":1}`, string(got.Input.Parameters))
		ran := f.last(t, schedules.EventRun)
		require.Equal(t, schedule.EventData{ScheduleID: s.ID, Actor: "a test", DueAt: s.NextAt, ID: done.LastID, Version: 2}, ran)
		_, err = f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(true)}, nil)
		require.ErrorContains(t, err, "has passed")
		again, err := f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(true), Timing: &schedule.Timing{At: f.DB.Now().Add(time.Hour)}}, nil)
		require.NoError(t, err)
		f.DB.Clock.Advance(time.Hour)
		f.await(t, s.ID, func(s schedule.Schedule) bool { return s.LastAt.Equal(again.NextAt) })
		require.Len(t, f.tasks(t, f.by.TokenID), 2)
	})

	onDatabases(t, "one run for all missed times, then the next regular one", func(t *testing.T, f *fixture) {
		s := f.create(t, schedule.Timing{Every: time.Minute}, task())
		f.DB.Clock.Advance(10*time.Minute + time.Second) // no runner
		f.start(t, f.Service)
		ran := f.await(t, s.ID, hasRun)
		require.Equal(t, s.Spec.From.Add(time.Minute), ran.LastAt)
		require.Equal(t, s.Spec.From.Add(11*time.Minute), ran.NextAt)
		require.Equal(t, 9, f.last(t, schedules.EventRun).Missed)
		require.Len(t, f.tasks(t, f.by.TokenID), 1)
		f.DB.Clock.Advance(time.Minute)
		f.await(t, s.ID, func(s schedule.Schedule) bool { return s.LastAt.Equal(ran.NextAt) })
		require.Len(t, f.tasks(t, f.by.TokenID), 2)
		require.Eventually(t, func() bool {
			last := f.last(t, schedules.EventRun)
			return last.DueAt.Equal(ran.NextAt) && last.Missed == 0
		}, testkit.Timeout, 5*time.Millisecond)
	})

	onDatabases(t, "a workflow", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		graph := &workflow.Graph{Tasks: []plan.Step{{ID: "s", Tool: "agentcards:search_tools", Arguments: json.RawMessage(`{"query":"x"}`)}}}
		s := f.create(t, schedule.Timing{Cron: "0 9 * * 1-5", TimeZone: "Europe/Paris"}, schedule.Request{Workflow: &workflow.Request{Workflow: graph}})
		f.DB.Clock.Advance(s.NextAt.Sub(f.DB.Now()))
		ran := f.await(t, s.ID, hasRun)
		require.True(t, ran.Enabled)
		v, err := f.Workflows.Wait(t.Context(), f.by, ran.LastID) // its calls must end before the audit log stops
		require.NoError(t, err)
		require.Equal(t, "complete", v.Status)
	})

	onDatabases(t, "a refusal is stored, and the next time is another chance", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		fly := schedule.Request{Task: &orchestrator.Submission{Capabilities: []string{"fly"}}}
		s := f.create(t, schedule.Timing{Every: time.Hour}, fly)
		once := f.create(t, schedule.Timing{Delay: time.Hour}, fly)
		f.DB.Clock.Advance(time.Hour + time.Second)
		failed := f.await(t, s.ID, hasRun)
		require.True(t, failed.Enabled)
		require.Contains(t, failed.LastError, "no agent offers fly")
		require.Empty(t, failed.LastID)
		require.False(t, f.await(t, once.ID, hasRun).Enabled)
		require.Contains(t, f.last(t, schedules.EventFailed).Error, "no agent offers fly")
		f.Work.AddAgent(t, "b", "", "fly")
		f.DB.Clock.Advance(time.Hour)
		require.NotEmpty(t, f.await(t, s.ID, func(s schedule.Schedule) bool { return s.LastAt.After(failed.LastAt) }).LastID)
	})
}

// TestMissing covers requests for an agent or a workflow that does not exist or is inactive, when they are made and when they are due.
func TestMissing(t *testing.T) {
	t.Parallel()
	onDatabases(t, "an agent", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		timing := schedule.Timing{Every: time.Hour}
		to := func(id string) schedule.Request {
			return schedule.Request{Task: &orchestrator.Submission{AgentID: id}}
		}
		_, err := f.Create(t.Context(), f.by, schedule.Draft{Timing: timing, Request: to("missing")}, nil)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.ErrorContains(t, err, "missing")
		s := f.create(t, timing, to("a"))
		require.NoError(t, f.Registry.Deactivate(t.Context(), models.System(), "a", nil))
		require.NoError(t, f.Work.ReindexAgent(t.Context(), "a")) // as the event does where there is a feed
		_, err = f.Create(t.Context(), f.by, schedule.Draft{Timing: timing, Request: to("a")}, nil)
		require.Equal(t, errs.AgentInactive, errs.CodeOf(err))
		f.DB.Clock.Advance(time.Hour)
		ran := f.await(t, s.ID, hasRun)
		require.True(t, ran.Enabled)
		require.Contains(t, ran.LastError, `"a"`)
	})
	onDatabases(t, "a stored workflow", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		timing, r := schedule.Timing{Every: time.Hour}, schedule.Request{Workflow: &workflow.Request{Definition: &workflow.Invocation{Name: "report"}}}
		_, err := f.Create(t.Context(), f.by, schedule.Draft{Timing: timing, Request: r}, nil)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		graph := workflow.Graph{Tasks: []plan.Step{{ID: "s", Tool: "agentcards:search_tools", Arguments: json.RawMessage(`{"query":"x"}`)}}}
		_, _, err = f.Workflows.SaveDefinition(t.Context(), testkit.Admin(), workflow.Definition{Name: "report", Workflow: graph}, nil)
		require.NoError(t, err)
		s := f.create(t, timing, r)
		require.NoError(t, f.Workflows.DeleteDefinition(t.Context(), testkit.Admin(), "report", nil))
		f.DB.Clock.Advance(time.Hour)
		ran := f.await(t, s.ID, hasRun)
		require.True(t, ran.Enabled)
		require.Contains(t, ran.LastError, `"report"`)
	})
}

// TestAuthority covers tokens that lose what their schedules need.
func TestAuthority(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, f *fixture){
		"a revoked token": func(t *testing.T, f *fixture) {
			require.NoError(t, f.Tokens.Revoke(t.Context(), models.System(), f.by.TokenID, nil))
		},
		"an inactive agent": func(t *testing.T, f *fixture) {
			err := f.Registry.Deactivate(t.Context(), models.System(), "owner", nil)
			require.NoError(t, err)
		},
		"an expired token": func(*testing.T, *fixture) {},
	} {
		onDatabases(t, name, func(t *testing.T, f *fixture) {
			f.AddAgent(t, "owner", 1000)
			f.by = f.token(t, auth.TokenDraft{Scopes: []models.Scope{models.ScopeMessagesSend}, AgentID: new("owner"), ExpiresAt: new(f.DB.Now().Add(time.Hour))})
			s := f.create(t, schedule.Timing{Every: 2 * time.Hour}, task())
			lose(t, f)
			f.start(t, f.Service)
			f.DB.Clock.Advance(2 * time.Hour)
			off := f.await(t, s.ID, hasRun)
			require.False(t, off.Enabled)
			require.Zero(t, off.NextAt)
			require.Equal(t, `the token "a test" is expired or revoked, or its agent is inactive`, off.Reason)
			require.Equal(t, off.Reason, f.last(t, schedules.EventFailed).Error)
			require.Empty(t, f.tasks(t, f.by.TokenID))
		})
	}
	onDatabases(t, "a request that the token may not make", func(t *testing.T, f *fixture) {
		f.AddAgent(t, "owner", 1000)
		draft := schedule.Draft{Timing: schedule.Timing{Delay: time.Hour}, Request: task()}
		for code, by := range map[errs.Code]models.Principal{
			errs.MissingScope:    f.token(t, auth.TokenDraft{Scopes: []models.Scope{models.ScopeToolsCall}}),
			errs.InvalidRequest:  {TokenID: "jwt", Name: "jwt", Issued: &models.Token{}},
			errs.Unauthenticated: testkit.Admin(),
		} {
			_, err := f.Create(t.Context(), by, draft, nil)
			require.Equal(t, code, errs.CodeOf(err))
		}
		bound := f.token(t, auth.TokenDraft{Scopes: []models.Scope{models.ScopeMessagesSend}, AgentID: new("owner")})
		draft.Task.AgentID = "a"
		_, err := f.Create(t.Context(), bound, draft, nil)
		require.Equal(t, errs.ForeignAgent, errs.CodeOf(err))
		s := f.create(t, schedule.Timing{Delay: time.Hour}, task())
		_, err = f.Get(t.Context(), bound, s.ID)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.Equal(t, errs.NotFound, errs.CodeOf(f.Delete(t.Context(), bound, s.ID, nil)))
		mine, err := f.List(t.Context(), bound, "", 10)
		require.NoError(t, err)
		require.Empty(t, mine)
		all, err := f.List(t.Context(), testkit.Admin(), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
	})
}

// TestOneEffect covers replicas, and processes that are killed.
func TestOneEffect(t *testing.T) {
	t.Parallel()

	onDatabases(t, "with two replicas", func(t *testing.T, f *fixture) {
		there := f.DB.Store
		if f.DB.Database() != "sqlite" {
			var err error
			there, err = store.Open(t.Context(), f.DB.Options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, there.Close()) })
		}
		f.start(t, f.Service)
		f.start(t, newService(there, f.Tools))
		var ids []string
		for range 20 {
			ids = append(ids, f.create(t, schedule.Timing{Every: time.Hour}, task()).ID)
		}
		for round := range 3 {
			f.DB.Clock.Advance(time.Hour + time.Minute)
			for _, id := range ids {
				f.await(t, id, func(s schedule.Schedule) bool { return s.Version == int64(round+2) })
			}
			require.Len(t, f.tasks(t, f.by.TokenID), 20*(round+1))
		}
	})

	onDatabases(t, "if the process dies before or after the commit", func(t *testing.T, f *fixture) {
		s := f.create(t, schedule.Timing{Every: time.Hour}, task())
		claim := func() *jobs.Job {
			var all []store.Job
			require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) (err error) {
				all, err = tx.Jobs().Claim([]string{schedule.RunKind}, 10, time.Minute)
				return err
			}))
			require.Len(t, all, 1)
			return &jobs.Job{Job: all[0]}
		}
		f.DB.Clock.Advance(time.Hour)
		dead := claim() // and dies before the commit
		f.DB.Clock.Advance(time.Minute)
		next := claim()
		require.ErrorIs(t, f.Run(t.Context(), dead), store.ErrLeaseLost, "if it was only slow")
		require.Empty(t, f.tasks(t, f.by.TokenID), "and nothing of it is stored")
		require.NoError(t, f.Run(t.Context(), next))
		require.Len(t, f.tasks(t, f.by.TokenID), 1)
		require.Error(t, f.Run(t.Context(), next), "and dies before it knows of its commit")
		require.Len(t, f.tasks(t, f.by.TokenID), 1)
		require.True(t, f.await(t, s.ID, hasRun).NextAt.After(f.DB.Now()))
	})

	onDatabases(t, "if it is changed or deleted while it runs", func(t *testing.T, f *fixture) {
		for name, change := range map[string]func(id string) error{
			"paused": func(id string) error {
				_, err := f.Update(t.Context(), f.by, id, schedule.Patch{Enabled: new(false)}, nil)
				return err
			},
			"deleted": func(id string) error { return f.Delete(t.Context(), f.by, id, nil) },
		} {
			r := task()
			r.Task.Parameters = json.RawMessage(fmt.Sprintf(`{"name":%q}`, name))
			s := f.create(t, schedule.Timing{Delay: time.Minute}, r)
			f.DB.Clock.Advance(time.Minute)
			var all []store.Job
			require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) (err error) {
				all, err = tx.Jobs().Claim([]string{schedule.RunKind}, 10, time.Minute)
				return err
			}))
			require.Len(t, all, 1)
			require.NoError(t, change(s.ID))
			require.NoError(t, f.Run(t.Context(), &jobs.Job{Job: all[0]}))
			require.Empty(t, f.tasks(t, f.by.TokenID))
		}
	})
}

// TestChanges covers the life of a schedule without runs.
func TestChanges(t *testing.T) {
	t.Parallel()

	onDatabases(t, "pause, resume, change, delete", func(t *testing.T, f *fixture) {
		f.start(t, f.Service)
		s := f.create(t, schedule.Timing{Every: time.Hour}, task())
		paused, err := f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(false)}, nil)
		require.NoError(t, err)
		require.Zero(t, paused.NextAt)
		require.EqualValues(t, 2, paused.Version)
		f.DB.Clock.Advance(150 * time.Minute)
		resumed, err := f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(true)}, nil)
		require.NoError(t, err)
		require.Equal(t, s.Spec.From.Add(3*time.Hour), resumed.NextAt, "times in a pause are not missed")
		same, err := f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(true)}, nil)
		require.NoError(t, err)
		require.Equal(t, resumed.Version, same.Version, "a patch that changes nothing leaves no trace")
		require.Empty(t, f.tasks(t, f.by.TokenID))
		_, err = f.Update(t.Context(), f.by, s.ID, schedule.Patch{Timing: &schedule.Timing{Cron: "61 * * * *"}}, nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		stale := func(version int64) error {
			if version != 1 {
				return errs.New(errs.PreconditionFailed, "stale")
			}
			return nil
		}
		_, err = f.Update(t.Context(), f.by, s.ID, schedule.Patch{Enabled: new(false)}, stale)
		require.Equal(t, errs.PreconditionFailed, errs.CodeOf(err))
		require.Equal(t, errs.PreconditionFailed, errs.CodeOf(f.Delete(t.Context(), f.by, s.ID, stale)))
		require.NoError(t, f.Delete(t.Context(), f.by, s.ID, nil))
		require.Equal(t, s.ID, f.last(t, schedules.EventDeleted).ScheduleID)
		_, found, err := f.DB.Jobs(t.Context()).NextAt([]string{schedule.RunKind})
		require.NoError(t, err)
		require.False(t, found)
	})

	onDatabases(t, "a change of the expression or of the time zone keeps the other", func(t *testing.T, f *fixture) {
		s := f.create(t, schedule.Timing{Cron: "0 9 * * *", TimeZone: "Europe/Paris"}, task())
		change := func(timing schedule.Timing) schedule.Schedule {
			out, err := f.Update(t.Context(), f.by, s.ID, schedule.Patch{Timing: &timing}, nil)
			require.NoError(t, err)
			return out
		}
		local := func(s schedule.Schedule) string {
			zone, err := time.LoadLocation(s.Spec.TimeZone)
			require.NoError(t, err)
			return s.NextAt.In(zone).Format("15:04")
		}
		there := change(schedule.Timing{TimeZone: "Asia/Tokyo"})
		require.Equal(t, schedules.Spec{Cron: "0 9 * * *", TimeZone: "Asia/Tokyo"}, there.Spec)
		require.Equal(t, "09:00", local(there))
		require.NotEqual(t, s.NextAt, there.NextAt)
		at, found, err := f.DB.Jobs(t.Context()).NextAt([]string{schedule.RunKind})
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, there.NextAt, at)
		later := change(schedule.Timing{Cron: "30 10 * * *"})
		require.Equal(t, schedules.Spec{Cron: "30 10 * * *", TimeZone: "Asia/Tokyo"}, later.Spec)
		require.Equal(t, "10:30", local(later))
		change(schedule.Timing{Every: time.Hour})
		_, err = f.Update(t.Context(), f.by, s.ID, schedule.Patch{Timing: &schedule.Timing{TimeZone: "Asia/Tokyo"}}, nil)
		require.ErrorContains(t, err, "time_zone is only for cron")
	})

	onDatabases(t, "limit, and the purge of schedules that have ended", func(t *testing.T, f *fixture) {
		row := f.create(t, schedule.Timing{Every: time.Hour}, task())
		ended := row
		ended.Enabled, ended.LastAt, ended.Spec = false, f.DB.Now(), schedules.Spec{At: f.DB.Now()}
		require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
			for i := range schedule.MaxPerToken {
				s := row
				if s.ID = fmt.Sprintf("s%04d", i); i == 0 {
					s = ended
					s.ID = "ended"
				}
				if err := schedules.Insert(tx, s); err != nil {
					return err
				}
			}
			return nil
		}))
		_, err := f.Create(t.Context(), f.by, schedule.Draft{Timing: schedule.Timing{Delay: time.Hour}, Request: task()}, nil)
		require.Equal(t, errs.LimitReached, errs.CodeOf(err))
		require.NoError(t, f.Delete(t.Context(), f.by, "s0001", nil))
		f.create(t, schedule.Timing{Delay: time.Hour}, task())
		purge := func(before time.Time) (n int64) {
			require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) (err error) {
				n, err = schedules.Purge(tx, before, 10)
				return err
			}))
			return n
		}
		require.Zero(t, purge(ended.UpdatedAt))
		require.EqualValues(t, 1, purge(f.DB.Now().Add(time.Hour)))
	})

	onDatabases(t, "invalid requests", func(t *testing.T, f *fixture) {
		for pointer, r := range map[string]schedule.Request{
			"/task":                      {},
			"/task/capabilities":         {Task: &orchestrator.Submission{}},
			"/task/id":                   {Task: &orchestrator.Submission{ID: "x"}},
			"/task/request_id":           {Task: &orchestrator.Submission{RequestID: "x"}},
			"/task/expires_at":           {Task: &orchestrator.Submission{Override: orchestrator.Override{ExpiresAt: f.DB.Now().Add(time.Hour)}}},
			"/workflow/workflow":         {Workflow: &workflow.Request{}},
			"/workflow/workflow/tasks/0": {Workflow: &workflow.Request{Workflow: &workflow.Graph{Tasks: []plan.Step{{ID: "s"}}}}},
		} {
			_, err := f.Create(t.Context(), f.by, schedule.Draft{Timing: schedule.Timing{Delay: time.Hour}, Request: r}, nil)
			require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), pointer)
			require.Contains(t, errs.From(err).Fields[0].Pointer, pointer)
		}
	})
}
