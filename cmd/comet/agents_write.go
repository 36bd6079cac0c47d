package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// agentFlags are the members of an agent that flags can set.
type agentFlags struct {
	name, description, kind, parent, scope, file string
	level, sphere, frequency                     int
	budget                                       int64
	capabilities                                 []string
	active                                       bool
}

func (f *agentFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "display `name`")
	fs.StringVar(&f.description, "description", "", "what the agent is for")
	fs.StringVar(&f.kind, "type", "", "`type` in the envelope protocol: infra, desktop, code, research or another word")
	fs.StringVar(&f.parent, "parent", "", "the `agent` above it")
	fs.IntVar(&f.sphere, "sphere", 0, "sphere (1-9)")
	fs.Int64Var(&f.budget, "budget", 0, "tokens it may use a day")
	fs.StringVar(&f.scope, "budget-scope", "", "what the budget is held against: own use only, or that of the whole subtree too (own, subtree)")
	fs.StringSliceVar(&f.capabilities, "capability", nil, "a `capability`; may be repeated or a list with commas")
	fs.StringVarP(&f.file, "file", "f", "", "JSON `file` with the request, - for standard input; instead of the other flags")
}

// members are the members of a request that flags were given for.
func (f *agentFlags) members(cmd *cobra.Command) map[string]any {
	values := map[string]struct {
		member string
		value  any
	}{
		"name": {"name", f.name}, "description": {"description", f.description}, "type": {"type", f.kind},
		"parent": {"parent_id", f.parent}, "sphere": {"sphere_id", f.sphere}, "budget": {"token_budget", f.budget},
		"budget-scope": {"budget_scope", f.scope},
		"capability":   {"capabilities", f.capabilities}, "level": {"level", f.level}, "frequency": {"frequency_hz", f.frequency},
		"active": {"is_active", f.active},
	}
	out := map[string]any{}
	for flag, v := range values {
		if cmd.Flags().Changed(flag) {
			out[v.member] = v.value
		}
	}
	return out
}

// body returns the request: the file as it is, or what the members make.
func (f *agentFlags) body(cmd *cobra.Command, in io.Reader, members map[string]any) ([]byte, error) {
	if !cmd.Flags().Changed("file") {
		return json.Marshal(members)
	}
	if len(members) > 0 {
		return nil, usagef("--file replaces the flags and arguments that describe the agent; give one or the other")
	}
	return readInput(in, f.file)
}

// readInput reads a file, or standard input for "-".
func readInput(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	return data, nil
}

func newAgentsCreateCommand(flags *clientFlags) *cobra.Command {
	var (
		f   agentFlags
		key string
	)
	cmd := &cobra.Command{
		Use:   "create [ID]",
		Short: "Create an agent",
		Args:  cobra.MaximumNArgs(1),
		Example: `  comet agents create daily-standup-assistant --name "Daily Standup Assistant" --level 3 --sphere 2 \
      --frequency 444 --parent project-business --capability scheduling,reminders --budget 15000
  comet agents create -f agent.json`,
	}
	f.register(cmd)
	cmd.Flags().IntVar(&f.level, "level", 0, "level (1-3)")
	cmd.Flags().IntVar(&f.frequency, "frequency", 0, "frequency in Hz: L1 888, L2 555 or 666, L3 444")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := f.members(cmd)
		if len(args) > 0 {
			members["id"] = args[0]
		}
		body, err := f.body(cmd, s.in, members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.CreateAgentWithBody(ctx,
			&client.CreateAgentParams{IdempotencyKey: given(cmd, "idempotency-key", key)}, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		var created client.AgentCreated
		if err := decode(answer, &created); err != nil {
			return err
		}
		s.warn(created.Warnings)
		return s.out.show(answer, func() error {
			say(s.out.w, "created %s", created.ID)
			return nil
		})
	})
}

// warn tells the person what the server accepted with reservations.
func (s *session) warn(warnings *[]client.FieldError) {
	if warnings == nil {
		return
	}
	for _, w := range *warnings {
		say(s.notes, "warning: %s", w.Detail)
	}
}

func newAgentsUpdateCommand(flags *clientFlags) *cobra.Command {
	var (
		f     agentFlags
		match string
	)
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change an agent; only what is given changes",
		Args:  cobra.ExactArgs(1),
		Example: `  comet agents update custom-assistant --budget 25000
  echo '{"name": "New Name"}' | comet agents update custom-assistant -f -`,
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.active, "active", false, "--active restores the agent, --active=false deactivates it")
	cmd.Flags().StringVar(&match, "if-match", "", "change the agent only while it has this `ETag`")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := f.body(cmd, s.in, f.members(cmd))
		if err != nil {
			return err
		}
		if string(body) == "{}" {
			return usagef("nothing to change was given")
		}
		return s.patch(ctx, args[0], given(cmd, "if-match", match), body)
	})
}

// patch sends a partial update and prints the agent as it is then.
func (s *session) patch(ctx context.Context, id string, ifMatch *string, body []byte) error {
	answer, err := s.answer(s.api.UpdateAgentWithBody(ctx, id, &client.UpdateAgentParams{IfMatch: ifMatch}, "application/json", bytes.NewReader(body)))
	if err != nil {
		return err
	}
	var updated client.AgentDetail
	if err := decode(answer, &updated); err != nil {
		return err
	}
	s.warn(updated.Warnings)
	return showAgent(s, answer)
}

func newAgentsDeleteCommand(flags *clientFlags) *cobra.Command {
	var match string
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Deactivate an agent",
		Long:  `Deactivate an agent. It stays in the registry and "comet agents restore" brings it back.`,
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&match, "if-match", "", "delete the agent only while it has this `ETag`")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		_, err := s.answer(s.api.DeleteAgent(ctx, args[0], &client.DeleteAgentParams{IfMatch: given(cmd, "if-match", match)}))
		if err != nil {
			return err
		}
		say(s.notes, "deactivated %s", args[0])
		return nil
	})
}

func newAgentsRestoreCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "restore ID", Short: "Bring a deactivated agent back", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		return s.patch(ctx, args[0], nil, []byte(`{"is_active": true}`))
	})
}
