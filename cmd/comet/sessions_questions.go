package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

func newSessionsQuestionsCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "questions ID", Short: "List what the agents at work in a session have asked back", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.ListQuestions(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var all client.QuestionList
			if err := decode(body, &all); err != nil {
				return err
			}
			rows := make([][]string, len(all.Questions))
			for i, q := range all.Questions {
				options := make([]string, len(q.Options))
				for n, o := range q.Options {
					options[n] = strconv.Itoa(n+1) + " " + o
				}
				rows[i] = []string{q.TaskID, optional(q.AgentID), q.Text, strings.Join(options, ", "), moment(&q.Deadline)}
			}
			return s.out.table([]string{"TASK", "AGENT", "QUESTION", "OPTIONS", "UNTIL"}, rows)
		})
	})
}

func newSessionsAnswerCommand(flags *clientFlags) *cobra.Command {
	var (
		task   string
		choice int
	)
	cmd := &cobra.Command{
		Use:   "answer ID [ANSWER]",
		Short: "Answer what an agent at work in a session asked back",
		Args:  cobra.RangeArgs(1, 2),
		Example: `  comet sessions answer S1 --choice 2
  comet sessions answer trip 'the year 2026' --task 01890a5d-ac96-774b-bcce-b302099a8057`,
	}
	cmd.Flags().StringVar(&task, "task", "", "whose question, where there are several")
	cmd.Flags().IntVar(&choice, "choice", 0, "the number of one of the options, instead of an answer in words")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		reply := client.SessionReply{TaskID: given(cmd, "task", task), Choice: given(cmd, "choice", choice)}
		if len(args) > 1 {
			reply.Reply = &args[1]
		}
		body, err := s.answer(s.api.ReplyToSession(ctx, args[0], reply))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			say(s.out.w, "the agent is told")
			return nil
		})
	})
}
