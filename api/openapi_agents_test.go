package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/httpkit"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/transport"
	"comet/models"
)

// envelopeOf is a message that asks for work, with members changed or, where they are nil,
// left out.
func envelopeOf(t *testing.T, changes map[string]any) string {
	t.Helper()
	m := map[string]any{
		"protocol_version": "1.0", "message_id": uuid.NewString(), "trace_id": uuid.NewString(), "request_id": uuid.NewString(),
		"from_agent": "orchestrator", "to_agent": "orchestrator", "timestamp": "2026-01-19T04:21:04Z", "type": "work_request",
		"payload": map[string]any{"task_id": uuid.NewString(), "work_type": "read", "parameters": map[string]any{"a": 1}},
	}
	for name, value := range changes {
		if m[name] = value; value == nil {
			delete(m, name)
		}
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	return string(text)
}

// TestAgentResponsesMatchTheDescription makes requests of agents, and of a client that
// asks for work, and holds every answer against the description.
func TestAgentResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const message, inbox, ack, push = "/api/agent/message", "/api/agent/inbox", "/api/agent/inbox/ack", "/api/agent/push"
	d := newTaskServer(t)
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("reader"), AgentID: new("reader"), Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
	require.NoError(t, err)
	agent, client, reader := issued.Secret, d.admin, d.token(t, models.ScopeAgentsRead)
	for _, c := range []struct {
		method, path, query, token, body, kind string
		status                                 int
	}{
		{"post", message, "", client, envelopeOf(t, nil), "", 202},
		{"post", message, "", client, envelopeOf(t, map[string]any{"message_id": "x", "payload": nil}), "", 400},
		{"post", message, "", client, "{", "", 400},
		{"post", message, "", client, envelopeOf(t, map[string]any{"protocol_version": "9.0"}), "", 422},
		{"post", message, "", client, envelopeOf(t, map[string]any{"payload": map[string]any{"task_id": uuid.NewString(), "work_type": "fly", "parameters": map[string]any{}}}), "", 422},
		{"post", message, "", client, envelopeOf(t, nil), "application/xml", 415},
		{"post", message, "", client, strings.Repeat(" ", transport.MaxMessageBytes+1), "", 413},
		{"post", message, "", reader, envelopeOf(t, nil), "", 401},
		{"post", message, "", "wrong", envelopeOf(t, nil), "", 401},
		{"get", inbox, "", agent, "", "", 200},
		{"get", inbox, "?wait=x", agent, "", "", 400},
		{"get", inbox, "?versions=9.0", agent, "", "", 422},
		{"get", inbox, "", client, "", "", 401},
		{"post", ack, "", agent, `{"message_ids":["x"]}`, "", 200},
		{"post", ack, "", agent, `{"message_ids":1}`, "", 400},
		{"put", push, "", agent, `{"url":"https://agent.example/in","concurrency":2}`, "", 200},
		{"put", push, "", agent, `{"url":"https://127.0.0.1/in"}`, "", 400},
		{"get", push, "", agent, "", "", 200},
		{"delete", push, "", agent, "", "", 204},
		{"get", push, "", agent, "", "", 404},
		{"get", "/api/agent/connect", "", agent, "", "", 426},
		{"get", "/api/agent/stream", "?concurrency=0", agent, "", "", 400},
		{"get", "/api/agent/stream", "", client, "", "", 401},
	} {
		where := c.method + " " + c.path + c.query + " " + strconv.Itoa(c.status)
		header := http.Header{}
		if c.kind != "" {
			header.Set("Content-Type", c.kind)
		}
		status, got, body := d.send(t, strings.ToUpper(c.method), c.path+c.query, c.token, c.body, header)
		require.Equal(t, c.status, status, "%s: %s", where, body)
		r, ok := d.doc.Paths[c.path][c.method].Responses[strconv.Itoa(status)]
		require.True(t, ok, "%s is not described", where)
		if r.Ref != "" {
			r = d.doc.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
		}
		d.doc.holds(t, where, r, got, body)
	}
}

// TestRateLimitCountsForAllEndpoints: the limit of a token covers REST and the agents' endpoints,
// and the access log has the token of both.
func TestRateLimitCountsForAllEndpoints(t *testing.T) {
	t.Parallel()
	d := newDescribedServer(t)
	var log bytes.Buffer
	limits := httpkit.NewLimits(&httpkit.LimitOptions{RateLimit: 2, RateWindow: time.Hour})
	lines := transport.New(transport.Core{
		Work: d.core.Orchestrator, Auth: d.auth, Protocols: []protocol.Protocol{envelope.New(d.core.Orchestrator, nil)},
	}, &transport.Options{Limits: limits})
	server := New(d.core, &Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Limits: limits, MountPublic: lines.Mount, Untimed: lines.IsStreaming,
	})
	d.Server = server
	issued, err := d.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("ci"), Scopes: []models.Scope{models.ScopeAdmin}}, nil)
	require.NoError(t, err)

	status, header, _ := d.send(t, "POST", "/api/agent/message", issued.Secret, "{", nil)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "1", header.Get("RateLimit-Remaining"))
	require.Contains(t, log.String(), "token_id="+issued.Token.ID)
	require.Contains(t, log.String(), "route=/api/agent/message")

	status, header, _ = d.send(t, "GET", "/api/v1/me", issued.Secret, "", nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "0", header.Get("RateLimit-Remaining"))

	status, header, body := d.send(t, "POST", "/api/agent/message", issued.Secret, envelopeOf(t, nil), nil)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.NotEmpty(t, header.Get("Retry-After"))
	require.Contains(t, string(body), `"error_code":5002`)
	status, _, _ = d.send(t, "GET", "/api/v1/me", issued.Secret, "", nil)
	require.Equal(t, http.StatusTooManyRequests, status)
}
