package a2a

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// route is an operation of the HTTP+JSON binding (A2A 1.0 §11.3).
type route struct {
	operation string
	// params are those of the path, and query the names of parameters in the query.
	params map[string]any
	query  []string
	// body is set for a request with a body.
	body bool
}

// find returns the route of a path below restPath, which may begin with a tenant.
func findRoute(method, path string) (rt route, tenant string, err error) {
	missing := fail(a2a.ErrMethodNotFound, "there is no %s %s/%s", method, restPath, path)
	parts := strings.Split(path, "/")
	if roots := []string{"message:send", "message:stream", "tasks", "extendedAgentCard"}; len(parts) > 1 && !slices.Contains(roots, parts[0]) {
		tenant, parts = parts[0], parts[1:]
	}
	get, post := method == http.MethodGet, method == http.MethodPost
	switch rest := strings.Join(parts, "/"); {
	case rest == "message:send" && post:
		return route{operation: "SendMessage", body: true}, tenant, nil
	case rest == "message:stream" && post:
		return route{operation: "SendStreamingMessage", body: true}, tenant, nil
	case rest == "extendedAgentCard" && get:
		return route{operation: "GetExtendedAgentCard"}, tenant, nil
	case rest == "tasks" && get:
		return route{operation: "ListTasks", query: []string{"contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter", "includeArtifacts"}}, tenant, nil
	case parts[0] != "tasks" || len(parts) < 2 || parts[1] == "":
		return rt, tenant, missing
	}
	id := parts[1]
	if len(parts) > 2 {
		rt, err = pushRoute(method, id, parts[2:])
		if err != nil {
			err = missing
		}
		return rt, tenant, err
	}
	if of, cancels := strings.CutSuffix(id, ":cancel"); cancels && post {
		return route{operation: "CancelTask", params: map[string]any{"id": of}}, tenant, nil
	}
	if of, subscribes := strings.CutSuffix(id, ":subscribe"); subscribes && (get || post) {
		return route{operation: "SubscribeToTask", params: map[string]any{"id": of}}, tenant, nil
	}
	if get {
		return route{operation: "GetTask", params: map[string]any{"id": id}, query: []string{"historyLength"}}, tenant, nil
	}
	return rt, tenant, missing
}

// pushRoute returns the route of the configurations of push notifications of a task.
func pushRoute(method, taskID string, parts []string) (route, error) {
	params := map[string]any{"taskId": taskID}
	if len(parts) == 2 {
		params["id"] = parts[1]
	}
	switch {
	case parts[0] != "pushNotificationConfigs" || len(parts) > 2:
	case len(parts) == 1 && method == http.MethodPost:
		return route{operation: "CreateTaskPushNotificationConfig", params: params, body: true}, nil
	case len(parts) == 1 && method == http.MethodGet:
		return route{operation: "ListTaskPushNotificationConfigs", params: params}, nil
	case len(parts) == 2 && method == http.MethodGet:
		return route{operation: "GetTaskPushNotificationConfig", params: params}, nil
	case len(parts) == 2 && method == http.MethodDelete:
		return route{operation: "DeleteTaskPushNotificationConfig", params: params}, nil
	}
	return route{}, a2a.ErrMethodNotFound
}

// serveREST serves the HTTP+JSON binding, which only version 1.0 has here.
func (h *Handler) serveREST(w http.ResponseWriter, r *http.Request, path string) {
	c, err := h.enter(w, r)
	if err == nil && c.legacy {
		err = fail(a2a.ErrVersionNotSupported, "HTTP+JSON needs the header A2A-Version: 1.0; version 0.3 is available over JSON-RPC at %s", rpcPath)
	}
	var rt route
	var params []byte
	if err == nil {
		if rt, params, err = h.restParams(w, r, path); err == nil && isStream(rt.operation) {
			if err = h.serveStream(c, rt.operation, params, func(e a2a.Event) any { return a2a.StreamResponse{Event: e} }); err == nil {
				return
			}
		}
	}
	if err == nil {
		var result any
		if result, err = h.do(c, rt.operation, params); err == nil {
			if result == nil {
				result = struct{}{}
			}
			h.writeJSON(w, http.StatusOK, result)
			return
		}
	}
	h.writeError(w, err)
}

// restParams returns the route of a request and its parameters as one object.
func (h *Handler) restParams(w http.ResponseWriter, r *http.Request, path string) (rt route, params []byte, err error) {
	rt, tenant, err := findRoute(r.Method, path)
	if err != nil {
		return rt, nil, err
	}
	members := map[string]any{}
	if rt.body {
		body, err := h.readBody(w, r)
		if err != nil {
			return rt, nil, err
		}
		if !json.Valid(body) {
			return rt, nil, fail(a2a.ErrParseError, "the body is not JSON")
		}
		sent, err := decode[map[string]json.RawMessage](camelCase(body, 0))
		if err != nil {
			return rt, nil, err
		}
		for name, value := range sent {
			members[name] = value
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return rt, nil, fail(a2a.ErrInvalidParams, "the query is malformed")
	}
	for _, name := range rt.query {
		if text := query.Get(name); text != "" {
			members[name] = queryValue(name, text)
		}
	}
	for name, value := range rt.params {
		members[name] = value
	}
	if tenant != "" {
		members["tenant"] = tenant
	}
	params, err = json.Marshal(members)
	return rt, params, err
}

// queryValue returns a parameter of the query as JSON has it. A value of another type stays text, which decode rejects.
func queryValue(name, text string) any {
	switch name {
	case "pageSize", "historyLength":
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return n
		}
	case "includeArtifacts":
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	}
	return text
}

// restError is an error of HTTP+JSON (AIP-193).
type restError struct {
	Error struct {
		Code    int         `json:"code"`
		Status  string      `json:"status"`
		Message string      `json:"message"`
		Details []errorInfo `json:"details,omitempty"`
	} `json:"error"`
}

// writeError writes an error of HTTP+JSON.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	f, text := h.report(w, err)
	var out restError
	out.Error.Code, out.Error.Status, out.Error.Message, out.Error.Details = f.status, f.grpc, text, f.details()
	h.writeJSON(w, f.status, out)
}
