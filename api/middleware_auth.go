package api

import (
	"context"
	"net/http"
	"strings"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// authenticate lets requests with a valid bearer token through and puts who they
// come from into their context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		secret, err := bearer(r.Header["Authorization"])
		if err != nil {
			return err
		}
		p, err := s.auth.Verify(r.Context(), secret)
		if err != nil {
			return err
		}
		noteToken(r.Context(), p.TokenID)
		next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
		return nil
	})
}

// bearer reads the token of an Authorization header (RFC 6750 §2.1).
func bearer(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", errs.New(errs.Unauthenticated, "send a token as \"Authorization: Bearer <token>\"")
	}
	scheme, secret, ok := strings.Cut(lines[0], " ")
	secret = strings.TrimSpace(secret)
	if len(lines) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > models.MaxTokenLength {
		return "", errs.New(errs.Unauthenticated, "the Authorization header must be \"Bearer <token>\"")
	}
	return secret, nil
}

// require lets callers with the scope through.
func (s *Server) require(scope models.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return s.handle(func(w http.ResponseWriter, r *http.Request) error {
			if err := auth.Require(caller(r), scope); err != nil {
				return err
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

func principalFrom(ctx context.Context) models.Principal {
	p, _ := auth.From(ctx)
	return p
}
