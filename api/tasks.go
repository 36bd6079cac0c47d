package api

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/telemetry"
	"comet/models"
)

// listTasks lists tasks.
//
//	@Summary		List tasks
//	@Description	Returns tasks, newest first. A token with `tasks:read` sees all tasks, or those of the subtree of its agent if it is bound to one. A token with only `messages:send` sees those that it requested itself. The same holds for all other operations.
//	@Param			state			query	string	false	"Only tasks in this state"	enums(new,running,done,failed,cancelled)	example(running)
//	@Param			waiting_for		query	string	false	"Only open tasks that wait for a worker, for their next attempt (`retry`) or for the reply to a question"	enums(worker,retry,reply)	example(reply)
//	@Param			id_prefix		query	string	false	"Only tasks whose id begins with this text"	maxlength(64)	example(01890a5d-ac96)
//	@Param			agent_id		query	string	false	"Only tasks whose newest attempt is assigned to this agent"	maxlength(64)	example(research-web-01)
//	@Param			session_id		query	string	false	"Only tasks of this session"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			parent_id		query	string	false	"Only subtasks of this task"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8059)
//	@Param			owner			query	string	false	"Only tasks that the token with this id requested"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a805a)
//	@Param			request_id		query	string	false	"Only the task that `owner`, by default the token of this request, requested with this `request_id`"	maxlength(128)	example(req-01J9)
//	@Param			trace_id		query	string	false	"Only tasks of this trace: the trace id of a traceparent, or `trace_id` of an envelope. Use it with `since`, because the tasks since then are searched"	maxlength(36)	example(4bf92f3577b34da6a3ce929d0e0e4736)
//	@Param			since			query	string	false	"Only tasks created at this time or later"	format(date-time)	example(2026-01-10T00:00:00Z)
//	@Param			until			query	string	false	"Only tasks created before this time"	format(date-time)	example(2026-01-11T00:00:00Z)
//	@Param			mine			query	bool	false	"Only tasks that this token requested"	default(false)
//	@Param			cursor			query	string	false	"`next_cursor` of the previous page"	maxlength(200)
//	@Success		200	{object}	taskList	"A page of results"
func (s *Server) listTasks(r request) (any, error) {
	q, err := taskQuery(r)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // one more than the page shows whether there is a next page
	tasks, err := s.core.Orchestrator.Tasks(r.Context(), q)
	tasks, next := cutPage(tasks, limit, func(t models.ListedTask) string { return creationPosition(t.CreatedAt, t.ID) })
	return reply{next: next, body: taskList{views(tasks, newListedTask), next}}, err
}

// taskQuery reads the query parameters of a list of tasks.
func taskQuery(r request) (orchestrator.TaskQuery, error) {
	q := newQuery(r.Request, "state", "waiting_for", "id_prefix", "agent_id", "session_id", "parent_id", "owner", "request_id", "trace_id", "since", "until", "mine", "limit", "cursor")
	out := orchestrator.TaskQuery{
		State: models.TaskState(q.Enum("state", "", string(models.TaskNew), string(models.TaskRunning),
			string(models.TaskDone), string(models.TaskFailed), string(models.TaskCancelled))),
		WaitingFor: models.WaitReason(q.Enum("waiting_for", "", string(models.WaitForWorker), string(models.WaitForRetry), string(models.WaitForReply))),
		IDPrefix:   orZero(q.OptString("id_prefix", input.MaxID)),
		AgentID:    orZero(q.OptString("agent_id", input.MaxID)),
		SessionID:  orZero(q.OptString("session_id", input.MaxID)),
		ParentID:   orZero(q.OptString("parent_id", input.MaxID)),
		RequestID:  orZero(q.OptString("request_id", 128)),
		TraceID:    orZero(q.OptString("trace_id", 36)),
		Limit:      q.pageLimit(),
		Before:     q.taskCursor(),
	}
	owner := orZero(q.OptString("owner", input.MaxID))
	out.Owner, out.Root = readable(r.caller, q.Bool("mine") || owner == r.caller.TokenID || owner == "" && out.RequestID != "")
	if out.Owner == "" {
		out.Owner = owner
	} else if owner != "" && owner != out.Owner {
		q.Fail("owner", "owner", "owner must be the id of your own token, %s, with mine=true or without the scope tasks:read", out.Owner)
	}
	if out.TraceID = strings.ReplaceAll(out.TraceID, "-", ""); out.TraceID != "" && !telemetry.IsTraceparent("00-"+out.TraceID+"-0000000000000001-00") {
		q.Fail("trace_id", "trace_id", "trace_id must be 32 lowercase hexadecimal digits, or a UUID")
	}
	out.Since, out.Until = q.period()
	return out, q.Err()
}

