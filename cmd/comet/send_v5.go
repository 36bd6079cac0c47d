package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/agent"
)

// lineFlags are those of comet send that only a line of PROTOCOL_V5 has.
type lineFlags struct {
	from, priority string
	keyFile        string
	budget         int64
	timeout        time.Duration
	lines          []string
}

func (l *lineFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&l.from, "from", "", "v5: the `number` of the agent that asks, such as W3, where the token is an agent's (default: User)")
	addKeyFile(fs, &l.keyFile)
	fs.StringVar(&l.priority, "priority", "", "v5: P0, P1 or P2 (default P1)")
	fs.Int64Var(&l.budget, "budget", 0, "v5: how many `tokens` all attempts together may use (default: no bound)")
	fs.DurationVar(&l.timeout, "timeout", 0, "v5: how long the worker may be silent (default 30s)")
	fs.StringArrayVar(&l.lines, "line", nil, "v5: say this `line` as it is and print the answers, may be repeated; - reads lines from standard input")
}

// dialectOf refuses flags of the other dialect.
func (f sendFlags) dialectOf(cmd *cobra.Command, args []string) (v5 bool, err error) {
	foreign := map[string][]string{
		agent.DialectEnvelope: {"from", "key-file", "priority", "budget", "timeout", "line"},
		agent.DialectV5:       {"hint", "request-id", "trace-id"},
	}
	names, known := foreign[f.dialect]
	if !known {
		return false, usagef("--dialect must be envelope or v5, not %q", f.dialect)
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return false, usagef("--%s means nothing with --dialect %s", name, f.dialect)
		}
	}
	if len(args) == 0 && len(f.line.lines) == 0 {
		return false, usagef("name the WORK-TYPE that is asked for")
	}
	if len(args) > 0 && len(f.line.lines) > 0 {
		return false, usagef("--line says everything itself: leave %s out", args[0])
	}
	return f.dialect == agent.DialectV5, nil
}

// sendLine asks in PROTOCOL_V5, follows and ends as the task does.
func (s *session) sendLine(ctx context.Context, c *agent.Client, f sendFlags, args []string) error {
	if f.line.keyFile != "" {
		key, err := readKey(s.in, f.line.keyFile)
		if err != nil {
			return err
		}
		c.SignWith(key)
	}
	if len(f.line.lines) > 0 {
		return s.sayLines(ctx, c, f)
	}
	r := &agent.LineRequest{
		From: f.line.from, To: f.to, Capability: args[0], Priority: f.line.priority, Budget: f.line.budget, Timeout: f.line.timeout,
	}
	var err error
	if r.Parameters, err = s.parameters(f.paramFile, args[1:]); err != nil {
		return err
	}
	if err := checkNames(r); err != nil {
		return err
	}
	awaited := ctx
	if f.wait > 0 {
		var cancel context.CancelFunc
		awaited, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	reply, err := c.AskLine(awaited, r)
	taken := err == nil && !reply.Ended
	show := newDisplay(s.out.w, s.notes, s.out.format == formatTable)
	if taken {
		first := reply
		stop := s.follow(awaited, c, &agent.Request{TaskID: reply.Task}, show)
		if reply, err = c.AwaitLine(awaited, reply, s.askedBack); err != nil {
			reply = first
		}
		stop(err == nil)
	}
	show.end()
	switch {
	case ctx.Err() != nil && taken:
		return s.interruptedLine(ctx, c, reply, f)
	case ctx.Err() != nil:
		return &endedError{exitInterrupted, "interrupted; the server may have taken the task"}
	case awaited.Err() != nil && !taken:
		return &endedError{exitTimeout, fmt.Sprintf("the server has not answered for %s; it may have taken the task", f.wait)}
	case awaited.Err() != nil && !reply.Ended:
		return &endedError{exitTimeout, fmt.Sprintf("the task %s of %s has not ended after %s; it goes on", reply.TID, reply.Context, f.wait)}
	case err != nil:
		return s.refusedLine(err, taken)
	}
	return errors.Join(s.showLine(reply, show), endOfLine(reply))
}

// showLine prints a result, or for programs what O1 said and the result.
func (s *session) showLine(reply agent.LineReply, show *display) error {
	if s.out.format == formatTable {
		return show.result(reply.Output)
	}
	return s.showJSON(struct {
		Line     string     `json:"line"`
		TaskID   *uuid.UUID `json:"task_id,omitempty"`
		Output   string     `json:"output"`
		ExitCode *int       `json:"exit_code,omitempty"`
	}{reply.Line, known(reply.Task), reply.Output, known(reply.ExitCode)})
}

// known is nil for the zero value.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// askedBack tells what a worker asks, and how it is answered.
func (s *session) askedBack(r agent.LineReply) {
	say(s.notes, `asked: %s
answer with
  comet send --dialect v5 --line 'M1|User>O1|C|%s|-|R|-|0|%s|-|answer=…'`, printable(r.Question), r.TID, r.Context)
}

// interruptedLine takes the task back, if that is wanted.
func (s *session) interruptedLine(ctx context.Context, c *agent.Client, r agent.LineReply, f sendFlags) error {
	name := fmt.Sprintf("the task %s of %s", r.TID, r.Context)
	if !f.cancelOnInterrupt {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; %s goes on", name)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := c.CancelLine(ctx, r); err != nil {
		return &endedError{exitInterrupted, fmt.Sprintf("interrupted; %s could not be cancelled: %s", name, err)}
	}
	return &endedError{exitInterrupted, fmt.Sprintf("interrupted; %s is cancelled", name)}
}

// refusedLine gives a door that answers with no line the codes of other commands. Where
// the line has left, nobody knows what became of it.
func (s *session) refusedLine(err error, taken bool) error {
	var refused *agent.Refused
	if errors.As(err, &refused) {
		return s.refusedRequest(err)
	}
	if agent.IsUnsayable(err) {
		return usageError{err}
	}
	if !taken {
		err = fmt.Errorf("%w; the server may have taken the task", err)
	}
	return s.unreachable(err)
}
