package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// webhookFlags are the members of a webhook that flags can set.
type webhookFlags struct {
	events                       []string
	description, agent, ordering string
	subtree, enabled, asymmetric bool
}

func (f *webhookFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.events, "events", nil, "the `events` it hears of, such as agent.created; may be repeated or a list with commas")
	fs.StringVar(&f.description, "description", "", "what the webhook is for")
	fs.StringVar(&f.agent, "agent", "", `only events of this agent; "" for every agent`)
	fs.BoolVar(&f.subtree, "subtree", false, "of the agents below --agent too")
	fs.StringVar(&f.ordering, "ordering", "", "`order` of deliveries: none, or agent for one after the other for each agent")
	fs.BoolVar(&f.enabled, "enabled", true, "--enabled=false delivers nothing, --enabled brings a disabled webhook back")
	fs.BoolVar(&f.asymmetric, "asymmetric", false, "sign with an Ed25519 key as well")
}

// members are the members of a request that flags were given for.
func (f *webhookFlags) members(cmd *cobra.Command) map[string]any {
	out := map[string]any{}
	for flag, v := range map[string]struct {
		member string
		value  any
	}{
		"events": {"events", f.events}, "description": {"description", f.description}, "agent": {"agent_id", f.agent},
		"subtree": {"subtree", f.subtree}, "ordering": {"ordering", f.ordering}, "enabled": {"enabled", f.enabled},
		"asymmetric": {"asymmetric", f.asymmetric},
	} {
		if cmd.Flags().Changed(flag) {
			out[v.member] = v.value
		}
	}
	if out["agent_id"] == "" {
		out["agent_id"] = nil
	}
	return out
}

func newWebhooksCreateCommand(flags *clientFlags) *cobra.Command {
	var (
		f      webhookFlags
		secret string
	)
	cmd := &cobra.Command{
		Use:   "create URL",
		Short: "Send events to a URL",
		Long: `Send events to a URL. The secret that verifies their signatures is printed to
standard output, this once; everything else goes to standard error.`,
		Args: cobra.ExactArgs(1),
		Example: `  comet webhooks create https://your-server.com/webhook --events agent.created,agent.budget_warning
  comet webhooks create https://your-server.com/finance --events agent.updated --agent orch-personnel --subtree --ordering agent`,
	}
	f.register(cmd)
	addSecretFlag(cmd, &secret)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := f.members(cmd)
		members["url"] = args[0]
		if err := readSecret(cmd, s.in, secret, members); err != nil {
			return err
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.CreateWebhookWithBody(ctx, nil, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return showSecret(s, "created", answer)
	})
}

func addSecretFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "secret", "", "a `secret` of your own, whsec_ and 24 to 64 bytes in base64; - reads it from standard input, where others cannot see it")
}

// readSecret puts a secret that was given into the request.
func readSecret(cmd *cobra.Command, in io.Reader, secret string, members map[string]any) error {
	if !cmd.Flags().Changed("secret") {
		return nil
	}
	if secret == "-" {
		text, err := io.ReadAll(in)
		if err != nil {
			return usagef("the secret cannot be read: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	members["secret"] = secret
	return nil
}

// showSecret prints a secret, alone on standard output.
func showSecret(s *session, verb string, body []byte) error {
	return s.out.show(body, func() error {
		var w client.WebhookIssued
		if err := decode(body, &w); err != nil {
			return err
		}
		for _, key := range w.PublicKeys {
			say(s.notes, "public key %s", key)
		}
		say(s.notes, "%s webhook %s; its secret is shown this once:", verb, w.ID)
		if w.Secret != nil {
			say(s.out.w, "%s", *w.Secret)
		}
		return nil
	})
}

func newWebhooksUpdateCommand(flags *clientFlags) *cobra.Command {
	var (
		f   webhookFlags
		url string
	)
	cmd := &cobra.Command{
		Use:     "update ID",
		Short:   "Change a webhook; only what is given changes",
		Args:    cobra.ExactArgs(1),
		Example: `  comet webhooks update 01890a5d-ac96-774b-bcce-b302099a8057 --events agent.created --enabled`,
	}
	f.register(cmd)
	cmd.Flags().StringVar(&url, "url", "", "where the events go, an http or https `URL`")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := f.members(cmd)
		if cmd.Flags().Changed("url") {
			members["url"] = url
		}
		if len(members) == 0 {
			return usagef("nothing to change was given")
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.UpdateWebhookWithBody(ctx, args[0], "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return showWebhook(s, answer)
	})
}

func newWebhooksRotateCommand(flags *clientFlags) *cobra.Command {
	var (
		secret string
		grace  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rotate-secret ID",
		Short: "Give a webhook a new secret; the old one signs too for a while",
		Long: `Give a webhook a new secret. The old one signs every delivery too until the grace
period ends. The new secret is printed to standard output, this once.`,
		Args: cobra.ExactArgs(1),
	}
	addSecretFlag(cmd, &secret)
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old secret signs too, up to 168h; 0 ends it at once")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := map[string]any{}
		if cmd.Flags().Changed("grace") {
			if grace%time.Second != 0 {
				return usagef("--grace must be whole seconds, not %s", fmt.Sprint(grace))
			}
			members["grace_seconds"] = int64(grace / time.Second)
		}
		if err := readSecret(cmd, s.in, secret, members); err != nil {
			return err
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.RotateWebhookSecretWithBody(ctx, args[0], nil, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return showSecret(s, "rotated", answer)
	})
}
