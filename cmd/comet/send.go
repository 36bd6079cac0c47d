package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"comet/agent"
	"comet/cmd/comet/viewtext"
	"comet/internal/input"
	"comet/openapi/client"
)

// The exit codes that only comet send has.
const (
	exitTimeout     = 124
	exitInterrupted = 130
	// exitSend is added to the exit codes of errors that are not the work's.
	exitSend = 100
)

// cancelTimeout limits the cancellation of a task.
const cancelTimeout = 10 * time.Second

// endedError is a task that did not succeed or was not awaited, with its exit code.
type endedError struct {
	code int
	text string
}

func (e *endedError) Error() string { return e.text }

// send submits a task, follows it and returns its status as an error.
func send(ctx context.Context, c *call) error {
	name, run, other := cmp.Or(given[string](c, "protocol"), "envelope"), sendEnvelope, []string{"from", "key"}
	if name == "genesis" {
		run, other = sendSigned, []string{"hint", "request-id", "trace-id", "cancel-on-interrupt"}
	} else if name != "envelope" {
		return usagef("--protocol must be envelope or genesis, not %q", name)
	}
	if i := slices.IndexFunc(other, c.changed); i >= 0 {
		return usagef("--%s is not available with --protocol %s", other[i], name)
	}
	return run(ctx, c)
}

// sendEnvelope is send with the envelope protocol.
func sendEnvelope(ctx context.Context, c *call) error {
	api, err := agent.NewClient(c.server, c.token, nil)
	if err != nil {
		return usageError{err}
	}
	r, err := c.taskRequest(ctx)
	if err != nil {
		return err
	}
	return c.sendRequest(ctx, api, r, given[time.Duration](c, "wait"), given[bool](c, "cancel-on-interrupt"))
}

// taskRequest builds a request from the flags and arguments.
func (c *call) taskRequest(ctx context.Context) (r *agent.Request, err error) {
	r = &agent.Request{To: given[string](c, "to"), WorkType: c.args[0], RequestID: given[uuid.UUID](c, "request-id"), TraceID: given[uuid.UUID](c, "trace-id")}
	if r.RequestID == uuid.Nil {
		r.RequestID = uuid.New()
	}
	// A repeated request must name the same task.
	r.TaskID = uuid.NewSHA1(r.RequestID, []byte("task"))
	if r.Parameters, err = c.parameters(given[string](c, "param-file"), c.args[1:]); err != nil {
		return nil, err
	}
	if r.Hints, err = parseHints(given[[]string](c, "hint")); err != nil {
		return nil, err
	}
	var me client.CallerIdentity
	if _, err := c.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
		return nil, err
	}
	if me.Agent != nil {
		r.From = typeOf(*me.Agent)
	}
	return r, nil
}

// sendRequest submits a task and waits for its end, for at most wait; 0 means no limit.
func (s *session) sendRequest(ctx context.Context, c *agent.Client, r *agent.Request, wait time.Duration, cancelOnInterrupt bool) error {
	awaited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		awaited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	show := newDisplay(s.out.w, s.messages, s.out.format == formatTable)
	show.missing = workerCommand(r)
	reply, err := c.Submit(awaited, r)
	known := err == nil
	if known && show.enabled && reply.Code == 0 { // otherwise no task was created
		printLine(s.messages, "task %s", r.TaskID.String())
	}
	if known && !reply.Ended {
		stop := s.follow(awaited, c, r, show)
		reply, err = c.Await(awaited, r)
		stop(err == nil)
	}
	show.end()
	switch {
	case ctx.Err() != nil:
		return s.interrupted(ctx, c, r, cancelOnInterrupt)
	case awaited.Err() != nil && !known:
		return &endedError{exitTimeout, fmt.Sprintf("the server has not responded for %s; it may have accepted the task %s", wait, r.TaskID)}
	case awaited.Err() != nil && !reply.Ended:
		return &endedError{exitTimeout, fmt.Sprintf("the task %s has not ended after %s; it continues", r.TaskID, wait)}
	case err != nil:
		return rejected("the server rejects the request", usageError{err})
	}
	if s.out.format != formatTable {
		err = s.out.show(reply.Raw, nil)
	} else {
		err = show.result(reply.Output)
	}
	failed := errorOf(r, reply)
	if ended, ok := errors.AsType[*endedError](failed); ok && reply.Code == unsupportedWork && r.To != "" {
		ended.text += s.nearest(ctx, r.To, typeList)
	}
	return errors.Join(err, failed)
}

