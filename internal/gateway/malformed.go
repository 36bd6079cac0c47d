package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// defaultMaxBody is the longest request in bytes where nothing else is said: what the SDK has.
const defaultMaxBody = 4 << 20

// wellFormed answers what is no JSON, or no message of JSON-RPC, with the errors that the
// document names (AgentCards, “Codes d'erreur”: PARSE_ERROR, INVALID_REQUEST). The SDK says it
// in plain text, which a client cannot tell from the answer of something in between.
func wellFormed(next http.Handler, most int64) http.Handler {
	if most <= 0 {
		most = defaultMaxBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			http.Error(w, "the request is too long", http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the request cannot be read", http.StatusBadRequest)
			return
		}
		if bad := malformed(body); bad != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": nil, "error": bad})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// malformed is what is wrong with a body, nil for nothing. What is in a batch, which only the
// oldest revision of the path has, the SDK looks at.
func malformed(body []byte) *jsonrpc.Error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) > 0 && trimmed[0] == '[' && json.Valid(trimmed) {
		return nil
	}
	_, err := jsonrpc.DecodeMessage(body)
	switch {
	case err == nil:
		return nil
	case !json.Valid(body):
		return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the request is no JSON"}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the request is no message of JSON-RPC 2.0: " + clip(err.Error())}
}
