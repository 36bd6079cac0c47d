package api

import "net/http"

// securityHeaders keeps browsers from guessing types and caches from sharing what
// a token could see: an answer may be kept, but is asked for again (If-None-Match)
// before it is used. Answers with secrets say no-store themselves.
func securityHeaders(next http.Handler) http.Handler {
	nosniff, cache := []string{"nosniff"}, []string{"private, no-cache"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"] = nosniff
		h["Cache-Control"] = cache
		next.ServeHTTP(w, r)
	})
}
