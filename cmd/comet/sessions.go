package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newSessionsCommand holds what can be done with sessions.
func newSessionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sessions", Aliases: []string{"session"}, Short: "Keep tasks together that belong together"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newSessionsListCommand(flags), newSessionsGetCommand(flags), newSessionsOpenCommand(flags), newSessionsCloseCommand(flags),
		newSessionsQuestionsCommand(flags), newSessionsAnswerCommand(flags))
	return cmd
}

func newSessionsListCommand(flags *clientFlags) *cobra.Command {
	var (
		mine  bool
		limit int
	)
	cmd := &cobra.Command{Use: "list", Short: "List sessions, newest first, also closed ones", Args: cobra.NoArgs}
	cmd.Flags().BoolVar(&mine, "mine", false, "only those that this token opened")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		entries, err := s.pages(limit, "sessions", func(size int, cursor *string) (*http.Response, error) {
			return s.api.ListSessions(ctx, &client.ListSessionsParams{Limit: &size, Cursor: cursor, Mine: given(cmd, "mine", mine)})
		})
		if err != nil {
			return err
		}
		return list(s, "sessions", entries, []string{"ID", "STATE", "AGENT", "OPEN TASKS", "TASKS", "CREATED", "CLOSED"}, func(v client.SessionView) []string {
			return []string{v.ID, string(v.State), optional(v.AgentID), fmt.Sprint(v.OpenTasks), fmt.Sprint(v.Tasks), moment(&v.CreatedAt), moment(v.ClosedAt)}
		})
	})
}

func newSessionsGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show a session", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetSession(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return showSession(s, body)
	})
}

func showSession(s *session, body []byte) error {
	return s.out.show(body, func() error {
		var v client.SessionView
		if err := decode(body, &v); err != nil {
			return err
		}
		return s.out.fields(
			"Session", v.ID, "State", string(v.State), "Agent", text(v.AgentID), "Open tasks", fmt.Sprint(v.OpenTasks), "Tasks", fmt.Sprint(v.Tasks),
			"Facts", compact(v.Context), "Created", moment(&v.CreatedAt), "Closed", moment(v.ClosedAt),
		)
	})
}

func newSessionsOpenCommand(flags *clientFlags) *cobra.Command {
	var facts string
	cmd := &cobra.Command{
		Use:     "open [ID]",
		Short:   "Open a session; its id alone goes to standard output",
		Args:    cobra.MaximumNArgs(1),
		Example: `  SESSION=$(comet sessions open --facts '{"customer": 42}')`,
	}
	cmd.Flags().StringVar(&facts, "facts", "", "what its agents may want to know, a JSON `object`; @FILE reads it from a file, - from standard input")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := map[string]any{}
		if len(args) > 0 {
			members["id"] = args[0]
		}
		if cmd.Flags().Changed("facts") {
			object, err := jsonFlag("facts", facts, s.in)
			if err != nil {
				return err
			}
			members["context"] = object
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.OpenSessionWithBody(ctx, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return s.out.show(answer, func() error {
			var v client.SessionView
			if err := decode(answer, &v); err != nil {
				return err
			}
			say(s.out.w, "%s", v.ID)
			return nil
		})
	})
}

func newSessionsCloseCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "close ID", Short: "Close a session, which takes no further tasks", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.CloseSession(ctx, args[0]))
		if err != nil {
			return err
		}
		return showSession(s, body)
	})
}
