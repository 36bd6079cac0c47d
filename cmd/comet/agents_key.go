package main

import (
	"context"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newAgentKeyCommand holds what an administrator can do with the keys that agents sign
// their lines of PROTOCOL_V5 with.
func newAgentKeyCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Give agents keys to sign with, and take them back"}
	cmd.AddCommand(newKeyIssueCommand(flags), newKeyImportCommand(flags), newKeyShowCommand(flags),
		newKeyRequireCommand(flags), newKeyRevokeCommand(flags))
	return cmd
}

func newKeyIssueCommand(flags *clientFlags) *cobra.Command {
	var required bool
	cmd := &cobra.Command{
		Use:   "issue ID",
		Short: "Make a key for an agent, in the place of the one it had",
		Long: `Make a key for an agent, in the place of the one it had. The key is printed to standard
output, this once; everything else goes to standard error, so KEY=$(comet agents key issue …) works.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&required, "required", false, "every line of the agent has to be signed; where it is not given, that stays as it was")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		return putKey(ctx, s, args[0], client.AgentKeyDraft{Required: given(cmd, "required", required)})
	})
}

func newKeyImportCommand(flags *clientFlags) *cobra.Command {
	var required bool
	cmd := &cobra.Command{
		Use:   "import ID FILE",
		Short: "Take over a key that was agreed on elsewhere; - reads standard input",
		Long: `Take over a key that was agreed on elsewhere: 16 to 128 bytes of text, read from a file, or
from standard input where that is -, never from the command line. One line break at its end is no part of it.`,
		Args:    cobra.ExactArgs(2),
		Example: `  pass show comet/shouter | comet agents key import v5-shouter - --required`,
	}
	cmd.Flags().BoolVar(&required, "required", false, "every line of the agent has to be signed; where it is not given, that stays as it was")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		key, err := readKey(s.in, args[1])
		if err != nil {
			return err
		}
		return putKey(ctx, s, args[0], client.AgentKeyDraft{Key: &key, Required: given(cmd, "required", required)})
	})
}

// putKey gives an agent a key, and prints the one that was made, alone on standard output.
func putKey(ctx context.Context, s *session, agent string, draft client.AgentKeyDraft) error {
	body, err := s.answer(s.api.PutAgentKey(ctx, agent, draft))
	if err != nil {
		return err
	}
	return s.out.show(body, func() error {
		var k client.AgentKeyIssued
		if err := decode(body, &k); err != nil {
			return err
		}
		if k.Key == nil {
			say(s.notes, "%s (%s) has the key %s now", k.AgentID, k.V5Id, k.Fingerprint)
			return nil
		}
		say(s.notes, "made the key %s for %s (%s); it is shown this once:", k.Fingerprint, k.AgentID, k.V5Id)
		say(s.out.w, "%s", *k.Key)
		return nil
	})
}

func newKeyShowCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show what is known of an agent's key, and the agent's number", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetAgentKey(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return showKey(s, body)
	})
}

func newKeyRequireCommand(flags *clientFlags) *cobra.Command {
	var off bool
	cmd := &cobra.Command{Use: "require ID", Short: "Have every line of an agent be signed", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&off, "off", false, "lines need not be signed any more")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.UpdateAgentKey(ctx, args[0], client.AgentKeyChange{Required: !off}))
		if err != nil {
			return err
		}
		return showKey(s, body)
	})
}

func newKeyRevokeCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "revoke ID", Short: "End an agent's key", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.answer(s.api.RevokeAgentKey(ctx, args[0])); err != nil {
			return err
		}
		say(s.notes, "revoked the key of %s", args[0])
		return nil
	})
}

func showKey(s *session, body []byte) error {
	return s.out.show(body, func() error {
		var k client.AgentKeyView
		if err := decode(body, &k); err != nil {
			return err
		}
		return s.out.fields("Agent", k.AgentID, "Number", k.V5Id, "Key", k.Fingerprint, "Required", yesNo(k.Required),
			"Created", moment(&k.CreatedAt)+" by "+k.CreatedBy)
	})
}

// readKey reads a key from a file, or from standard input if path is "-". One trailing line
// break is not part of the key.
func readKey(in io.Reader, path string) (string, error) {
	data, err := readInput(in, path)
	if err != nil {
		return "", err
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case !utf8.ValidString(key): // JSON cannot hold it unchanged
		return "", usagef("the key must be text in UTF-8")
	case key == "":
		return "", usagef("the file %s holds no key", path)
	}
	return key, nil
}
