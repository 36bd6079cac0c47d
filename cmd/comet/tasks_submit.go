package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// submitFlags are the members of a task that flags can set.
type submitFlags struct {
	capabilities                                []string
	agent, kind, session, requestID, parameters string
	onBudget                                    string
	sphere, priority, retries, workers          int
	budget, maxBudget                           int64
	timeout                                     time.Duration
}

func (f *submitFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.capabilities, "capability", nil, "what an agent must be able to do; may be repeated or a list with commas")
	fs.StringVar(&f.kind, "type", "", "only agents of this `type`")
	fs.StringVar(&f.agent, "agent", "", "only this `agent`")
	fs.IntVar(&f.sphere, "sphere", 0, "only agents of this sphere (1-9)")
	fs.StringVar(&f.parameters, "parameters", "", "what the agent is given, a JSON `object`; @FILE reads it from a file, - from standard input")
	fs.IntVar(&f.priority, "priority", 1, "0 to 3; a higher one overtakes lower ones that wait")
	fs.Int64Var(&f.budget, "budget", 0, "how many tokens all attempts together may use")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long an attempt may be silent (default 30s)")
	fs.IntVar(&f.retries, "retries", 0, "how many attempts may follow the first (default 3)")
	fs.IntVar(&f.workers, "workers", 0, "how many agents do it at the same time (2-16); the first success wins")
	fs.StringVar(&f.onBudget, "on-budget", "", "what follows where the budget does not cover it: give_up, raise or simplify")
	fs.Int64Var(&f.maxBudget, "max-budget", 0, "what --on-budget raise raises it to at most (default what the agent needs)")
	fs.StringVar(&f.session, "session", "", "an open `session` that the task belongs to")
	fs.StringVar(&f.requestID, "request-id", "", "`id` that makes the task once however often it is sent")
}

// members are the members of a request that flags were given for.
func (f *submitFlags) members(cmd *cobra.Command, in io.Reader) (map[string]any, error) {
	out := map[string]any{}
	for flag, v := range map[string]struct {
		member string
		value  any
	}{
		"capability": {"capabilities", f.capabilities}, "type": {"agent_type", f.kind}, "agent": {"agent_id", f.agent}, "sphere": {"sphere_id", f.sphere},
		"priority": {"priority", f.priority}, "budget": {"budget", f.budget}, "timeout": {"timeout_ms", f.timeout.Milliseconds()},
		"retries": {"retries", f.retries}, "workers": {"workers", f.workers}, "session": {"session_id", f.session}, "request-id": {"request_id", f.requestID},
	} {
		if cmd.Flags().Changed(flag) {
			out[v.member] = v.value
		}
	}
	if err := f.addOverrun(cmd, out); err != nil {
		return nil, err
	}
	if !cmd.Flags().Changed("parameters") {
		return out, nil
	}
	object, err := jsonFlag("parameters", f.parameters, in)
	out["parameters"] = object
	return out, err
}

// addOverrun adds what follows when the budget does not cover the work.
func (f *submitFlags) addOverrun(cmd *cobra.Command, out map[string]any) error {
	set := cmd.Flags().Changed
	if !set("on-budget") {
		if set("max-budget") {
			return usagef("--max-budget needs --on-budget raise")
		}
		return nil
	}
	overrun := map[string]any{"action": f.onBudget}
	if set("max-budget") {
		overrun["max_budget"] = f.maxBudget
	}
	out["overrun"] = overrun
	return nil
}

// jsonFlag reads a JSON value that a flag gives, or says where it is.
func jsonFlag(flag, value string, in io.Reader) (json.RawMessage, error) {
	text := []byte(value)
	var err error
	if name, ok := strings.CutPrefix(value, "@"); ok {
		text, err = os.ReadFile(name)
	} else if value == "-" {
		text, err = io.ReadAll(in)
	}
	if err != nil {
		return nil, usagef("--%s cannot be read: %w", flag, err)
	}
	if !json.Valid(text) {
		return nil, usagef("--%s must be JSON, such as '{\"page\": 1}'", flag)
	}
	return text, nil
}

func newTasksSubmitCommand(flags *clientFlags) *cobra.Command {
	var (
		f    submitFlags
		key  string
		wait bool
	)
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Ask for work",
		Long: `Ask for work. The task's id is printed to standard output, everything else goes to
standard error. With --wait the command ends with the task, and prints what that has
put out instead; a task that is not done is exit code 1.`,
		Args: cobra.NoArgs,
		Example: `  comet tasks submit --capability web-search --parameters '{"query": "comets"}' --wait
  ID=$(comet tasks submit --agent research-web-01 --parameters @task.json)`,
	}
	f.register(cmd)
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end and print what the task has put out")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		members, err := f.members(cmd, s.in)
		if err != nil {
			return err
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		params := &client.SubmitTaskParams{IdempotencyKey: given(cmd, "idempotency-key", key)}
		answer, err := s.answer(s.api.SubmitTaskWithBody(ctx, params, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		var t client.TaskView
		if err := decode(answer, &t); err != nil {
			return err
		}
		if wait {
			return s.waitAndPrint(ctx, t.ID)
		}
		return s.out.show(answer, func() error {
			say(s.notes, "%s", standing(string(t.State), t.WaitingFor))
			say(s.out.w, "%s", t.ID)
			return nil
		})
	})
}

// waitAndPrint waits for the end of a task and prints its output: as it is, or for
// programs the task.
func (s *session) waitAndPrint(ctx context.Context, id string) error {
	body, t, err := s.waitFor(ctx, id, 0)
	if err != nil {
		return err
	}
	err = s.out.show(body, func() error { return s.printOutput(ctx, id, &client.GetTaskOutputParams{}) })
	if err == nil {
		err = unfinished(t)
	}
	return err
}
