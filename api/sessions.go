package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
)

const sessionsPath = "/api/v1/sessions"

// sessionView is what belongs together.
type sessionView struct {
	ID        string              `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	Owner     string              `json:"owner" example:"01890a5d-ac96-774b-bcce-b302099a805a"` // The id of the token that made it.
	AgentID   *string             `json:"agent_id" example:"research-web-01"`                   // The agent of that token.
	State     models.SessionState `json:"state" swaggertype:"string" enums:"open,closed" example:"open"`
	OpenTasks int                 `json:"open_tasks" example:"1"` // How many of its tasks have not ended.
	Tasks     int                 `json:"tasks" example:"3"`
	Context   any                 `json:"context"` // An object, what its maker set.
	CreatedAt time.Time           `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt time.Time           `json:"updated_at" example:"2026-01-10T15:30:00Z"`
	ClosedAt  *time.Time          `json:"closed_at" example:"2026-01-10T16:30:00Z"`
}

// sessionList is one page of sessions, the newest first.
type sessionList struct {
	Sessions   []sessionView `json:"sessions"`
	NextCursor string        `json:"next_cursor,omitempty" example:"MTc2ODA1OTAwMDAwMDAwMC4wMTg5"` // Absent on the last page.
}

func newSessionView(s models.Session) sessionView {
	return sessionView{
		ID: s.ID, Owner: s.Owner, AgentID: orNull(s.AgentID), State: s.State, OpenTasks: s.OpenTasks, Tasks: s.Tasks,
		Context: jsontext.Value(s.Facts), CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, ClosedAt: s.ClosedAt,
	}
}

// sessionDraft is the body of a request for a session.
type sessionDraft struct {
	// An id of your own; one is made where it is left out.
	ID *string `json:"id" validate:"omitnil,notblank,printable,max=64" example:"trip-to-lisbon" minLength:"1" maxLength:"64" extensions:"x-nullable"`
	// What its agents may want to know, an object.
	Context *jsontext.Value `json:"context" swaggertype:"object" extensions:"x-nullable"`
}

// openSession makes a session (PROTOCOL_V5 §6).
//
//	@Summary		Open a session
//	@Description	Tasks that name it belong together. It is closed by request, or when nothing has happened in it for an hour.
//	@ID				openSession
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			body	body	sessionDraft	false	"The id and the context; both are optional"
//	@Success		201	{object}	sessionView	"Opened"
//	@Header			201	{string}	Location
//	@Failure		400	"A field is malformed"
//	@Failure		409	"A session with the id exists"
//	@Router			/api/v1/sessions [post]
func (s *Server) openSession(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d sessionDraft
	if _, err := s.decodeOptional(w, r, &d); err != nil {
		return err
	}
	v := input.Validate(d)
	var sessionContext json.RawMessage
	if d.Context != nil {
		if sessionContext = json.RawMessage(*d.Context); d.Context.Kind() != '{' {
			v.Add(errs.InvalidRequest, "/context", "object", "context must be a JSON object")
		}
	}
	if err := v.Err(); err != nil {
		return err
	}
	session, err := s.orchestrator.OpenSession(r.Context(), caller(r), orZero(d.ID), sessionContext)
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.Conflict, "a session with the id %q exists", orZero(d.ID))
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", sessionURL(session.ID))
	return s.writeJSON(w, r, http.StatusCreated, newSessionView(session))
}

// listSessions lists sessions.
//
//	@Summary		List sessions
//	@Description	The newest first, closed ones too for as long as they are kept. A token with `tasks:read` sees every session, one with `messages:send` alone its own, here and everywhere.
//	@ID				listSessions
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			mine			query	bool	false	"Only sessions that this token made"	default(false)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(200)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	sessionList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/sessions [get]
func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "mine", "limit", "cursor")
	mine, limit, before := q.Bool("mine"), q.Int("limit", 1, maxLimit, defaultLimit), q.taskCursor()
	if err := q.Err(); err != nil {
		return err
	}
	sessions, err := s.orchestrator.Sessions(r.Context(), ownerOf(caller(r), mine), before, limit+1)
	if err != nil {
		return err
	}
	var page sessionList
	if len(sessions) > limit {
		sessions = sessions[:limit]
		page.NextCursor = taskCursor(models.TaskCursor{CreatedAt: sessions[limit-1].CreatedAt, ID: sessions[limit-1].ID})
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Sessions = make([]sessionView, len(sessions))
	for i, session := range sessions {
		page.Sessions[i] = newSessionView(session)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// getSession returns one session.
//
//	@Summary		Get a session
//	@Description	The session with how many tasks it has; `GET /api/v1/tasks?session_id=…` lists them.
//	@ID				getSession
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			session_id		path	string	true	"The session's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	sessionView	"The session"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such session"
//	@Router			/api/v1/sessions/{session_id} [get]
func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "session_id")
	if err != nil {
		return err
	}
	session, err := s.visibleSession(r, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newSessionView(session))
}

// closeSession closes a session.
//
//	@Summary		Close a session
//	@Description	It takes no further tasks. One that is closed stays as it is. A token closes what it opened itself, one with `admin` every session.
//	@ID				closeSession
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			session_id	path	string	true	"The session's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Success		200	{object}	sessionView	"It is closed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token opened the session"
//	@Failure		404	"No such session"
//	@Failure		409	"It has open tasks"
//	@Router			/api/v1/sessions/{session_id}/close [post]
func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "session_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	session, err := s.visibleSession(r, id)
	if err == nil {
		err = requireOwner(caller(r), session.Owner)
	}
	if err == nil {
		session, err = s.orchestrator.CloseSession(r.Context(), id)
	}
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newSessionView(session))
}