// workerCommand returns the command that starts a worker for a request.
func workerCommand(r *agent.Request) string {
	command := "comet worker"
	if r.To != "" {
		command += " --type " + shellWord(r.To)
	}
	return command + " --capability " + shellWord(r.WorkType) + " -- COMMAND"
}

// follow prints output and progress of a task until the function it returns is called; with ended
// it prints the rest of the output first. An agent reports a step together with the output of that step,
// so follow prints the progress of each report before its output.
func (s *session) follow(ctx context.Context, c *agent.Client, r *agent.Request, show *display) (stop func(ended bool)) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	log, to := io.Pipe()
	context.AfterFunc(ctx, func() { _ = log.Close() })
	if s.out.format == formatTable {
		go func() { _ = to.CloseWithError(c.Log(ctx, r.TaskID, to)) }()
	} else {
		_ = to.Close()
	}
	attempt, printed := 0, int64(0)
	each := func(t agent.Task) error {
		if t.Attempt != attempt {
			attempt, printed = t.Attempt, 0
		}
		err := show.task(t)
		n, _ := io.CopyN(show, log, t.Log.Bytes-printed)
		printed += n
		return err
	}
	following.Go(func() { // the result of the request reports the errors
		_, _ = c.Follow(ctx, r.TaskID, each)
		_, _ = io.Copy(show, log)
	})
	return func(ended bool) {
		const lastWords = 5 * time.Second
		if ended {
			time.AfterFunc(lastWords, cancel)
		} else {
			cancel()
		}
		following.Wait()
		cancel()
	}
}

// interrupted cancels the task if that is wanted.
func (s *session) interrupted(ctx context.Context, c *agent.Client, r *agent.Request, cancelTask bool) error {
	if !cancelTask {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s continues", r.TaskID)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := c.Cancel(ctx, r); err != nil {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s could not be cancelled: %s", r.TaskID, err)}
	}
	return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s is cancelled", r.TaskID)}
}

// rejected adds the exit code of a rejected request to an error of package agent.
func rejected(title string, err error) error {
	var refused *agent.ResponseError
	if errors.As(err, &refused) {
		return &apiError{status: refused.Status, problem: client.Problem{Title: title, Detail: new(refused.Error())}}
	}
	return err
}

// errorOf is the error of a task that did not succeed.
func errorOf(r *agent.Request, reply agent.Response) error {
	switch {
	case reply.Succeeded:
		return nil
	case reply.Code != 0:
		return &endedError{exitOfCode(reply.Code), fmt.Sprintf("error %d: %s", reply.Code, failureText(r, reply))}
	}
	code := reply.ExitCode
	if code != exitTimeout {
		code = min(max(code, exitFailure), exitSend-1)
	}
	return &endedError{code, fmt.Sprintf("the work failed with exit code %d", reply.ExitCode)}
}

// unsupportedWork is the code of work that no agent offers.
const unsupportedWork = 5006

