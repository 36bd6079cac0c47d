package transport

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

const (
	v5Root          = "/api/v5/"
	contentTypeText = "text/plain"
	contentTypeForm = "application/x-www-form-urlencoded" // curl's default
	// maxV5Messages is how many messages one request may contain, and maxV5Body their total length
	// in bytes.
	maxV5Messages = 1000
	maxV5Body     = 1 << 20
)

// unframedProtocol returns the protocol whose messages are lines of text, nil for none.
func (s *Server) unframedProtocol() protocol.Protocol {
	i := slices.IndexFunc(s.core.Protocols, protocol.Protocol.Unframed)
	if i < 0 {
		return nil
	}
	return s.core.Protocols[i]
}

// postV5Messages receives messages of PROTOCOL_V5, one per line.
//
//	@Summary		Send PROTOCOL_V5 messages
//	@Description	Receives one message per line, up to 1,000 messages and 1 MiB, processes them in order and responds with one line for each. A token bound to an agent sends as that agent, `W<n>`. A token that is not bound to an agent needs the scope `messages:send` and sends as `User`: it submits tasks to O1 with `R`. Empty lines are ignored. A line of eight segments, which is PROTOCOL_V4, gets a response of eight segments.
//	@Description
//	@Description	With `Prefer: wait` the response to an `R` has a second line once the task has ended (`S`, `E`) or the worker asks a question (`D`). A refused message gets an `E` with the document's code. If every message is refused, the status is that of the first: E10 to E16 400, E15 409, E17 and E31 429, E19 422, E2x 504, E30 and E32 503, E33 and E4x 404, E90 401, E99 500; for an E from a worker, 502 instead of 401 and 500. Otherwise the status is that of the last accepted message, 200 or 202.
//	@ID				sendV5Messages
//	@Tags			agent connections
//	@Accept			plain
//	@Produce		plain
//	@Security		BearerAuth
//	@Param			Prefer	header	string	false	"How many seconds to wait for the end of the tasks, 60 at most in total (RFC 7240)"	example(wait=30)
//	@Param			traceparent	header	string	false	"The W3C trace context of the submitted tasks; an invalid one is ignored"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			lines	body	string	true	"The messages"	example(M1|User>O1|R|-|P1|N|-|0|-|B500|call=web_search;query=AI)
//	@Success		200	{string}	string	"The responses, one per line"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{string}	string	"The responses; the last accepted message submitted a task"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	{string}	string	"E10 to E16: no message was accepted"
//	@x-comet-failures	"line"
//	@Router			/api/v5/messages [post]
func (s *Server) postV5Messages(proto protocol.Protocol) handler {
	return func(w http.ResponseWriter, r *http.Request, from caller) error {
		if err := maySend(from.Principal); err != nil {
			return err
		}
		wait, preferred := preferredWait(r.Header.Values("Prefer"))
		messages, err := readLines(w, r)
		if err != nil {
			return err
		}
		extendDeadlines(w, wait)
		ctx, stop := s.waitContext(r.Context(), wait)
		defer stop()
		deadline := time.Now().Add(wait)
		ctx = protocol.WithTrace(ctx, r.Header["Traceparent"])
		receive := s.messageReceiver(proto, from, clientPrefix(r))
		var out protocol.Reply
		var first int // the status of the first message, used if all are refused
		refused, accepted := true, false
		for _, msg := range messages {
			s.metrics.countReceived("http")
			reply := receive(ctx, msg, max(time.Until(deadline), 0))
			failed := reply.IsError || reply.Status >= http.StatusBadRequest // the message was accepted but its task has failed
			if refused = refused && failed; first == 0 {
				first, out.RetryAfter = reply.Status, reply.RetryAfter
			}
			if !reply.IsError {
				accepted, out.Location = true, reply.Location
			}
			if !failed {
				out.Status, out.RetryAfter = reply.Status, 0
			}
			out.ContentType = reply.ContentType
			out.Body = append(append(out.Body, reply.Body...), '\n')
		}
		if refused {
			out.Status = first
		}
		if preferred && accepted {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
		}
		writeReply(w, out)
		return nil
	}
}

// explainMissingHeader replaces the error of a request without an Authorization header by one that
// says so.
func explainMissingHeader(r *http.Request, err error) error {
	if errs.CodeOf(err) != errs.Unauthenticated || len(r.Header["Authorization"]) > 0 {
		return err
	}
	return errs.New(errs.Unauthenticated, "the header Authorization is missing").With("header", "Authorization")
}

// readLines reads a body of lines. The errors are those of readBody.
func readLines(w http.ResponseWriter, r *http.Request) (lines [][]byte, err error) {
	raw, err := readBodyOf(w, r, "the messages are", maxV5Body, contentTypeText, contentTypeForm)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	switch {
	case len(lines) == 0:
		return nil, errs.New(errs.InvalidRequest, "there is no message; send one per line")
	case len(lines) > maxV5Messages:
		return nil, errs.New(errs.InvalidRequest, "there are %d messages; the limit of a request is %d", len(lines), maxV5Messages)
	}
	return lines, nil
}

// prompter is a protocol with system prompts for agents that are language models.
type prompter interface {
	Prompt(ctx context.Context, name, language, agentID string) (string, error)
}

// getPrompt returns a system prompt of PROTOCOL_V5.
//
//	@Summary		Get a system prompt
//	@Description	Returns one of the three system prompts of PROTOCOL_V5 §13, filled in with the registered agents. For a token bound to an agent, the worker prompt is that agent's.
//	@ID				getPrompt
//	@Tags			agent connections
//	@Produce		plain
//	@Security		BearerAuth
//	@Param			name	path	string	true	"The role"	enums(orchestrator,worker,research)	example(worker)
//	@Param			lang	query	string	false	"The language"	enums(fr,en)	default(fr)	example(en)
//	@Success		200	{string}	string	"The prompt"
//	@Failure		404	{string}	string	"E40: the prompt does not exist"
//	@x-comet-failures	"line"
//	@Router			/api/v5/prompts/{name} [get]
func getPrompt(proto protocol.Protocol) handler {
	return func(w http.ResponseWriter, r *http.Request, from caller) error {
		if err := maySend(from.Principal); err != nil && !from.Has(models.ScopeAgentsRead) {
			return err
		}
		p, ok := proto.(prompter)
		if !ok {
			return errs.New(errs.NotFound, "this protocol has no prompts")
		}
		language := r.URL.Query().Get("lang")
		if language == "" {
			language = "fr"
		}
		agentID := ""
		if from.AgentID != nil {
			agentID = *from.AgentID
		}
		text, err := p.Prompt(r.Context(), chi.URLParam(r, "name"), language, agentID)
		if err != nil {
			return err
		}
		writeReply(w, protocol.Reply{Status: http.StatusOK, Body: []byte(text), ContentType: contentTypeText + "; charset=utf-8"})
		return nil
	}
}
