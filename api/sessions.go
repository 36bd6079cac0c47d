package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
)

const sessionsPath = "/api/v1/sessions"

// sessionView is a session: tasks that belong together and their shared context.
type sessionView struct {
	ID        string              `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`             // The session's id.
	Owner     string              `json:"owner" example:"01890a5d-ac96-774b-bcce-b302099a805a"`          // Id of the token that opened it.
	AgentID   *string             `json:"agent_id" example:"research-web-01"`                            // Agent of that token.
	State     models.SessionState `json:"state" swaggertype:"string" enums:"open,closed" example:"open"` // Whether tasks can be submitted in it.
	OpenTasks int                 `json:"open_tasks" example:"1"`                                        // Number of its tasks that have not ended.
	Tasks     int                 `json:"tasks" example:"3"`                                             // Number of its tasks.
	Context   any                 `json:"context"`                                                       // The object that was set when the session was opened.
	CreatedAt time.Time           `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt time.Time           `json:"updated_at" example:"2026-01-10T15:30:00Z"`
	ClosedAt  *time.Time          `json:"closed_at" example:"2026-01-10T16:30:00Z"` // When it was closed; null while it is open.
}

// sessionList is one page of sessions, the newest first.
type sessionList struct {
	Sessions   []sessionView `json:"sessions"`                                                     // The sessions on the page.
	NextCursor string        `json:"next_cursor,omitempty" example:"MTc2ODA1OTAwMDAwMDAwMC4wMTg5"` // Absent on the last page.
}

func newSessionView(s models.Session) sessionView {
	return sessionView{
		ID: s.ID, Owner: s.Owner, AgentID: orNull(s.AgentID), State: s.State, OpenTasks: s.OpenTasks, Tasks: s.Tasks,
		Context: jsontext.Value(s.Facts), CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ClosedAt: s.ClosedAt,
	}
}

// sessionDraft is the body of a request to open a session.
type sessionDraft struct {
	// An id of your choice; generated if it is omitted.
	ID *string `json:"id" validate:"omitnil,notblank,printable,max=64" example:"trip-to-lisbon" minLength:"1" maxLength:"64" extensions:"x-nullable"`
	// An object with information for the agents that work in the session.
	Context *jsontext.Value `json:"context" swaggertype:"object" extensions:"x-nullable"`
}

// openSession opens a session.
//
//	@Summary		Open a session
//	@Description	Opens a session, which groups tasks: name it as `session_id` when you submit a task. A session is closed by request, or after an hour without activity.
//	@Param			body	body	sessionDraft	false	"The id and the context; both are optional"
//	@Success		201	{object}	sessionView	"The session"
//	@Failure		409	"A session with this id exists"
func (s *Server) openSession(r request, d sessionDraft) (any, error) {
	v := input.Validate(d)
	if d.Context != nil && d.Context.Kind() != '{' {
		v.Add(errs.InvalidRequest, "/context", "object", "context must be a JSON object")
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	session, err := s.core.Orchestrator.OpenSession(r.Context(), r.caller, orZero(d.ID), json.RawMessage(orZero(d.Context)))
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.Conflict, "a session with the id %q already exists; choose another id or omit it", orZero(d.ID))
	}
	return reply{
		status: http.StatusCreated, location: sessionsPath + "/" + url.PathEscape(session.ID), body: newSessionView(session),
	}, err
}

// listSessions lists sessions.
//
//	@Summary		List sessions
//	@Description	Returns sessions, newest first. Closed sessions are included until they are deleted at the end of their retention. A token with `tasks:read` sees all sessions, a token with only `messages:send` its own, here and in all other operations.
//	@Param			mine			query	bool	false	"Only sessions that this token opened"	default(false)
//	@Param			cursor			query	string	false	"`next_cursor` of the previous page"	maxlength(200)
//	@Success		200	{object}	sessionList	"A page of results"
func (s *Server) listSessions(r request) (any, error) {
	q := newQuery(r.Request, "mine", "limit", "cursor")
	mine, limit, before := q.Bool("mine"), q.pageLimit(), q.taskCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	owner, root := readable(r.caller, mine)
	sessions, err := s.core.Orchestrator.Sessions(r.Context(), orchestrator.SessionQuery{Owner: owner, Root: root, Before: before, Limit: limit + 1})
	sessions, next := cutPage(sessions, limit, func(s models.Session) string { return creationPosition(s.CreatedAt, s.ID) })
	return reply{next: next, body: sessionList{views(sessions, newSessionView), next}}, err
}

// getSession returns one session.
//
//	@Summary		Get a session
//	@Description	Returns a session with the number of its tasks; `GET /api/v1/tasks?session_id=…` lists them.
//	@Success		200	{object}	sessionView	"The session"
func (s *Server) getSession(r request) (any, error) {
	session, err := s.visibleSession(r)
	return newSessionView(session), err
}

// closeSession closes a session.
//
//	@Summary		Close a session
//	@Description	Closes the session, so that no tasks can be submitted in it. Closing a closed session has no effect. A token closes sessions that it opened itself; a token with `admin` closes all.
//	@Success		200	{object}	sessionView	"The closed session"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token opened the session"
//	@Failure		409	"The session has tasks that have not ended"
func (s *Server) closeSession(r request, _ struct{}) (any, error) {
	session, err := s.visibleSession(r)
	if err == nil {
		err = requireOwner(r.caller, session.Owner)
	}
	if err == nil {
		session, err = s.core.Orchestrator.CloseSession(r.Context(), r.id)
	}
	return newSessionView(session), err
}

// questionView is a question of an agent that waits for a reply.
type questionView struct {
	TaskID  string  `json:"task_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The task's id.
	AgentID *string `json:"agent_id" example:"research-web-01"`                     // The agent that asks.
	taskQuestion
	AskedAt  time.Time `json:"asked_at" example:"2026-01-10T15:30:00Z"` // When the question was asked.
	Deadline time.Time `json:"deadline" example:"2026-01-10T15:31:00Z"` // When the task continues without a reply: its policy decides whether the first option is used or the attempt fails.
}

