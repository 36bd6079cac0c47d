package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"comet/agent"
	"comet/internal/input"
	"comet/openapi/client"
)

// The exit codes that only comet send has.
const (
	exitTimeout     = 124
	exitInterrupted = 130
	// maxTaskExit is the highest exit code that can be a task's.
	maxTaskExit = 125
)

// cancelTimeout limits the cancellation of a task.
const cancelTimeout = 10 * time.Second

// endedError is a task that did not succeed or was not awaited, with its exit code.
type endedError struct {
	code int
	text string
}

func (e *endedError) Error() string { return e.text }

// sendFlags are the flags of "comet send".
type sendFlags struct {
	to, requestID, traceID, paramFile string
	hints                             []string
	wait                              time.Duration
	cancelOnInterrupt                 bool
}

func newSendCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send WORK-TYPE [NAME=TEXT | NAME:=JSON]...",
		Short: "Submit a task, stream its output and exit with its status",
		Long: `Submit a task, stream its output and exit with its status. Parameters are NAME=TEXT or
NAME:=JSON; they are added to those of --param-file. The output of the agent goes to standard
output as it arrives, its progress to standard error.

Exit codes: 0 the task succeeded; 1-125 it failed with this exit code; 124 it took longer
than --wait or was silent for too long; 130 the command was interrupted. Errors of the
protocol have the exit codes of other commands: 3 not allowed, 6 invalid or unsupported
work, 7 no agent is available or a limit is reached.`,
		Example: `  comet send --to infra run_playbook playbook=deploy.yml extra_vars:='{"version":"1.4.0"}' --wait 5m
  comet send echo text=hello --hint max_duration_seconds=60
  comet send --to research summarize --param-file request.json -o json | jq -r .payload.output`,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.to, "to", "", "the `type` of agent that executes the task (default: any suitable agent)")
	fs.StringVar(&f.paramFile, "param-file", "", "`file` with the parameters, a JSON object; - reads standard input")
	fs.StringSliceVar(&f.hints, "hint", nil, "`NAME=VALUE`: max_duration_seconds, max_memory_mb, max_tokens or another; repeatable")
	fs.StringVar(&f.requestID, "request-id", "", "`UUID` of the request; repeating it finds the same task (default: a new one)")
	fs.StringVar(&f.traceID, "trace-id", "", "`UUID` that identifies the task in other systems (default: a new one)")
	fs.DurationVar(&f.wait, "wait", 0, "how long to wait for the end; the task continues after that (default: no limit)")
	fs.BoolVar(&f.cancelOnInterrupt, "cancel-on-interrupt", false, "cancel the task if the command is interrupted")
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		c, err := agent.NewClient(s.server, s.token, nil)
		if err != nil {
			return usageError{err}
		}
		r, err := s.requestOf(ctx, f, args)
		if err != nil {
			return err
		}
		return s.send(ctx, c, r, f)
	})
}

// requestOf is the request that the flags and arguments describe.
func (s *session) requestOf(ctx context.Context, f sendFlags, args []string) (*agent.Request, error) {
	r := &agent.Request{To: f.to, WorkType: args[0]}
	var err error
	for _, id := range []struct {
		flag, text string
		into       *uuid.UUID
	}{{"request-id", f.requestID, &r.RequestID}, {"trace-id", f.traceID, &r.TraceID}} {
		if id.text == "" {
			*id.into = uuid.New()
		} else if *id.into, err = uuid.Parse(id.text); err != nil {
			return nil, usagef("--%s must be a UUID, not %q", id.flag, id.text)
		}
	}
	// A repeated request must name the same task.
	r.TaskID = uuid.NewSHA1(r.RequestID, []byte("task"))
	if r.Parameters, err = s.parameters(f.paramFile, args[1:]); err != nil {
		return nil, err
	}
	if r.Hints, err = parseHints(f.hints); err != nil {
		return nil, err
	}
	me, _, err := decodeAs[client.CallerIdentity](s.readResponse(s.api.GetMe(ctx, nil)))
	if err != nil {
		return nil, err
	}
	if me.Agent != nil {
		r.From = typeOf(*me.Agent)
	}
	return r, nil
}

