package api

import (
	"net/http"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

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

// sees reports whether the caller sees what the token with the id asked for.
func sees(p models.Principal, owner string) bool {
	return p.Has(models.ScopeTasksRead) || owner == p.TokenID
}

// ownerOf is whose tasks or sessions a list shows, "" for everybody's.
func ownerOf(p models.Principal, mine bool) string {
	if mine || !p.Has(models.ScopeTasksRead) {
		return p.TokenID
	}
	return ""
}

// mayChange returns errs.MissingScope for what the caller sees and did not ask for.
func mayChange(p models.Principal, owner string) error {
	if owner == p.TokenID {
		return nil
	}
	return auth.Require(p, models.ScopeAdmin)
}

// visibleTask returns a task that the caller sees.
func (s *Server) visibleTask(r *http.Request, id string) (models.Task, error) {
	t, err := s.work.Task(r.Context(), id)
	if err == nil && !sees(caller(r), t.Owner) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// changeable returns no error for a task that the caller may change.
func (s *Server) changeable(r *http.Request, id string) error {
	t, err := s.visibleTask(r, id)
	if err == nil {
		err = mayChange(caller(r), t.Owner)
	}
	return err
}

// visibleSession returns a session that the caller sees.
func (s *Server) visibleSession(r *http.Request, id string) (models.Session, error) {
	session, err := s.work.Session(r.Context(), id)
	if err == nil && !sees(caller(r), session.Owner) {
		err = errs.New(errs.NotFound, "there is no session %q", id)
	}
	return session, err
}
