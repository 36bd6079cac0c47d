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
	contentTypeForm = "application/x-www-form-urlencoded" // which is what curl says by itself
	// maxV5Messages is how many messages one request may have, and maxTextBody how long they
	// may be together, in bytes.
	maxV5Messages = 1000
	maxV5Body     = 1 << 20
)

// unframedProtocol returns the dialect whose messages are lines of text, nil where none is spoken.
func (l *Server) unframedProtocol() protocol.Protocol {
	i := slices.IndexFunc(l.core.Protocols, protocol.Protocol.Unframed)
	if i < 0 {
		return nil
	}
	return l.core.Protocols[i]
}

// postV5Messages takes messages that are lines of text: PROTOCOL_V5.
//
//	@Summary		Send lines of PROTOCOL_V5
//	@Description	Takes one message a line, up to 1,000 of them and 1 MiB, one after the other, and answers each with one line, in their order. A token that is bound to an agent speaks as that agent, `W<n>`; one that is bound to none needs the scope `messages:send` and speaks as `User`: it asks O1 for work with `R`. An empty line is passed over. A line of eight segments, which is PROTOCOL_V4, is answered with one of eight.
//	@Description
//	@Description	With `Prefer: wait` the answer to an `R` has a second line, once the work has ended (`S`, `E`) or something is asked back (`D`). What is refused is answered with `E` and the document's code; where that is so for every line, the status is that of the first: E10 to E16 400, E15 409, E17 and E31 429, E19 422, E2x 504, E30 and E32 503, E33 and E4x 404, E90 401, E99 500; of an E that a worker said, 502 instead of 401 and 500. Otherwise it is that of the last line, 200 or 202.
//	@ID				sendV5Messages
//	@Tags			agent door
//	@Accept			plain
//	@Produce		plain
//	@Security		BearerAuth
//	@Param			Prefer	header	string	false	"For how many seconds each answer may wait for the end of the work, 60 at most altogether (RFC 7240)"	example(wait=30)
//	@Param			traceparent	header	string	false	"The W3C trace context that the tasks asked for belong to; one that is not valid is ignored"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			lines	body	string	true	"The messages"	example(M1|User>O1|R|-|P1|N|-|0|-|B500|call=web_search;query=AI)
//	@Success		200	{string}	string	"The answers, a line each"
//	@Header			200	{string}	Preference-Applied
//	@Success		202	{string}	string	"The answers; the last one is to a request that is taken on"
//	@Header			202	{string}	Location			"The task, under /api/v1/tasks"
//	@Header			202	{string}	Preference-Applied
//	@Failure		400	{string}	string	"E10 to E16: no line is accepted"
//	@x-comet-failures	"line"
//	@Router			/api/v5/messages [post]
func (l *Server) postV5Messages(speech protocol.Protocol) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		if err := maySend(who.Principal); err != nil {
			return err
		}
		wait, asked := preferredWait(r.Header.Values("Prefer"))
		lines, err := readLines(w, r)
		if err != nil {
			return err
		}
		extendDeadlines(w, wait)
		ctx, stop := l.waitContext(r.Context(), wait)
		defer stop()
		until := time.Now().Add(wait)
		ctx = protocol.WithTrace(ctx, r.Header["Traceparent"])
		hear := l.messageReceiver(speech, who, clientPrefix(r))
		var out protocol.Reply
		var first int // the status of the first, while all are refused
		refused, taken := true, false
		for _, line := range lines {
			l.metrics.countReceived("http")
			a := hear(ctx, line, max(time.Until(until), 0))
			failed := a.IsError || a.Status >= http.StatusBadRequest // or ended so
			if refused = refused && failed; first == 0 {
				first, out.RetryAfter = a.Status, a.RetryAfter
			}
			if !a.IsError {
				taken, out.Location = true, a.Location
			}
			if !failed {
				out.Status, out.RetryAfter = a.Status, 0
			}
			out.ContentType = a.ContentType
			out.Body = append(append(out.Body, a.Body...), '\n')
		}
		if refused {
			out.Status = first
		}
		if asked && taken {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
		}
		writeReply(w, out)
		return nil
	}
}

// explainMissingHeader says of a request without a token that it has none: whoever forgot the
// header need not look for what is wrong with his token.
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
		return nil, errs.New(errs.InvalidRequest, "there is no message; each is a line")
	case len(lines) > maxV5Messages:
		return nil, errs.New(errs.InvalidRequest, "there are %d messages; one request may have %d", len(lines), maxV5Messages)
	}
	return lines, nil
}

// prompter is a dialect that tells agents which are language models how it is spoken.
type prompter interface {
	Prompt(ctx context.Context, name, language, agentID string) (string, error)
}

// getPrompt serves the system prompts of PROTOCOL_V5.
//
//	@Summary		A system prompt
//	@Description	One of the three system prompts of PROTOCOL_V5 §13, filled in with the agents that are there. For a token that is bound to an agent the prompt of a worker is that agent's.
//	@ID				getPrompt
//	@Tags			agent door
//	@Produce		plain
//	@Security		BearerAuth
//	@Param			name	path	string	true	"Whose prompt"	enums(orchestrator,worker,research)	example(worker)
//	@Param			lang	query	string	false	"The language"	enums(fr,en)	default(fr)	example(en)
//	@Success		200	{string}	string	"The prompt"
//	@Failure		404	{string}	string	"E40: there is no such prompt"
//	@x-comet-failures	"line"
//	@Router			/api/v5/prompts/{name} [get]
func getPrompt(speech protocol.Protocol) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		if err := maySend(who.Principal); err != nil && !who.Has(models.ScopeAgentsRead) {
			return err
		}
		p, ok := speech.(prompter)
		if !ok {
			return errs.New(errs.NotFound, "there are no prompts here")
		}
		language := r.URL.Query().Get("lang")
		if language == "" {
			language = "fr"
		}
		agentID := ""
		if who.AgentID != nil {
			agentID = *who.AgentID
		}
		text, err := p.Prompt(r.Context(), chi.URLParam(r, "name"), language, agentID)
		if err != nil {
			return err
		}
		writeReply(w, protocol.Reply{Status: http.StatusOK, Body: []byte(text), ContentType: contentTypeText + "; charset=utf-8"})
		return nil
	}
}
