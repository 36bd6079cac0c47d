package mcp

import (
	"net/http"
	"slices"

	"github.com/go-chi/cors"
)

// allowOrigins lets web pages of other origins read what they are answered (CORS), and answers the
// question that their browsers ask first, which has no token. Nobody else's is answered.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.Handler(cors.Options{
		AllowOriginFunc: func(_ *http.Request, origin string) bool { return slices.Contains(origins, origin) },
		AllowedMethods:  []string{http.MethodGet, http.MethodPost, http.MethodDelete},
		AllowedHeaders:  []string{"*"}, // which those of a protocol that goes on are
		ExposedHeaders:  []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate", "Retry-After", "X-Request-Id"},
		MaxAge:          600,
	})(next)
}