// send submits a task, follows it and returns its status as an error.
func (s *session) send(ctx context.Context, c *agent.Client, r *agent.Request, f sendFlags) error {
	awaited := ctx
	if f.wait > 0 {
		var cancel context.CancelFunc
		awaited, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	show := newDisplay(s.out.w, s.messages, s.out.format == formatTable)
	reply, err := c.Submit(awaited, r)
	known := err == nil
	if known && !reply.Ended {
		stop := s.follow(awaited, c, r, show)
		reply, err = c.Await(awaited, r)
		stop(err == nil)
	}
	show.end()
	switch {
	case ctx.Err() != nil:
		return s.interrupted(ctx, c, r, f)
	case awaited.Err() != nil && !known:
		return &endedError{exitTimeout, fmt.Sprintf("the server has not responded for %s; it may have accepted the task %s", f.wait, r.TaskID)}
	case awaited.Err() != nil && !reply.Ended:
		return &endedError{exitTimeout, fmt.Sprintf("the task %s has not ended after %s; it continues", r.TaskID, f.wait)}
	case err != nil:
		return s.rejectedRequest(err)
	}
	if s.out.format != formatTable {
		err = s.out.show(reply.Raw, nil)
	} else {
		err = show.result(reply.Output)
	}
	return errors.Join(err, errorOf(reply))
}

// follow prints output and progress of a task until the function it returns is called; with ended
// it prints the rest of the output first.
func (s *session) follow(ctx context.Context, c *agent.Client, r *agent.Request, show *display) (stop func(ended bool)) {
	if s.out.format != formatTable {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	go func() {
		_, _ = c.Follow(ctx, r.TaskID, show.task) // the result of the request reports the error
		done <- struct{}{}
	}()
	go func() {
		_ = c.Log(ctx, r.TaskID, show) // the same
		done <- struct{}{}
	}()
	return func(ended bool) {
		const lastWords = 5 * time.Second
		if ended {
			time.AfterFunc(lastWords, cancel)
		} else {
			cancel()
		}
		<-done
		<-done
		cancel()
	}
}

// interrupted cancels the task if that is wanted.
func (s *session) interrupted(ctx context.Context, c *agent.Client, r *agent.Request, f sendFlags) error {
	if !f.cancelOnInterrupt {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s continues", r.TaskID)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := c.Cancel(ctx, r); err != nil {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s could not be cancelled: %s", r.TaskID, err)}
	}
	return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s is cancelled", r.TaskID)}
}

// rejectedRequest gives a rejected request the exit code of other commands.
func (s *session) rejectedRequest(err error) error {
	var refused *agent.ResponseError
	if errors.As(err, &refused) {
		return &apiError{status: refused.Status, problem: client.Problem{Title: refused.Error()}}
	}
	return usageError{err}
}

// errorOf is the error of a task that did not succeed.
func errorOf(r agent.Response) error {
	switch {
	case r.Succeeded:
		return nil
	case r.Code != 0:
		return &endedError{exitOfCode(r.Code), strings.TrimSpace(fmt.Sprintf("error %d: %s %s", r.Code, r.Message, r.Context))}
	}
	code := r.ExitCode
	if code < 1 || code > maxTaskExit {
		code = exitFailure
	}
	return &endedError{code, fmt.Sprintf("the work failed with exit code %d", r.ExitCode)}
}

// exitOfCode is the exit code for an error of the envelope protocol.
func exitOfCode(code int) int {
	switch code {
	case 5001:
		return exitTimeout
	case 5002, 5005:
		return exitUnavailable
	case 5003, 5006:
		return exitInvalid
	case 5004:
		return exitForbidden
	}
	return exitFailure
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
			if !json.Valid([]byte(value)) {
				text := input.Node{Kind: input.String, Text: strings.ToValidUTF8(value, "\uFFFD")}
				value = string(text.JSON())
			}
			if h.Other == nil {
				h.Other = map[string]json.RawMessage{}
			}
			h.Other[name] = json.RawMessage(value)
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

// parameters combines those of a file and those of the command line, in this order. The last
// value of a name counts.
func (s *session) parameters(file string, pairs []string) (json.RawMessage, error) {
	var names []string
	values := map[string]input.Node{}
	put := func(name string, value input.Node) {
		if _, known := values[name]; !known {
			names = append(names, name)
		}
		values[name] = value
	}
	if file != "" {
		data, err := readInput(s.in, file)
		if err != nil {
			return nil, err
		}
		object, err := readObject(nameOf(file), data)
		if err != nil {
			return nil, err
		}
		for _, m := range object.Members {
			put(m.Name, m.Value)
		}
	}
	for _, pair := range pairs {
		name, value, ok := cutPair(pair)
		raw, isJSON := strings.CutSuffix(name, ":")
		switch {
		case !ok || raw == "":
			return nil, usagef("a parameter must be of the form NAME=TEXT or NAME:=JSON, not %q", pair)
		case !isJSON:
			put(name, input.Node{Kind: input.String, Text: strings.ToValidUTF8(value, "\uFFFD")})
		default:
			doc := input.Parse([]byte(value), input.JSON)
			if len(doc.Violations()) > 0 {
				return nil, usagef("the parameter %s must be JSON, not %q; use %s=… for text", raw, value, raw)
			}
			put(raw, *doc.Root)
		}
	}
	object := input.Node{Kind: input.Object}
	for _, name := range names {
		object.Members = append(object.Members, input.Member{Name: name, Value: values[name]})
	}
	return object.JSON(), nil
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

// cutPair splits NAME=VALUE.
func cutPair(pair string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(pair, "=")
	return name, value, ok && name != ""
}
