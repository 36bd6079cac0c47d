package transport

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/protocol"
	"comet/internal/requestid"
	"comet/models"
)

// Limits of a request that contains one message per line.
const (
	maxBatchMessages = 1000
	maxBatchBytes    = 1 << 20
)

// sendMessage receives one message of an agent or of a client that may send messages
// (Chiffon §Authentication, "REST").
//
//	@Summary		Send a message
//	@Description	Receives a message of the protocol that `Content-Type` selects, the envelope protocol by default, which is described here: one message of up to 8 MiB. A token bound to an agent sends as that agent, and `from_agent` must be the agent's type. A token that is not bound to an agent needs the scope `messages:send` and sends as `orchestrator`: it submits tasks. Without that scope an agent may send `work_status`, `work_result` and `error`.
//	@Description
//	@Description	202 means that the effect is committed. A `work_request` is then a task, at `Location`. The same request sent again with the same `request_id` refers to that task; a different request with that id is 5003. With `Prefer: wait` the response waits for the end of the task and is the `work_result`, or the `error` it ended with; the same holds if the task has already ended.
//	@Description
//	@Description	Every failure is an `error` envelope that echoes `trace_id` and `request_id`, with the status of its code: 5001 504, 5002 503, 5003 400, 5004 401, 5005 429, 5006 422. 429 is also sent for a token that exceeds its rate limit (5002, of `orchestrator`), a full queue (5002) and an address that sent too many rejected tokens (5004); 413 and 415 carry 5003, and 408 (the body arrived too slowly) carries 5002.
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
//	@Router			/api/agent/message [post]
func (s *Server) sendMessage(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error {
	return s.receiveMessages(w, r, from, nil)
}

// receiveMessages receives the messages of a request and responds with their replies. If every
// message is refused, the status is that of the first one, otherwise that of the last accepted one.
// The content type selects the protocol if proto is nil.
func (s *Server) receiveMessages(w http.ResponseWriter, r *http.Request, from httpkit.Identity, proto *describedProtocol) error {
	if err := maySend(from.Principal); err != nil {
		return err
	}
	var err error
	if proto == nil {
		if proto, err = s.protocols.forContentType(r.Header.Get("Content-Type")); err != nil {
			return err
		}
	}
	wait, preferred, _ := httpkit.PreferredWait(r, maxWait) // RFC 7240 ignores a malformed value
	messages, err := readMessages(w, r, proto)
	if err != nil {
		return err
	}
	if wantsStream(r, proto) && len(messages) == 1 {
		return s.streamReplies(w, r, from, proto, messages[0])
	}
	extendDeadlines(w, wait)
	ctx, stop := s.waitContext(r.Context(), wait)
	defer stop()
	deadline := time.Now().Add(wait)
	peer := protocol.Peer{Principal: from.Principal, Transport: "http", Trace: httpkit.Traceparent(r)}
	client := httpkit.ClientPrefix(r)
	var out protocol.Reply
	var firstStatus int
	refused, accepted, throttled := true, false, false
	pipeline := newPipeline()
	for i, raw := range messages {
		order := proto.Order(raw)
		if wait > 0 || len(messages) == 1 { // the messages share the time to wait
			order = protocol.Order{}
		}
		err := pipeline.add(ctx, order, len(raw), func(placed func(bool)) func() {
			s.metrics.countReceived(peer.Transport)
			ctx := ctx
			if len(messages) > 1 {
				ctx = requestid.With(ctx, requestid.From(ctx))
			}
			remaining := wait
			if i > 0 {
				remaining = max(time.Until(deadline), 0)
			}
			var reply protocol.Reply
			if throttled { // after too many invalid signatures
				reply = proto.Refuse(errTooManyBadSignatures(s.authenticator.AddressWait(client)), raw)
			} else {
				reply = proto.Receive(background.WithPlacement(ctx, placed), peer, raw, remaining)
				if reply.BadSignature && s.authenticator.CountBadSignature(client, peer.AgentID(), from.Token) {
					throttled = true // before the next message begins, because this one has no effect
				}
			}
			return func() {
				failed := reply.IsError || reply.Status >= http.StatusBadRequest // the message was accepted but its task has failed
				if refused = refused && failed; firstStatus == 0 {
					firstStatus, out.RetryAfter = reply.Status, reply.RetryAfter
				}
				if !reply.IsError {
					accepted = true
				}
				if !reply.IsError || reply.Location != "" {
					out.Location = reply.Location
				}
				if !failed {
					out.Status, out.RetryAfter = reply.Status, 0
				}
				out.ContentType, out.Body = reply.ContentType, append(out.Body, reply.Body...)
				if !proto.info.Framed {
					out.Body = append(out.Body, '\n')
				}
			}
		})
		if err != nil { // the client has disconnected
			break
		}
	}
	pipeline.running.Wait()
	if refused {
		out.Status = firstStatus
	}
	if preferred && accepted {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	writeReply(w, out)
	return nil
}

// readMessages reads the messages of a request: one, or one per line in a protocol without frames.
// The errors are those of httpkit.ReadBody.
func readMessages(w http.ResponseWriter, r *http.Request, proto *describedProtocol) (messages [][]byte, err error) {
	rules := httpkit.BodyRules{Limit: MaxMessageBytes, MediaTypes: proto.info.ContentTypes, TypeOptional: true}
	if !proto.info.Framed {
		rules.Limit, rules.MediaTypes = maxBatchBytes, slices.Concat(proto.info.ContentTypes, []string{contentTypeForm})
	}
	raw, _, err := httpkit.ReadBody(w, r, rules)
	if err != nil || proto.info.Framed {
		return [][]byte{raw}, err
	}
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			messages = append(messages, line)
		}
	}
	switch {
	case len(messages) == 0:
		return nil, errs.New(errs.InvalidRequest, "there is no message; send one per line")
	case len(messages) > maxBatchMessages:
		return nil, errs.New(errs.InvalidRequest, "there are %d messages; the limit of a request is %d", len(messages), maxBatchMessages)
	}
	return messages, nil
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
	if wait == 0 {
		return ctx, cancel
	}
	stop := context.AfterFunc(s.connections.accepting, func() { time.AfterFunc(s.opts.CloseTimeout/2, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}
