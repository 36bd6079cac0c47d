package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

func newTasksCancelCommand(flags *clientFlags) *cobra.Command {
	var reason, key string
	cmd := &cobra.Command{Use: "cancel ID", Short: "End a task", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the task")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		params := &client.CancelTaskParams{IdempotencyKey: given(cmd, "idempotency-key", key)}
		body, err := s.answer(s.api.CancelTask(ctx, args[0], params, client.TaskCancellation{Reason: given(cmd, "reason", reason)}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			say(s.out.w, "%s is cancelled", args[0])
			return nil
		})
	})
}

func newTasksAnswerCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "answer ID ANSWER",
		Short:   "Tell a task's agent what it asked back",
		Args:    cobra.ExactArgs(2),
		Example: `  comet tasks answer 01890a5d-ac96-774b-bcce-b302099a8057 'the year 2026'`,
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.ReplyToTask(ctx, args[0], client.TaskReply{Reply: args[1]}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			say(s.out.w, "the agent is told")
			return nil
		})
	})
}

func newTasksWaitCommand(flags *clientFlags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait for the end of a task",
		Long:  "Wait for the end of a task. One that is not done then, or not ended in time, is exit code 1.",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0 is as long as it takes")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, t, err := s.waitFor(ctx, args[0], timeout)
		if err != nil {
			return err
		}
		err = s.out.show(body, func() error {
			say(s.out.w, "%s", standing(string(t.State), t.WaitingFor))
			return nil
		})
		if err == nil {
			err = unfinished(t)
		}
		return err
	})
}

// maxWait is how long one request waits, in seconds; the server may grant less.
const maxWait = 60

// waitFor asks again and again until a task has ended or the time is over; 0 is no
// limit.
func (s *session) waitFor(ctx context.Context, id string, timeout time.Duration) (body []byte, t client.TaskDetail, err error) {
	for begin := time.Now(); ; {
		wait := maxWait
		if timeout > 0 {
			left := timeout - time.Since(begin)
			wait = max(min(wait, int((left+time.Second-1)/time.Second)), 0)
		}
		body, err = s.answer(s.api.GetTask(ctx, id, &client.GetTaskParams{Wait: &wait}))
		if err == nil {
			t = client.TaskDetail{}
			err = decode(body, &t)
		}
		if err != nil || t.EndedAt != nil || wait == 0 {
			return body, t, err
		}
	}
}

// unfinished is the error of a task that is not done.
func unfinished(t client.TaskDetail) error {
	switch {
	case t.EndedAt == nil:
		return fmt.Errorf("the task has not ended: it is %s", standing(string(t.State), t.WaitingFor))
	case t.State == client.TaskDetailStateDone:
		return nil
	case t.Failure != nil:
		return fmt.Errorf("the task failed (%s): %s", printable(*t.Failure), printable(t.Error))
	}
	return fmt.Errorf("the task is %s: %s", t.State, printable(t.Error))
}
