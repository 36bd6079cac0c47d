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
	"comet/openapi/client"
)

// The exit codes of comet send that are not those of every command.
const (
	exitTimeout     = 124
	exitInterrupted = 130
	// maxTaskExit is the highest exit code that can be a task's.
	maxTaskExit = 125
)

// cancelTimeout is how long taking a task back may take.
const cancelTimeout = 10 * time.Second

// endedError is a task that did not succeed, or was not waited for.
type endedError struct {
	code int
	text string
}

func (e *endedError) Error() string { return e.text }

// sendFlags are what a request for work can be told.
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
		Short: "Ask for work, follow it, and end as it ends",
		Long: `Ask for work, follow it, and end as it ends. Parameters are NAME=TEXT or NAME:=JSON; they
are added to those of --param-file. What the agent prints goes to standard output as it
comes, how far it is to standard error.

Exit codes: 0 the work succeeded; 1-125 it failed with this code; 124 it took longer than
--wait or was silent for too long; 130 the command was interrupted. An error of the
protocol ends as for other commands: 3 not allowed, 6 not valid or nobody does such
work, 7 nobody is there or a limit is reached.`,
		Example: `  comet send --to infra run_playbook playbook=deploy.yml extra_vars:='{"version":"1.4.0"}' --wait 5m
  comet send echo text=hello --hint max_duration_seconds=60
  comet send --to research summarize --param-file request.json -o json | jq -r .payload.output`,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.to, "to", "", "the `type` of agent that must do it (default: any agent that can)")
	fs.StringVar(&f.paramFile, "param-file", "", "`file` with the parameters, a JSON object; - reads standard input")
	fs.StringSliceVar(&f.hints, "hint", nil, "`NAME=VALUE`: max_duration_seconds, max_memory_mb, max_tokens or another, may be repeated")
	fs.StringVar(&f.requestID, "request-id", "", "`UUID` that makes the work once however often it is asked for (default: a new one)")
	fs.StringVar(&f.traceID, "trace-id", "", "`UUID` to follow the work by through other systems (default: a new one)")
	fs.DurationVar(&f.wait, "wait", 0, "how long to wait for the end; the work goes on after that (default: for ever)")
	fs.BoolVar(&f.cancelOnInterrupt, "cancel-on-interrupt", false, "take the work back when the command is interrupted")
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		set, err := loadSettings(cmd.Flags(), flags)
		if err != nil {
			return err
		}
		c, err := agent.NewClient(s.server, set.token, nil)
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

// requestOf puts together what is asked for.
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
	// A repetition must ask for the same task.
	r.TaskID = uuid.NewSHA1(r.RequestID, []byte("task"))
	if r.Parameters, err = s.parameters(f.paramFile, args[1:]); err != nil {
		return nil, err
	}
	if r.Hints, err = hintsOf(f.hints); err != nil {
		return nil, err
	}
	body, err := s.answer(s.api.GetMe(ctx, nil))
	if err != nil {
		return nil, err
	}
	var me client.CallerIdentity
	if err := decode(body, &me); err != nil {
		return nil, err
	}
	if me.Agent != nil {
		r.From = typeOf(*me.Agent)
	}
	return r, nil
}

// send asks, follows and ends as the task does.
func (s *session) send(ctx context.Context, c *agent.Client, r *agent.Request, f sendFlags) error {
	awaited := ctx
	if f.wait > 0 {
		var cancel context.CancelFunc
		awaited, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	show := newDisplay(s.out.w, s.notes, s.out.format == formatTable)
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
		return &endedError{exitTimeout, fmt.Sprintf("the server has not answered for %s; it may have taken the task %s", f.wait, r.TaskID)}
	case awaited.Err() != nil && !reply.Ended:
		return &endedError{exitTimeout, fmt.Sprintf("the task %s has not ended after %s; it goes on", r.TaskID, f.wait)}
	case err != nil:
		return s.refusedRequest(err)
	}
	if s.out.format != formatTable {
		err = s.out.show(reply.Raw, nil)
	} else {
		err = show.result(reply.Output)
	}
	return errors.Join(err, endOf(reply))
}

// follow shows how far a task is, and what it prints, until the function it returns is
// called: then, if it has ended, also the rest of that.
func (s *session) follow(ctx context.Context, c *agent.Client, r *agent.Request, show *display) (stop func(ended bool)) {
	if s.out.format != formatTable {
		return func(bool) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	go func() {
		_, _ = c.Follow(ctx, r.TaskID, show.task) // what matters is how the request ends
		done <- struct{}{}
	}()
	go func() {
		_ = c.Log(ctx, r.TaskID, show) // it is shown for as long as it comes
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

// interrupted takes the task back, if that is wanted.
func (s *session) interrupted(ctx context.Context, c *agent.Client, r *agent.Request, f sendFlags) error {
	if !f.cancelOnInterrupt {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s goes on", r.TaskID)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := c.Cancel(ctx, r); err != nil {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s could not be cancelled: %s", r.TaskID, err)}
	}
	return &endedError{exitInterrupted, fmt.Sprintf("interrupted; the task %s is cancelled", r.TaskID)}
}

// refusedRequest gives what the agents' door refuses the codes of other commands.
func (s *session) refusedRequest(err error) error {
	var refused *agent.ResponseError
	if errors.As(err, &refused) {
		return &apiError{status: refused.Status, problem: client.Problem{Title: refused.Error()}}
	}
	return usageError{err}
}

// endOf is nil for work that succeeded.
func endOf(r agent.Response) error {
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

// hintsOf reads NAME=VALUE; a value that is no JSON is text.
func hintsOf(pairs []string) (h agent.Hints, err error) {
	for _, pair := range pairs {
		name, value, ok := cutPair(pair)
		if !ok {
			return h, usagef("--hint must be of the form NAME=VALUE, not %q", pair)
		}
		var n int64
		into := map[string]*int64{"max_duration_seconds": &n, "max_memory_mb": &h.MaxMemoryMB, "max_tokens": &h.MaxTokens}[name]
		if into == nil {
			if !json.Valid([]byte(value)) {
				value = quoted(value)
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
