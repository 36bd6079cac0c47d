package a2a

import (
	"encoding/json"
	"maps"
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

// routes returns the operations of a path below restPath by their HTTP methods, none for an unknown path. The path may begin with a
// tenant.
func routes(path string) (all map[string]route, tenant string) {
	parts := strings.Split(path, "/")
	if roots := []string{"message:send", "message:stream", "tasks", "extendedAgentCard"}; len(parts) > 1 && !slices.Contains(roots, parts[0]) {
		tenant, parts = parts[0], parts[1:]
	}
	switch rest := strings.Join(parts, "/"); {
	case rest == "message:send":
		return map[string]route{http.MethodPost: {operation: "SendMessage", body: true}}, tenant
	case rest == "message:stream":
		return map[string]route{http.MethodPost: {operation: "SendStreamingMessage", body: true}}, tenant
	case rest == "extendedAgentCard":
		return map[string]route{http.MethodGet: {operation: "GetExtendedAgentCard"}}, tenant
	case rest == "tasks":
		return map[string]route{http.MethodGet: {operation: "ListTasks", query: []string{"contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter", "includeArtifacts"}}}, tenant
	case parts[0] == "tasks" && parts[1] != "":
		return taskRoutes(parts[1], parts[2:]), tenant
	}
	return nil, tenant
}

// taskRoutes returns the operations on a task, and on its configurations of push notifications.
func taskRoutes(id string, rest []string) map[string]route {
	task, action, acts := strings.Cut(id, ":")
	one := map[string]any{"id": task}
	switch configs := map[string]any{"taskId": id}; {
	case len(rest) == 0 && !acts:
		return map[string]route{http.MethodGet: {operation: "GetTask", params: one, query: []string{"historyLength"}}}
	case len(rest) == 0 && action == "cancel":
		return map[string]route{http.MethodPost: {operation: "CancelTask", params: one}}
	case len(rest) == 0 && action == "subscribe":
		subscribe := route{operation: "SubscribeToTask", params: one}
		return map[string]route{http.MethodGet: subscribe, http.MethodPost: subscribe}
	case len(rest) == 0 || len(rest) > 2 || rest[0] != "pushNotificationConfigs":
	case len(rest) == 1:
		return map[string]route{
			http.MethodPost: {operation: "CreateTaskPushNotificationConfig", params: configs, body: true},
			http.MethodGet:  {operation: "ListTaskPushNotificationConfigs", params: configs},
		}
	default:
		configs["id"] = rest[1]
		return map[string]route{
			http.MethodGet:    {operation: "GetTaskPushNotificationConfig", params: configs},
			http.MethodDelete: {operation: "DeleteTaskPushNotificationConfig", params: configs},
		}
	}
	return nil
}

// findRoute returns the route of a request. If its path has only other methods, it sets Allow.
func findRoute(w http.ResponseWriter, r *http.Request, path string) (rt route, tenant string, err error) {
	all, tenant := routes(path)
	rt, known := all[r.Method]
	switch allowed := strings.Join(slices.Sorted(maps.Keys(all)), ", "); {
	case len(all) == 0:
		err = fail(a2a.ErrMethodNotFound, "there is no %s/%s; docs/a2a.md lists the paths", restPath, path)
	case !known:
		w.Header().Set("Allow", allowed)
		err = fail(errMethodNotAllowed, "%s/%s does not accept %s; use %s", restPath, path, r.Method, allowed)
	}
	return rt, tenant, err
}

// serveREST serves the HTTP+JSON binding, which only version 1.0 has here.
func (h *Handler) serveREST(w http.ResponseWriter, r *http.Request, path string) {
	c, err := h.enter(w, r)
	var rt route
	var tenant string
	if c != nil {
		var unknown error
		if rt, tenant, unknown = findRoute(w, r, path); unknown != nil {
			err = unknown
		}
	}
	if err == nil && c.legacy {
		err = fail(a2a.ErrVersionNotSupported, "HTTP+JSON needs the header A2A-Version: 1.0; version 0.3 is available over JSON-RPC at %s", rpcPath)
	}
	var params []byte
	if err == nil {
		if params, err = h.restParams(w, r, rt, tenant); err == nil && isStream(rt.operation) {
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

// restParams returns the parameters of a request as one object.
func (h *Handler) restParams(w http.ResponseWriter, r *http.Request, rt route, tenant string) (params []byte, err error) {
	members := map[string]any{}
	if rt.body {
		body, err := h.readBody(w, r)
		if err != nil {
			return nil, err
		}
		if err := checkJSON(body); err != nil {
			return nil, err
		}
		sent, err := decode[map[string]json.RawMessage](camelCase(body, 0))
		if err != nil {
			return nil, err
		}
		for name, value := range sent {
			members[name] = value
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(a2a.ErrInvalidParams, "the query is malformed: %s", err.Error())
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
	return json.Marshal(members)
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
