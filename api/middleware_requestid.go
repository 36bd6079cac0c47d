package api

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"comet/internal/requestid"
)

// maxRequestID is the longest id taken over from a client, in bytes.
const maxRequestID = 64

// requestIDs gives every request an id: the client's own X-Request-Id where it
// is short and plain, else a fresh one. It is in the context and in the answer.
// The record of accessLog goes into the same context, because each context of its
// own costs a copy of the request.
// The context also takes what accessLog will want to know.
func requestIDs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !plainID(id) {
			id = newID()
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(&accessRecord{Context: requestid.With(r.Context(), id)}))
	})
}

// plainID reports whether a client's id consists of 1 to maxRequestID of the
// characters A-Z a-z 0-9 . _ and -, which are safe in any log.
func plainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// newID returns a UUIDv7, or a random one should the clock fail.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}