// creationPosition is the content of a cursor of a list ordered by time of creation.
func creationPosition(created time.Time, id string) string {
	return strconv.FormatInt(created.UnixMicro(), 10) + "." + id
}

// taskCursor parses such a cursor, the zero value if it is absent.
func (q *query) taskCursor() (place orchestrator.TaskCursor) {
	key, ok := q.cursor(200)
	if !ok {
		return place
	}
	at, id, _ := strings.Cut(key, ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" || !storable(id) {
		q.failCursor()
		return place
	}
	return orchestrator.TaskCursor{CreatedAt: time.UnixMicro(micros).UTC(), ID: id}
}

// getTask returns one task.
//
//	@Summary		Get a task
//	@Description	Returns a task with its attempts, the selection of its worker and its events. With `wait` the response is delayed until the task has ended or, if `version` is sent, until it has a higher version, but at most for `wait` seconds.
//	@Param			wait			query	int		false	"Seconds to wait for the end or a change, limited by the server's time limit for requests"	minimum(0)	maximum(60)	default(0)
//	@Param			version			query	int		false	"Wait for a version higher than this one"	minimum(0)	example(4)
//	@Success		200	{object}	taskDetail	"The task"
//	@Failure		503	"The limit of waiting requests is reached"
func (s *Server) getTask(r request) (any, error) {
	q := newQuery(r.Request, "wait", "version")
	seconds, version := q.Int("wait", 0, int(maxWait.Seconds()), 0), q.OptInt("version", 0, 1<<53)
	if err := q.Err(); err != nil {
		return nil, err
	}
	if _, err := s.visibleTask(r); err != nil {
		return nil, err
	}
	if patience := min(time.Duration(seconds)*time.Second, s.maxWait()); patience > 0 {
		if _, err := s.waitForTask(r.Request, r.id, patience, s.waitForChange(version)); err != nil {
			return nil, err
		}
	}
	found, err := s.core.Orchestrator.Detail(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	v, err := newTaskDetail(found)
	if err == nil && v.State.Ended() {
		v.Output.Text, err = s.outputText(r.Request, found.Task)
	}
	return reply{version: v.Version, body: v}, err
}

// waitForChange waits for a version after the given one, or for the end if it is nil.
func (s *Server) waitForChange(version *int) waitFunc {
	if version == nil {
		return s.core.Orchestrator.Wait
	}
	return func(ctx context.Context, who, id string, patience time.Duration) (models.Task, error) {
		return s.core.Orchestrator.WaitForChange(ctx, who, id, int64(*version), patience)
	}
}

// Access to tasks and sessions: with tasks:read a token sees all of them, with messages:send those
// that it requested itself. With messages:send it changes its own, with admin all. What a token may
// not see does not exist for it.

// readable returns what the lists of tasks and sessions contain: those of the token owner, or those of
// the agent root and its descendants; both are "" for all.
func readable(p models.Principal, mine bool) (owner, root string) {
	if mine || !p.Has(models.ScopeTasksRead) {
		return p.TokenID, ""
	}
	return "", orZero(p.AgentID)
}

// requireOwner returns errs.MissingScope unless the caller requested the resource itself or is an
// admin.
func requireOwner(p models.Principal, owner string) error {
	if auth.Owns(p, owner, "") {
		return nil
	}
	return auth.Require(p, models.ScopeAdmin)
}

// visibleTask returns the task in the path if the caller sees it.
func (s *Server) visibleTask(r request) (models.Task, error) {
	t, err := s.core.Orchestrator.Task(r.Context(), r.id)
	if err != nil {
		return t, err
	}
	visible, err := s.core.Auth.CanRead(r.Context(), r.caller, t.Owner, t.AgentID, t.OwnerAgent)
	if err == nil && !visible {
		err = errs.New(errs.NotFound, "there is no task %q", r.id)
	}
	return t, err
}

// requireTaskOwner returns an error unless the caller may change the task.
func (s *Server) requireTaskOwner(r request) error {
	t, err := s.visibleTask(r)
	if err == nil {
		err = requireOwner(r.caller, t.Owner)
	}
	return err
}

// visibleSession returns the session in the path if the caller sees it.
func (s *Server) visibleSession(r request) (models.Session, error) {
	session, err := s.core.Orchestrator.Session(r.Context(), r.id)
	if err != nil {
		return session, err
	}
	visible, err := s.core.Auth.CanRead(r.Context(), r.caller, session.Owner, session.AgentID)
	if err == nil && !visible {
		err = errs.New(errs.NotFound, "there is no session %q", r.id)
	}
	return session, err
}

// taskCancellation is the body of a request to cancel a task.
type taskCancellation struct {
	// The reason, which is shown with the task.
	Reason *string `json:"reason" validate:"omitnil,text,max=500" example:"not needed any more" maxLength:"500" extensions:"x-nullable"`
}

// cancelTask cancels a task.
//
//	@Summary		Cancel a task
//	@Description	Cancels a task that has not ended and notifies its worker. Cancelling a cancelled task has no effect. A token cancels tasks that it requested itself; a token with `admin` cancels all.
//	@Param			body			body	taskCancellation	false	"The reason"
//	@Success		200	{object}	taskView	"The cancelled task"
//	@Failure		400	"The reason is malformed"
//	@Failure		409	"The task has ended, see `state`; or the Idempotency-Key was used with a different request"
func (s *Server) cancelTask(r request, d taskCancellation, once *models.Idempotency) (models.Task, error) {
	if err := input.Validate(d).Err(); err != nil {
		return models.Task{}, err
	}
	if err := s.requireTaskOwner(r); err != nil {
		return models.Task{}, err
	}
	reason := cmp.Or(orZero(d.Reason), "cancelled by "+r.caller.Name)
	return s.core.Orchestrator.Cancel(r.Context(), r.id, reason, once)
}

// taskReply is the reply to a worker's question.
type taskReply struct {
	Reply *string `json:"reply" validate:"required,min=1,text,max=16384" example:"2026" minLength:"1" maxLength:"16384"` // The text of the reply.
}

// replyToTask replies to a worker's question.
//
//	@Summary		Reply to a task's question
//	@Description	Sends the reply to the worker, whose question is `question` of the task; the task then continues. A token replies for tasks that it requested itself; a token with `admin` for all.
//	@Param			body	body	taskReply	true	"The reply"
//	@Success		200	{object}	taskView	"The task; the reply is being delivered"
//	@Failure		400	"The reply is missing or malformed"
//	@Failure		409	"The task has no open question; see `state`"
func (s *Server) replyToTask(r request, d taskReply) (any, error) {
	if err := s.requireTaskOwner(r); err != nil {
		return nil, err
	}
	t, err := s.core.Orchestrator.Reply(r.Context(), r.id, *d.Reply)
	return changedTask(t), err
}

func changedTask(t models.Task) reply { return taskResponse(newTaskView(t), http.StatusOK) }
