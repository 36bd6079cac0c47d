package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/validate"
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
	v := validate.Struct(d)
	var sessionContext json.RawMessage
	if d.Context != nil {
		if sessionContext = json.RawMessage(*d.Context); d.Context.Kind() != '{' {
			v.Add(errs.InvalidRequest, "/context", "object", "context must be a JSON object")
		}
	}
	if err := v.Err(); err != nil {
		return err
	}
	session, err := s.work.OpenSession(r.Context(), caller(r), orZero(d.ID), sessionContext)
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
	mine, limit, before := q.Bool("mine"), q.Int("limit", 1, maxLimit, defaultLimit), q.placeCursor()
	if err := q.Err(); err != nil {
		return err
	}
	sessions, err := s.work.Sessions(r.Context(), ownerOf(caller(r), mine), before, limit+1)
	if err != nil {
		return err
	}
	var page sessionList
	if len(sessions) > limit {
		sessions = sessions[:limit]
		page.NextCursor = placeCursor(models.TaskCursor{CreatedAt: sessions[limit-1].CreatedAt, ID: sessions[limit-1].ID})
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
	if err := refuseBody(r); err != nil {
		return err
	}
	session, err := s.visibleSession(r, id)
	if err == nil {
		err = mayChange(caller(r), session.Owner)
	}
	if err == nil {
		session, err = s.work.CloseSession(r.Context(), id)
	}
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newSessionView(session))
}

func sessionURL(id string) string { return sessionsPath + "/" + url.PathEscape(id) }