func sessionURL(id string) string { return sessionsPath + "/" + url.PathEscape(id) }

// questionView is what an agent at work in a session waits to be told.
type questionView struct {
	TaskID  string  `json:"task_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	AgentID *string `json:"agent_id" example:"research-web-01"` // Who asks.
	taskQuestion
	AskedAt  time.Time `json:"asked_at" example:"2026-01-10T15:30:00Z"`
	Deadline time.Time `json:"deadline" example:"2026-01-10T15:31:00Z"` // What then happens is the task's policy: its first option is taken, or it is given up.
}

// questionList is what waits for an answer in a session, the oldest task first.
type questionList struct {
	Questions []questionView `json:"questions"`
}

// listQuestions lists the questions of a session.
//
//	@Summary		List a session's questions
//	@Description	What the agents at work in the session have asked back and wait to be told, up to 1,000, the oldest task first (PROTOCOL_V5 §7.2).
//	@ID				listQuestions
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			session_id		path	string	true	"The session's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	questionList	"What waits for an answer"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such session"
//	@Router			/api/v1/sessions/{session_id}/questions [get]
func (s *Server) listQuestions(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "session_id")
	if err != nil {
		return err
	}
	if _, err := s.visibleSession(r, id); err != nil {
		return err
	}
	asked, err := s.orchestrator.Questions(r.Context(), id)
	if err != nil {
		return err
	}
	list := questionList{Questions: make([]questionView, len(asked))}
	for i, a := range asked {
		list.Questions[i] = questionView{
			TaskID: a.Task.ID, AgentID: orNull(a.Task.AgentID), taskQuestion: newTaskQuestion(a.Question),
			AskedAt: a.At, Deadline: a.Task.Deadline,
		}
	}
	return s.writeJSON(w, r, http.StatusOK, list)
}

// sessionReply is the answer to a question of a session.
type sessionReply struct {
	// Whose question; may be left out where there is only one.
	TaskID *string `json:"task_id" validate:"omitnil,notblank,max=64" example:"01890a5d-ac96-774b-bcce-b302099a8057" maxLength:"64" extensions:"x-nullable"`
	// The answer in words, or
	Reply *string `json:"reply" validate:"omitnil,min=1,text,max=16384" example:"2026" minLength:"1" maxLength:"16384" extensions:"x-nullable"`
	// the number of one of the options, from 1.
	Choice *int `json:"choice" validate:"omitnil,min=1,max=1000" example:"2" minimum:"1" maximum:"1000" extensions:"x-nullable"`
}

// replyToSession answers a question of a session.
//
//	@Summary		Answer a session's question
//	@Description	Tells an agent at work in the session what it asked back, in words or by the number of one of its options, and its work goes on. A token answers for what it asked for itself, one with `admin` for every task.
//	@ID				replyToSession
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			session_id	path	string	true	"The session's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			body		body	sessionReply	true	"The answer"
//	@Success		200	{object}	taskView	"The agent is told"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Failure		400	"Neither or both of reply and choice, no such option, or several questions and no task_id"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token asked for the task"
//	@Failure		404	"No such session"
//	@Failure		409	"Nothing of it waits for an answer, or that task does not"
//	@Router			/api/v1/sessions/{session_id}/reply [post]
func (s *Server) replyToSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "session_id")
	if err != nil {
		return err
	}
	var d sessionReply
	if _, err := s.decode(w, r, &d); err != nil {
		return err
	}
	v := input.Validate(d)
	if (d.Reply == nil) == (d.Choice == nil) {
		v.Add(errs.InvalidRequest, "/reply", "required", "one of reply and choice is required, and not both")
	}
	if err := v.Err(); err != nil {
		return err
	}
	if _, err := s.visibleSession(r, id); err != nil {
		return err
	}
	asked, err := s.orchestrator.Questions(r.Context(), id)
	if err != nil {
		return err
	}
	question, err := selectQuestion(asked, orZero(d.TaskID), id)
	if err != nil {
		return err
	}
	if err := requireOwner(caller(r), question.Task.Owner); err != nil {
		return err
	}
	text, err := d.text(question)
	if err != nil {
		return err
	}
	t, err := s.orchestrator.Reply(r.Context(), question.Task.ID, text)
	if err != nil {
		return err
	}
	return s.writeTaskChange(w, t)
}

// selectQuestion is the question that is answered: that of a task, or the only one.
func selectQuestion(asked []orchestrator.OpenQuestion, taskID, sessionID string) (orchestrator.OpenQuestion, error) {
	for _, a := range asked {
		if a.Task.ID == taskID {
			return a, nil
		}
	}
	switch {
	case taskID != "":
		return orchestrator.OpenQuestion{}, errs.New(errs.TaskState, "the session %q has no task %q that waits for an answer", sessionID, taskID)
	case len(asked) == 0:
		return orchestrator.OpenQuestion{}, errs.New(errs.TaskState, "nothing in the session %q waits for an answer", sessionID)
	case len(asked) > 1:
		var v errs.Violations
		v.Add(errs.InvalidRequest, "/task_id", "required", "task_id must say which of the %d questions is answered", len(asked))
		return orchestrator.OpenQuestion{}, v.Err()
	}
	return asked[0], nil
}

// text is the answer in words.
func (d sessionReply) text(q orchestrator.OpenQuestion) (string, error) {
	if d.Reply != nil {
		return *d.Reply, nil
	}
	if *d.Choice > len(q.Options) {
		var v errs.Violations
		v.Add(errs.InvalidRequest, "/choice", "max", "choice must be 1 to %s, the number of its options, not %d", strconv.Itoa(len(q.Options)), *d.Choice)
		return "", v.Err()
	}
	return q.Options[*d.Choice-1], nil
}
