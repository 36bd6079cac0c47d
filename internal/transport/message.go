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

// postMessage takes one message of an agent, or of somebody who may send messages (Chiffon
// §Authentication, "REST").
//
//	@Summary		Send a message
//	@Description	Takes one message of the envelope protocol, of up to 8 MiB. A token that is bound to an agent speaks as that agent, and `from_agent` is the agent's type. A token that is bound to none needs the scope `messages:send` and speaks as `orchestrator`: it asks for work. What an agent may say without a request of its own is `work_status`, `work_result` and `error`.
//	@Description
//	@Description	202 says that the effect is committed. A `work_request` is then a task, at `Location`; sent again with the same `request_id` it joins that task, and a different one under that id is 5003. With `Prefer: wait` the answer waits for the end of the work and is the `work_result`, or the `error` it ended with; so it is where the task has ended already.
//	@Description
//	@Description	Every failure is an `error` envelope that echoes `trace_id` and `request_id`, with the status of its code: 5001 504, 5002 503, 5003 400, 5004 401, 5005 429, 5006 422. 429 is also a token that asks too often (5002, of `orchestrator`), a queue that is full (5002) and an address that showed too many tokens that are not accepted (5004); 413 and 415 carry 5003.
//	@ID				sendMessage
//	@Tags			agent door
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth
//	@Param			Prefer	header	string			false	"For how many seconds the answer may wait for the end of the work, 60 at most; what cannot be read is passed over (RFC 7240)"	example(wait=30)
//	@Param			message	body	schema.Envelope	true	"The message"
//	@x-comet-example	{"protocol_version":"1.0","message_id":"550e8400-e29b-41d4-a716-446655440001","from_agent":"orchestrator","to_agent":"infra","timestamp":"2026-01-19T04:21:04Z","trace_id":"550e8400-e29b-41d4-a716-446655440002","request_id":"550e8400-e29b-41d4-a716-446655440003","type":"work_request","payload":{"task_id":"550e8400-e29b-41d4-a716-446655440004","work_type":"run_playbook","parameters":{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}},"hints":{"max_duration_seconds":300,"max_memory_mb":512}},"x_custom_fields":{}}
//	@Success		200	{object}	schema.WorkResultEnvelope	"The work has ended"
//	@Header			200	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{object}	schema.WorkStatusEnvelope	"Its effect is committed. A work_request is answered with a work_status, everything else with no body"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	"5003: the message breaks a rule"
//	@Failure		422	"5006: nobody of that type does such work, or the version is another"
//	@Failure		503	"5002: those who do such work are away, or comet cannot answer at the moment"
//	@Failure		504	"5001: every attempt was silent for too long"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/message [post]
func (l *Server) postMessage(w http.ResponseWriter, r *http.Request, who caller) error {
	if err := maySend(who.Principal); err != nil {
		return err
	}
	wait, asked := preferredWait(r.Header.Values("Prefer"))
	raw, err := readBody(w, r, MaxMessageBytes)
	if err != nil {
		return err
	}
	extendDeadlines(w, wait)
	ctx, stop := l.waitContext(r.Context(), wait)
	defer stop()
	l.metrics.countReceived("http")
	a := l.defaultProtocol.Receive(ctx, who.Principal, raw, wait)
	if asked && !a.IsError {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	writeReply(w, a)
	return nil
}

// maySend returns errs.MissingScope for somebody who is no agent and may not send for
// others.
func maySend(p models.Principal) error {
	if p.AgentID != nil || p.Has(models.ScopeMessagesSend) {
		return nil
	}
	return errs.New(errs.MissingScope, "the token %q lacks the scope %q and is bound to no agent", p.Name, models.ScopeMessagesSend).
		With("scope", models.ScopeMessagesSend)
}

// waitContext returns the context of a request that may wait. Once the lines are drained,
// it has only the time to come to its end.
func (l *Server) waitContext(parent context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, wait+bodyTimeout)
	stop := func() bool { return true }
	if wait > 0 {
		stop = context.AfterFunc(l.connections.accepting, func() { time.AfterFunc(l.opts.CloseTimeout/2, cancel) })
	}
	return ctx, func() {
		stop()
		cancel()
	}
}

// preferredWait reads "wait=N" of Prefer (RFC 7240 §4.3), in seconds, at most maxWait.
// What cannot be read is passed over, as the RFC wants it.
func preferredWait(lines []string) (wait time.Duration, asked bool) {
	for preference := range strings.SplitSeq(strings.Join(lines, ","), ",") {
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
