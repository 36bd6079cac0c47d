package transport

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// postMessage receives one message of an agent or of a client that may send messages (Chiffon
// §Authentication, "REST").
//
//	@Summary		Send a message
//	@Description	Receives one message of the envelope protocol, of up to 8 MiB. A token bound to an agent sends as that agent, and `from_agent` must be the agent's type. A token that is not bound to an agent needs the scope `messages:send` and sends as `orchestrator`: it submits tasks. Without that scope an agent may send `work_status`, `work_result` and `error`.
//	@Description
//	@Description	202 means that the effect is committed. A `work_request` is then a task, at `Location`. The same request sent again with the same `request_id` refers to that task; a different request with that id is 5003. With `Prefer: wait` the response waits for the end of the task and is the `work_result`, or the `error` it ended with; the same holds if the task has already ended.
//	@Description
//	@Description	Every failure is an `error` envelope that echoes `trace_id` and `request_id`, with the status of its code: 5001 504, 5002 503, 5003 400, 5004 401, 5005 429, 5006 422. 429 is also sent for a token that exceeds its rate limit (5002, of `orchestrator`), a full queue (5002) and an address that sent too many rejected tokens (5004); 413 and 415 carry 5003.
//	@ID				sendMessage
//	@Tags			agent connections
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth
//	@Param			Prefer	header	string			false	"How many seconds to wait for the end of the task, 60 at most; a malformed value is ignored (RFC 7240)"	example(wait=30)
//	@Param			message	body	schema.Envelope	true	"The message"
//	@x-comet-example	{"protocol_version":"1.0","message_id":"550e8400-e29b-41d4-a716-446655440001","from_agent":"orchestrator","to_agent":"infra","timestamp":"2026-01-19T04:21:04Z","trace_id":"550e8400-e29b-41d4-a716-446655440002","request_id":"550e8400-e29b-41d4-a716-446655440003","type":"work_request","payload":{"task_id":"550e8400-e29b-41d4-a716-446655440004","work_type":"run_playbook","parameters":{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}},"hints":{"max_duration_seconds":300,"max_memory_mb":512}},"x_custom_fields":{}}
//	@Success		200	{object}	schema.WorkResultEnvelope	"The task has ended"
//	@Header			200	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{object}	schema.WorkStatusEnvelope	"The effect is committed. The response to a work_request is a work_status; other messages get no body"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	"5003: the message is invalid"
//	@Failure		422	"5006: no agent of that type offers the work type, or the protocol version is not supported"
//	@Failure		503	"5002: the agents that offer the work type are offline, or comet is temporarily unavailable"
//	@Failure		504	"5001: every attempt timed out"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/message [post]
func (s *Server) postMessage(w http.ResponseWriter, r *http.Request, from caller) error {
	if err := maySend(from.Principal); err != nil {
		return err
	}
	wait, preferred := preferredWait(r.Header.Values("Prefer"))
	raw, err := readBody(w, r, MaxMessageBytes)
	if err != nil {
		return err
	}
	extendDeadlines(w, wait)
	ctx, stop := s.waitContext(r.Context(), wait)
	defer stop()
	s.metrics.countReceived("http")
	reply := s.defaultProtocol.Receive(ctx, from.Principal, raw, wait)
	if preferred && !reply.IsError {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	writeReply(w, reply)
	return nil
}

// maySend returns errs.MissingScope for a client that is no agent and lacks the scope
// messages:send.
func maySend(p models.Principal) error {
	if p.AgentID != nil || p.Has(models.ScopeMessagesSend) {
		return nil
	}
	return errs.New(errs.MissingScope, "the token %q lacks the scope %q and is bound to no agent", p.Name, models.ScopeMessagesSend).
		With("scope", models.ScopeMessagesSend)
}

// waitContext returns the context of a request that may wait. After Drain it ends soon.
func (s *Server) waitContext(parent context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, wait+bodyTimeout)
	stop := func() bool { return true }
	if wait > 0 {
		stop = context.AfterFunc(s.connections.accepting, func() { time.AfterFunc(s.opts.CloseTimeout/2, cancel) })
	}
	return ctx, func() {
		stop()
		cancel()
	}
}

// preferredWait parses "wait=N" of the Prefer header (RFC 7240 §4.3), in seconds, at most maxWait.
// Values that cannot be parsed are ignored, as the RFC requires.
func preferredWait(values []string) (wait time.Duration, preferred bool) {
	for preference := range strings.SplitSeq(strings.Join(values, ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, ok := strings.Cut(preference, "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if err == nil {
			return min(time.Duration(n)*time.Second, maxWait), true
		}
	}
	return 0, false
}
