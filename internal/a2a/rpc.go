package a2a

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// maxRPCID limits the id of a request, which each event of a stream repeats.
const maxRPCID = 256

// rpcRequest is a request of JSON-RPC 2.0.
type rpcRequest struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// rpcResponse is a response of JSON-RPC 2.0.
type rpcResponse struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// rpcError is an error of JSON-RPC 2.0.
type rpcError struct {
	Code    int         `json:"code"`
	Message string      `json:"message"`
	Data    []errorInfo `json:"data,omitempty"`
}

// serveRPC serves the JSON-RPC binding.
func (h *Handler) serveRPC(w http.ResponseWriter, r *http.Request) {
	req := rpcRequest{ID: json.RawMessage("null")}
	c, err := h.enter(w, r)
	if err == nil && r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.writeRPCError(w, req.ID, fail(errMethodNotAllowed, "%s does not accept %s; use POST", rpcPath, r.Method))
		return
	}
	var body []byte
	if err == nil || c != nil {
		var unread error
		if body, unread = h.readBody(w, r); unread != nil {
			err = unread
		}
	}
	if body != nil {
		id, invalid := req.read(body)
		if req.ID = id; invalid != nil {
			err = invalid
		}
	}
	if err != nil {
		h.writeRPCError(w, req.ID, err)
		return
	}
	operation, params := req.Method, camelCase(req.Params, 0)
	if c.legacy {
		operation, params, err = fromLegacy(req.Method, req.Params)
	}
	switch {
	case err != nil:
	case isStream(operation):
		err = h.serveStream(c, operation, params, func(e a2a.Event) any {
			return rpcResponse{Version: "2.0", ID: req.ID, Result: c.result(a2a.StreamResponse{Event: e})}
		})
		if err == nil {
			return
		}
	default:
		var result any
		if result, err = h.do(c, operation, params); err == nil {
			h.writeJSON(w, http.StatusOK, rpcResponse{Version: "2.0", ID: req.ID, Result: c.result(result)})
			return
		}
	}
	h.writeRPCError(w, req.ID, err)
}

// result returns a result in the version of the request. A result may be null.
func (c *call) result(v any) any {
	if c.legacy {
		v = toLegacy(v)
	}
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// read decodes a request and returns its id, null for none.
func (req *rpcRequest) read(body []byte) (id json.RawMessage, err error) {
	id = json.RawMessage("null")
	if err := checkJSON(body); err != nil {
		return id, err
	}
	if first := bytes.TrimSpace(body)[0]; first == '[' {
		return id, fail(a2a.ErrInvalidRequest, "batches are not supported; send one request of JSON-RPC 2.0")
	} else if first != '{' {
		return id, fail(a2a.ErrInvalidRequest, "the body must be an object, a request of JSON-RPC 2.0")
	}
	if err := json.Unmarshal(body, req); err != nil {
		return id, fail(a2a.ErrInvalidRequest, "the body must be one request of JSON-RPC 2.0: %s", shortError(err))
	}
	if sent := bytes.TrimSpace(req.ID); len(sent) > maxRPCID {
		return id, fail(a2a.ErrInvalidRequest, "id must have at most %d bytes", maxRPCID)
	} else if len(sent) > 0 && bytes.IndexByte([]byte(`"-0123456789`), sent[0]) >= 0 {
		id = sent
	} else if len(sent) > 0 && string(sent) != "null" {
		return id, fail(a2a.ErrInvalidRequest, "id must be a string or a number")
	}
	switch {
	case req.Version != "2.0":
		return id, fail(a2a.ErrInvalidRequest, "jsonrpc must be \"2.0\"")
	case req.Method == "":
		return id, fail(a2a.ErrInvalidRequest, "method is required")
	}
	return id, nil
}

// writeRPCError writes an error. Its HTTP status is 200, as JSON-RPC has it, unless the failure is one of HTTP.
func (h *Handler) writeRPCError(w http.ResponseWriter, id json.RawMessage, err error) {
	f, text := h.report(w, err)
	status := http.StatusOK
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		status = f.status
	}
	h.writeJSON(w, status, rpcResponse{Version: "2.0", ID: id, Error: &rpcError{Code: f.code, Message: text, Data: f.details()}})
}
