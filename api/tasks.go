package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// listTasks lists tasks.
//
//	@Summary		List tasks
//	@Description	The newest first. A token with `tasks:read` sees every task, one with `messages:send` alone those it asked for itself, here and everywhere.
//	@ID				listTasks
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			state			query	string	false	"Only tasks in this state"	enums(new,running,done,failed,cancelled)	example(running)
//	@Param			agent_id		query	string	false	"Only tasks whose newest attempt this agent makes"	maxlength(64)	example(research-web-01)
//	@Param			session_id		query	string	false	"Only tasks of this session"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			parent_id		query	string	false	"Only tasks handed off from this one"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8059)
//	@Param			since			query	string	false	"Only tasks made at this time or later"	format(date-time)	example(2026-01-10T00:00:00Z)
//	@Param			until			query	string	false	"Only tasks made before this time"	format(date-time)	example(2026-01-11T00:00:00Z)
//	@Param			mine			query	bool	false	"Only tasks that this token asked for"	default(false)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(200)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	taskList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/tasks [get]
func (s *Server) listTasks(w http.ResponseWriter, r *http.Request) error {
	q, err := taskQuery(r)
	if err != nil {
		return err
	}
	limit := q.Limit
	q.Limit++ // one more tells whether there is a next page
	tasks, err := s.orchestrator.Tasks(r.Context(), q)
	if err != nil {
		return err
	}
	var page taskList
	if len(tasks) > limit {
		tasks = tasks[:limit]
		page.NextCursor = taskCursor(models.TaskCursor{CreatedAt: tasks[limit-1].CreatedAt, ID: tasks[limit-1].ID})
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Tasks = make([]taskView, len(tasks))
	for i, t := range tasks {
		page.Tasks[i] = newTaskView(t)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// taskQuery reads the parameters of a list of tasks.
func taskQuery(r *http.Request) (models.TaskQuery, error) {
	q := newQuery(r, "state", "agent_id", "session_id", "parent_id", "since", "until", "mine", "limit", "cursor")
	out := models.TaskQuery{
		State: models.TaskState(q.Enum("state", "", string(models.TaskNew), string(models.TaskRunning),
			string(models.TaskDone), string(models.TaskFailed), string(models.TaskCancelled))),
		AgentID:   orZero(q.OptString("agent_id", models.MaxIDLength)),
		SessionID: orZero(q.OptString("session_id", models.MaxIDLength)),
		ParentID:  orZero(q.OptString("parent_id", models.MaxIDLength)),
		Owner:     ownerOf(caller(r), q.Bool("mine")),
		Limit:     q.Int("limit", 1, maxLimit, defaultLimit),
		Before:    q.taskCursor(),
	}
	since, until := q.OptTime("since"), q.OptTime("until")
	out.Since, out.Until = orZero(since), orZero(until)
	if since != nil && until != nil && !until.After(*since) {
		q.Fail("until", "after", "until must lie after since")
	}
	return out, q.Err()
}

// taskCursor makes the cursor of a list that goes by the time of creation.
func taskCursor(p models.TaskCursor) string {
	return encodeCursor(strconv.FormatInt(p.CreatedAt.UnixMicro(), 10) + "." + p.ID)
}

// taskCursor reads such a cursor, the zero value where it was not sent.
func (q *query) taskCursor() (place models.TaskCursor) {
	key, ok := q.cursorOf(200)
	if !ok {
		return place
	}
	at, id, _ := strings.Cut(key, ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" || !storable(id) {
		q.failCursor()
		return place
	}
	return models.TaskCursor{CreatedAt: time.UnixMicro(micros).UTC(), ID: id}
}

// getTask returns one task.
//
//	@Summary		Get a task
//	@Description	The task with its attempts, who could have taken it, and what happened to it. With `wait` the answer comes when the task has ended or, where `version` is given, when it has changed since, and after so many seconds in any case.
//	@ID				getTask
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			task_id			path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			wait			query	int		false	"How many seconds to wait for an end or a change, no longer than the server lets a request take"	minimum(0)	maximum(60)	default(0)
//	@Param			version			query	int		false	"The version you have"	minimum(0)	example(4)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	taskDetail	"The task"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Failure		404	"No such task"
//	@Failure		503	"As many requests wait as may"
//	@Header			503	{integer}	Retry-After
//	@Router			/api/v1/tasks/{task_id} [get]
func (s *Server) getTask(w http.ResponseWriter, r *http.Request) error {
	id, err := decodeID(r, "task_id")
	if err != nil {
		return err
	}
	q := newQuery(r, "wait", "version")
	patience, version := s.boundWait(q.Int("wait", 0, int(maxWait.Seconds()), 0)), q.OptInt("version", 0, 1<<53)
	if err := q.Err(); err != nil {
		return err
	}
	if _, err := s.visibleTask(r, id); err != nil {
		return err
	}
	if patience > 0 {
		if _, err := s.waitForTask(r, id, patience, s.waitForChange(version)); err != nil {
			return err
		}
	}
	found, err := s.orchestrator.Detail(r.Context(), id)
	if err != nil {
		return err
	}
	v, err := newTaskDetail(found)
	if err != nil {
		return err
	}
	return s.writeEntity(w, r, http.StatusOK, v.Version, v)
}

// waitForChange waits for a change after a version, or for the end where there is none.
func (s *Server) waitForChange(version *int) waitFunc {
	if version == nil {
		return s.orchestrator.Wait
	}
	return func(ctx context.Context, who, id string, patience time.Duration) (models.Task, error) {
		return s.orchestrator.WaitForChange(ctx, who, id, int64(*version), patience)
	}
}

// Who may do what with tasks and sessions: a token with tasks:read sees all of them, one
// with messages:send those it asked for itself, and with messages:send a token changes
// its own, one with admin all of them. What a token may not see is not there for it.

// requireAny lets callers with one of the scopes through; a refusal names the first.
func (s *Server) requireAny(scope models.Scope, others ...models.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return s.handle(func(w http.ResponseWriter, r *http.Request) error {
			err := auth.Require(caller(r), scope)
			for _, other := range others {
				if err != nil && caller(r).Has(other) {
					err = nil
				}
			}
			if err == nil {
				next.ServeHTTP(w, r)
			}
			return err
		})
	}
}

// canRead reports whether the caller sees what the token with the id asked for.
func canRead(p models.Principal, owner string) bool {
	return p.Has(models.ScopeTasksRead) || owner == p.TokenID
}

// ownerOf is whose tasks or sessions a list shows, "" for everybody's.
func ownerOf(p models.Principal, mine bool) string {
	if mine || !p.Has(models.ScopeTasksRead) {
		return p.TokenID
	}
	return ""
}

// requireOwner returns errs.MissingScope for what the caller sees and did not ask for.
func requireOwner(p models.Principal, owner string) error {
	if owner == p.TokenID {
		return nil
	}
	return auth.Require(p, models.ScopeAdmin)
}

// visibleTask returns a task that the caller sees.
func (s *Server) visibleTask(r *http.Request, id string) (models.Task, error) {
	t, err := s.orchestrator.Task(r.Context(), id)
	if err == nil && !canRead(caller(r), t.Owner) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// requireTaskOwner returns no error for a task that the caller may change.
func (s *Server) requireTaskOwner(r *http.Request, id string) error {
	t, err := s.visibleTask(r, id)
	if err == nil {
		err = requireOwner(caller(r), t.Owner)
	}
	return err
}

// visibleSession returns a session that the caller sees.
func (s *Server) visibleSession(r *http.Request, id string) (models.Session, error) {
	session, err := s.orchestrator.Session(r.Context(), id)
	if err == nil && !canRead(caller(r), session.Owner) {
		err = errs.New(errs.NotFound, "there is no session %q", id)
	}
	return session, err
}

// taskCancellation is the body of a request to end a task.
type taskCancellation struct {
	// Why, for whoever looks at the task.
	Reason *string `json:"reason" validate:"omitnil,text,max=500" example:"not needed any more" maxLength:"500" extensions:"x-nullable"`
}

// cancelTask ends a task.
//
//	@Summary		Cancel a task
//	@Description	Ends a task that has not ended; the agent that has it is told. A cancelled task stays as it is. A token cancels what it asked for itself, one with `admin` every task.
//	@ID				cancelTask
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			task_id			path	string			true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			Idempotency-Key	header	string			false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	taskCancellation	false	"Why"
//	@Success		200	{object}	taskView	"It is cancelled"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"The reason is malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token asked for the task"
//	@Failure		404	"No such task"
//	@Failure		409	"It has ended otherwise, `state` tells how; or the key was used with another request"
//	@Router			/api/v1/tasks/{task_id}/cancel [post]
func (s *Server) cancelTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_id")
	if err != nil {
		return err
	}
	var d taskCancellation
	body, err := s.decodeOptional(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderTask)
	if err != nil {
		return err
	}
	if err := input.Validate(d).Err(); err != nil {
		return err
	}
	if err := s.requireTaskOwner(r, id); err != nil {
		return err
	}
	reason := "cancelled by " + caller(r).Name
	if orZero(d.Reason) != "" {
		reason = *d.Reason
	}
	t, err := s.orchestrator.Cancel(r.Context(), id, reason, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeTaskChange(w, t)
}

// taskReply is the answer to an agent's question.
type taskReply struct {
	Reply *string `json:"reply" validate:"required,min=1,text,max=16384" example:"2026" minLength:"1" maxLength:"16384"`
}

// replyToTask answers an agent's question.
//
//	@Summary		Answer a task's agent
//	@Description	Tells the agent what it asked back (`question` of the task), and its work goes on. A token answers for what it asked for itself, one with `admin` for every task.
//	@ID				replyToTask
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			task_id	path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			body	body	taskReply	true	"The answer"
//	@Success		200	{object}	taskView	"The agent is told"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Failure		400	"The answer is missing or malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token asked for the task"
//	@Failure		404	"No such task"
//	@Failure		409	"It waits for no answer; `state` tells where it stands"
//	@Router			/api/v1/tasks/{task_id}/reply [post]
func (s *Server) replyToTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_id")
	if err != nil {
		return err
	}
	var d taskReply
	if _, err := s.decode(w, r, &d); err != nil {
		return err
	}
	if err := input.Validate(d).Err(); err != nil {
		return err
	}
	if err := s.requireTaskOwner(r, id); err != nil {
		return err
	}
	t, err := s.orchestrator.Reply(r.Context(), id, *d.Reply)
	if err != nil {
		return err
	}
	return s.writeTaskChange(w, t)
}

// writeTaskChange answers with a task that was changed.
func (s *Server) writeTaskChange(w http.ResponseWriter, t models.Task) error {
	answer, err := s.renderTask(t)
	if err == nil {
		s.writeStoredResponse(w, answer)
	}
	return err
}

func (s *Server) renderTask(result any) (models.StoredResponse, error) {
	return s.taskResponse(newTaskView(result.(models.Task)), http.StatusOK)
}
