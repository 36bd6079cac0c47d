package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newTasksCommand holds what can be done with tasks.
func newTasksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tasks", Aliases: []string{"task"}, Short: "Ask agents for work and see what becomes of it"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(
		newTasksSubmitCommand(flags), newTasksListCommand(flags), newTasksGetCommand(flags), newTasksCancelCommand(flags),
		newTasksAnswerCommand(flags), newTasksOutputCommand(flags), newTasksLinesCommand(flags), newTasksWaitCommand(flags),
	)
	return cmd
}

func newTasksListCommand(flags *clientFlags) *cobra.Command {
	var (
		state, agent, group, parent, since, until string
		mine                                      bool
		limit                                     int
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tasks, newest first",
		Args:    cobra.NoArgs,
		Example: `  comet tasks list --state running --since 1h`,
	}
	fs := cmd.Flags()
	fs.StringVar(&state, "state", "", "only tasks that are new, running, done, failed or cancelled")
	fs.StringVar(&agent, "agent", "", "only tasks whose newest attempt this `agent` makes")
	fs.StringVar(&group, "session", "", "only tasks of this `session`")
	fs.StringVar(&parent, "parent", "", "only tasks handed off from this `task`")
	fs.StringVar(&since, "since", "", "only those from this `time` on, such as 2026-01-10T00:00:00Z, or from 2h ago on")
	fs.StringVar(&until, "until", "", "only those before this `time`")
	fs.BoolVar(&mine, "mine", false, "only those that this token asked for")
	fs.IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		from, err := timeFlag(cmd, "since", since)
		if err != nil {
			return err
		}
		to, err := timeFlag(cmd, "until", until)
		if err != nil {
			return err
		}
		params := client.ListTasksParams{
			State: given(cmd, "state", client.ListTasksParamsState(state)), AgentID: given(cmd, "agent", agent),
			SessionID: given(cmd, "session", group), ParentID: given(cmd, "parent", parent), Since: from, Until: to, Mine: given(cmd, "mine", mine),
		}
		entries, err := s.pages(limit, "tasks", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListTasks(ctx, &params)
		})
		if err != nil {
			return err
		}
		return list(s, "tasks", entries, []string{"ID", "STATE", "AGENT", "ATTEMPT", "PROGRESS", "CREATED", "ENDED"}, func(t client.TaskView) []string {
			return []string{
				t.ID, standing(string(t.State), t.WaitingFor), optional(t.AgentID), fmt.Sprint(t.Attempt), fmt.Sprintf("%d %%", t.Progress),
				moment(&t.CreatedAt), moment(t.EndedAt),
			}
		})
	})
}

// standing is a task's state with what it waits for.
func standing[W ~string](state string, waits *W) string {
	if waits == nil {
		return state
	}
	return state + ", waits for " + map[string]string{"worker": "an agent", "retry": "the next attempt", "reply": "an answer"}[string(*waits)]
}

func newTasksGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show a task: its attempts, and what happened to it", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetTask(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error { return showTask(s, body) })
	})
}

func showTask(s *session, body []byte) error {
	var t client.TaskDetail
	if err := decode(body, &t); err != nil {
		return err
	}
	needs := strings.Join(t.Request.Capabilities, ", ")
	question := ""
	if t.Question != nil {
		question = strings.TrimSpace(t.Question.Text + " " + strings.Join(t.Question.Options, " | "))
	}
	exit := ""
	if t.ExitCode != nil {
		exit = fmt.Sprint(*t.ExitCode)
	}
	err := s.out.fields(
		"Task", t.ID, "State", standing(string(t.State), t.WaitingFor), "Agent", text(t.AgentID), "Needs", needs, "Priority", fmt.Sprint(t.Priority),
		"Session", text(t.SessionID), "Parent", text(t.ParentID), "Progress", strings.TrimSpace(fmt.Sprintf("%d %% %s", t.Progress, t.StepName)),
		"Question", question, "Tokens", spent(t.Tokens, t.Budget), "Exit code", exit, "Failure", text(t.Failure), "Error", t.Error,
		"Output", bytesOf(t.Output.Bytes), "Log", bytesOf(t.Log.Bytes), "Created", moment(&t.CreatedAt), "Deadline", moment(t.Deadline), "Ended", moment(t.EndedAt),
	)
	if err != nil || len(t.Attempts) == 0 {
		return err
	}
	rows := make([][]string, len(t.Attempts))
	for i, a := range t.Attempts {
		rows[i] = []string{fmt.Sprint(a.Attempt), optional(a.AgentID), string(a.State), moment(&a.AssignedAt), moment(a.EndedAt), text(a.Failure), a.Error}
	}
	say(s.out.w, "")
	return s.out.table([]string{"ATTEMPT", "AGENT", "STATE", "ASSIGNED", "ENDED", "FAILURE", "ERROR"}, rows)
}

func spent(tokens int64, budget *int64) string {
	if budget == nil {
		return fmt.Sprint(tokens)
	}
	return fmt.Sprintf("%d of %d", tokens, *budget)
}

func bytesOf(n int64) string { return count(int(n), "byte", "bytes") }