// failureText describes an error of the envelope protocol: the mistake and the existing names.
func failureText(r *agent.Request, reply agent.Response) string {
	var details map[string]any
	if json.Unmarshal(reply.Context, &details) != nil || len(details) == 0 {
		return reply.Message
	}
	list, isList := details["supported_types"].([]any)
	if reply.Code != unsupportedWork || !isList {
		maps.DeleteFunc(details, func(_ string, v any) bool { return v == nil })
		return strings.TrimSuffix(fmt.Sprintf("%s (%s)", reply.Message, viewtext.Pairs(details)), " ()")
	}
	kind := ""
	if r.To != "" {
		kind = fmt.Sprintf(" of the type %q", r.To)
	}
	text := fmt.Sprintf("no agent%s offers %q", kind, r.WorkType)
	if supported := strings.Fields(viewtext.Join(list, " ")); len(supported) > 0 {
		shown := strings.Join(supported[:min(len(supported), 20)], ", ")
		if more := len(supported) - 20; more > 0 {
			shown += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Sprintf("%s; agents%s offer %s%s", text, kind, shown, input.DidYouMean(r.WorkType, supported))
	}
	return text + `; "comet agents list" shows what agents offer; "comet worker" adds a worker`
}

// exitOfCode is the exit code for an error of the envelope protocol.
func exitOfCode(code int) int {
	if code == 5001 {
		return exitTimeout
	}
	known := map[int]int{5002: exitUnavailable, 5003: exitInvalid, 5004: exitForbidden, 5005: exitUnavailable, 5006: exitInvalid}
	return exitSend + cmp.Or(known[code], exitFailure)
}

// parseHints parses NAME=VALUE; a value that is not JSON is text.
func parseHints(pairs []string) (h agent.Hints, err error) {
	for _, pair := range pairs {
		name, value, ok := cutPair(pair)
		if !ok {
			return h, usagef("--hint must be of the form NAME=VALUE, not %q", pair)
		}
		var n int64
		into := map[string]*int64{"max_duration_seconds": &n, "max_memory_mb": &h.MaxMemoryMB, "max_tokens": &h.MaxTokens}[name]
		if into == nil {
			if h.Other == nil {
				h.Other = map[string]json.RawMessage{}
			}
			if h.Other[name] = json.RawMessage(value); !json.Valid(h.Other[name]) {
				h.Other[name] = jsonText(value)
			}
			continue
		}
		if err := json.Unmarshal([]byte(value), into); err != nil || *into < 1 {
			return h, usagef("the hint %s must be a whole number from 1, not %q", name, value)
		}
		if n > 0 {
			h.MaxDuration = time.Duration(n) * time.Second
		}
	}
	return h, nil
}

// jsonText returns a text as JSON; invalid UTF-8 is replaced.
func jsonText(text string) json.RawMessage {
	node := input.Node{Kind: input.String, Text: strings.ToValidUTF8(text, "\uFFFD")}
	return node.JSON()
}

// parameters combines those of a file and those of the command line. The last value of a name
// counts.
func (s *session) parameters(file string, pairs []string) (json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if file != "" {
		data, err := s.readInput(file)
		if err != nil {
			return nil, err
		}
		object, err := readObject(nameOf(file), data)
		if err != nil {
			return nil, err
		}
		for _, m := range object.Members {
			values[m.Name] = m.Value.JSON()
		}
	}
	for _, pair := range pairs {
		name, value, ok := cutPair(pair)
		raw, isJSON := strings.CutSuffix(name, ":")
		switch {
		case !ok || raw == "":
			return nil, usagef("a parameter must be of the form NAME=TEXT or NAME:=JSON, not %q", pair)
		case !isJSON:
			values[name] = jsonText(value)
		case !json.Valid([]byte(value)):
			return nil, usagef("the parameter %s must be JSON, not %q; use %s=… for text", raw, value, raw)
		default:
			values[raw] = json.RawMessage(value)
		}
	}
	return json.Marshal(values)
}

// readObject parses the JSON object in data. name describes its source in errors.
func readObject(name string, data []byte) (*input.Node, error) {
	doc := input.Parse(data, input.JSON)
	switch violations := doc.Violations(); {
	case len(violations) > 0:
		return nil, usagef("%s must contain a JSON object: %s", name, violations[0].Detail)
	case doc.Root.Kind != input.Object:
		return nil, usagef("%s must contain a JSON object, not %s", name, doc.Root)
	}
	return doc.Root, nil
}

func cutPair(pair string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(pair, "=")
	return name, value, ok && name != ""
}