// questionList contains the open questions of a session, oldest task first.
type questionList struct {
	Questions []questionView `json:"questions"` // The open questions.
}

func newQuestionView(q orchestrator.OpenQuestion) questionView {
	return questionView{
		TaskID: q.Task.ID, AgentID: orNull(q.Task.AgentID), taskQuestion: newTaskQuestion(q.Question),
		AskedAt: q.At, Deadline: q.Task.Deadline,
	}
}

// listQuestions lists the questions of a session.
//
//	@Summary		List a session's questions
//	@Description	Returns the questions for which the agents that work in the session wait for replies, at most 1,000, oldest task first.
//	@Success		200	{object}	questionList	"The open questions"
func (s *Server) listQuestions(r request) (any, error) {
	if _, err := s.visibleSession(r); err != nil {
		return nil, err
	}
	asked, err := s.core.Orchestrator.Questions(r.Context(), r.id)
	return questionList{views(asked, newQuestionView)}, err
}

// sessionReply is the reply to a question of a session.
type sessionReply struct {
	// The task whose question is answered; optional if there is only one question.
	TaskID *string `json:"task_id" validate:"omitnil,notblank,max=64" example:"01890a5d-ac96-774b-bcce-b302099a8057" maxLength:"64" extensions:"x-nullable"`
	// The reply as text. Either `reply` or `choice` is required.
	Reply *string `json:"reply" validate:"omitnil,min=1,text,max=16384" example:"2026" minLength:"1" maxLength:"16384" extensions:"x-nullable"`
	// The reply as the number of an option, from 1. Either `reply` or `choice` is required.
	Choice *int `json:"choice" validate:"omitnil,min=1,max=1000" example:"2" minimum:"1" maximum:"1000" extensions:"x-nullable"`
}

// replyToSession replies to a question of a session.
//
//	@Summary		Reply to a session's question
//	@Description	Sends the reply to the agent that asked, as text or as the number of one of its options; the task then continues. A token replies for tasks that it requested itself; a token with `admin` for all.
//	@Param			body		body	sessionReply	true	"The reply"
//	@Success		200	{object}	taskView	"The task; the reply is being delivered"
//	@Failure		400	"Neither or both of reply and choice, an unknown option, or several open questions and no task_id"
//	@Failure		409	"The session, or the given task, has no open question"
func (s *Server) replyToSession(r request, d sessionReply) (any, error) {
	v := input.Validate(d)
	if (d.Reply == nil) == (d.Choice == nil) {
		v.Add(errs.InvalidRequest, "/reply", "required", "send either reply or choice")
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	if _, err := s.visibleSession(r); err != nil {
		return nil, err
	}
	asked, err := s.core.Orchestrator.Questions(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	question, err := selectQuestion(asked, orZero(d.TaskID), r.id)
	if err != nil {
		return nil, err
	}
	if err := requireOwner(r.caller, question.Task.Owner); err != nil {
		return nil, err
	}
	text, err := d.text(question)
	if err != nil {
		return nil, err
	}
	t, err := s.core.Orchestrator.Reply(r.Context(), question.Task.ID, text)
	return changedTask(t), err
}

// selectQuestion returns the open question of a task, or the only one.
func selectQuestion(asked []orchestrator.OpenQuestion, taskID, sessionID string) (orchestrator.OpenQuestion, error) {
	for _, a := range asked {
		if a.Task.ID == taskID {
			return a, nil
		}
	}
	switch {
	case taskID != "":
		return orchestrator.OpenQuestion{}, errs.New(errs.TaskState, "the task %q of the session %q has no open question", taskID, sessionID)
	case len(asked) == 0:
		return orchestrator.OpenQuestion{}, errs.New(errs.TaskState, "the session %q has no open question", sessionID)
	case len(asked) > 1:
		return orchestrator.OpenQuestion{}, input.Violated("/task_id", "required", "the session has %d open questions; set task_id to the task you reply to", len(asked))
	}
	return asked[0], nil
}

func (d sessionReply) text(q orchestrator.OpenQuestion) (string, error) {
	if d.Reply != nil {
		return *d.Reply, nil
	}
	if *d.Choice > len(q.Options) {
		return "", input.Violated("/choice", "max", "choice must be from 1 to %d, the number of options, not %d", len(q.Options), *d.Choice)
	}
	return q.Options[*d.Choice-1], nil
}
