package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newTokensCommand holds what an administrator can do with bearer tokens.
func newTokensCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tokens", Aliases: []string{"token"}, Short: "Issue and revoke tokens"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newTokensCreateCommand(flags), newTokensListCommand(flags), newTokensGetCommand(flags),
		newTokensRevokeCommand(flags), newTokensRotateCommand(flags))
	return cmd
}

func newTokensCreateCommand(flags *clientFlags) *cobra.Command {
	var (
		scopes         []string
		agent, expires string
		validFor       time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Issue a token",
		Long: `Issue a token. Its secret is printed to standard output, this once; everything
else goes to standard error, so TOKEN=$(comet tokens create …) works.`,
		Args:    cobra.ExactArgs(1),
		Example: `  comet tokens create ci-importer --scope agents:read,agents:write --valid-for 720h`,
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&scopes, "scope", nil, "a `scope`, such as admin, agents:read or agents:write; may be repeated or a list with commas")
	fs.StringVar(&agent, "agent", "", "the `agent` that will hold the token")
	fs.StringVar(&expires, "expires-at", "", "when it ends, a `time` such as 2027-01-10T00:00:00Z")
	fs.DurationVar(&validFor, "valid-for", 0, "how long it is valid, such as 720h; instead of --expires-at")
	cmd.MarkFlagsMutuallyExclusive("expires-at", "valid-for")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if len(scopes) == 0 {
			return usagef("a token needs at least one --scope")
		}
		draft := client.TokenDraft{Name: args[0], AgentID: given(cmd, "agent", agent)}
		for _, scope := range scopes {
			draft.Scopes = append(draft.Scopes, client.TokenScope(scope))
		}
		if cmd.Flags().Changed("expires-at") {
			at, err := time.Parse(time.RFC3339, expires)
			if err != nil {
				return usagef("--expires-at must be a time such as 2027-01-10T00:00:00Z, not %q", expires)
			}
			draft.ExpiresAt = &at
		}
		if cmd.Flags().Changed("valid-for") {
			draft.ExpiresAt = new(time.Now().Add(validFor).UTC().Truncate(time.Second))
		}
		body, err := s.answer(s.api.CreateToken(ctx, nil, draft))
		if err != nil {
			return err
		}
		return showIssued(s, "created", body)
	})
}

// showIssued prints a new secret, alone on standard output.
func showIssued(s *session, verb string, body []byte) error {
	return s.out.show(body, func() error {
		var t client.TokenIssued
		if err := decode(body, &t); err != nil {
			return err
		}
		say(s.notes, "%s token %s (%s); its secret is shown this once:", verb, t.Name, t.ID)
		if t.Token != nil {
			say(s.out.w, "%s", *t.Token)
		}
		return nil
	})
}

func newTokensListCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List tokens, also ended ones, without their secrets", Args: cobra.NoArgs}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		entries, err := s.pages(0, "tokens", func(size int, cursor *string) (*http.Response, error) {
			return s.api.ListTokens(ctx, &client.ListTokensParams{Limit: &size, Cursor: cursor})
		})
		if err != nil {
			return err
		}
		return list(s, "tokens", entries, []string{"ID", "NAME", "SCOPES", "AGENT", "CREATED", "EXPIRES", "REVOKED"}, func(t client.TokenView) []string {
			return []string{t.ID, t.Name, scopeList(t.Scopes), optional(t.AgentID), moment(&t.CreatedAt), moment(t.ExpiresAt), moment(t.RevokedAt)}
		})
	})
}

func newTokensGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show a token without its secret", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetToken(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var t client.TokenView
			if err := decode(body, &t); err != nil {
				return err
			}
			return s.out.fields(tokenFields(t)...)
		})
	})
}

func tokenFields(t client.TokenView) []string {
	return []string{
		"Token", t.ID, "Name", t.Name, "Scopes", scopeList(t.Scopes), "Agent", optional(t.AgentID),
		"Created", moment(&t.CreatedAt) + " by " + t.CreatedBy, "Rotated", moment(t.RotatedAt),
		"Expires", moment(t.ExpiresAt), "Revoked", moment(t.RevokedAt),
	}
}

func newTokensRevokeCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "revoke ID", Short: "End a token", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.answer(s.api.RevokeToken(ctx, args[0])); err != nil {
			return err
		}
		say(s.notes, "revoked %s", args[0])
		return nil
	})
}

func newTokensRotateCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a token a new secret and end the old one",
		Long:  "Give a token a new secret and end the old one. The new secret is printed to standard output, this once.",
		Args:  cobra.ExactArgs(1),
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.RotateToken(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return showIssued(s, "rotated", body)
	})
}

func scopeList(scopes []client.TokenScope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ",")
}

// moment writes a time, "-" for none.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
