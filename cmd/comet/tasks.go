package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"comet/internal/telemetry"
	"comet/openapi/client"
)

const taskState = `{{.state}}{{with .waiting_for}}, waits for {{waits .}}{{end}}`

var taskGroups = []commandGroup{
	{name: "tasks", aliases: []string{"task"}, short: "Submit tasks to agents and follow them"},
	{name: "sessions", aliases: []string{"session"}, short: "Manage sessions, which group tasks"},
	{name: "workers", short: "Show the agents that take tasks"},
}

var sessionFields = []column{
	{"Session", "id"}, {"State", "state"}, {"Agent", "agent_id"}, {"Open tasks", "open_tasks"}, {"Tasks", "tasks"},
	{"Context", "context"}, {"Created", "created_at"}, {"Closed", "closed_at"},
}

var taskCommands = []command{
	{
		use: "tasks submit", short: "Submit a task",
		long: `Submit a task. Its id is printed to standard output, everything else goes to standard error.
With --wait the command waits for the end of the task and prints its output instead; a task
that does not succeed is exit code 1.`,
		example: `  comet tasks submit --capability web-search --parameters '{"query": "comets"}' --wait
  ID=$(comet tasks submit --agent research-web-01 --parameters @task.json)`,
		request: "POST /api/v1/tasks",
		params: []param{
			{"--capability", "capabilities", textList, "a capability that the agent must have; may be repeated, or a list with commas"},
			{"--type", "agent_type", text, "only agents of this `type`"},
			{"--agent", "agent_id", text, "only this `agent`"},
			{"--sphere", "sphere_id", number, "only agents of this sphere (1-9)"},
			{"--parameters", "parameters", jsonValue, "the input of the task, a JSON `object`; @FILE reads it from a file, - from standard input"},
			{"--priority", "priority", number, "0 to 3; tasks of a higher priority are dispatched first (default 1)"},
			{"--budget", "budget", number, "how many tokens all attempts together may use"},
			{"--timeout", "timeout_ms", millis, "how long an attempt may be silent (default 30s)"},
			{"--retries", "retries", number, "how many attempts may follow the first (default 3)"},
			{"--workers", "workers", number, "how many workers do it at the same time (2-16); the first success wins"},
			{"--on-budget", "overrun.action", oneOf("give_up", "raise", "simplify"), "what happens if the budget does not cover the task: give_up, raise or simplify"},
			{"--max-budget", "overrun.max_budget", number, "the highest budget that --on-budget raise may set (default what the agent needs)"},
			{"--session", "session_id", text, "an open `session` that the task belongs to"},
			{"--request-id", "request_id", text, "`id` that makes the task once, however often it is sent"},
			idempotencyKey,
			{"--wait", "", switchOn, "wait for the end of the task and print its output"},
		},
		message: taskState, secret: "id", run: submitTask,
	},
	{
		use: "tasks list", short: "List tasks, newest first",
		example: `  comet tasks list --state running --since 1h`,
		request: "GET /api/v1/tasks",
		params: []param{
			{"--state", "state", oneOf("new", "running", "done", "failed", "cancelled"), "only tasks that are new, running, done, failed or cancelled"},
			{"--agent", "agent_id", text, "only tasks whose newest attempt is by this `agent`"},
			{"--session", "session_id", text, "only tasks of this `session`"},
			{"--parent", "parent_id", text, "only subtasks of this `task`"},
			{"--since", "since", timeOrAgo, "only tasks since this `time`, such as 2026-01-10T00:00:00Z, or 2h ago"},
			{"--until", "until", timeOrAgo, "only tasks before this `time`"},
			{"--mine", "mine", yesOrNo, "only tasks that this token submitted"},
			limitFlag,
		},
		pages: "tasks",
		columns: []column{
			{"ID", "id"}, {"STATE", taskState}, {"AGENT", "agent_id"}, {"ATTEMPT", "attempt"}, {"PROGRESS", "{{.progress}} %"},
			{"CREATED", "created_at"}, {"ENDED", "ended_at"},
		},
	},
	{
		use: "tasks get ID", short: "Show a task and its attempts", request: "GET /api/v1/tasks/{task_id}",
		fields: []column{
			{"Task", "id"}, {"State", taskState}, {"Agent", "agent_id"}, {"Requires", "request.capabilities"}, {"Priority", "priority"},
			{"Session", "session_id"}, {"Parent", "parent_id"}, {"Progress", "{{.progress}} %{{with .step_name}} {{.}}{{end}}"},
			{"Question", `{{with .question}}{{.text}} {{join .options " | "}}{{end}}`}, {"Tokens", "{{.tokens}}{{with .budget}} of {{.}}{{end}}"},
			{"Exit code", "exit_code"}, {"Failure", "failure"}, {"Error", "error"},
			{"Output", `{{count .output.bytes "byte" "bytes"}}`}, {"Log", `{{count .log.bytes "byte" "bytes"}}`},
			{"Created", "created_at"}, {"Deadline", "deadline"}, {"Ended", "ended_at"},
		},
		rows: "attempts",
		columns: []column{
			{"ATTEMPT", "attempt"}, {"AGENT", "agent_id"}, {"STATE", "state"}, {"ASSIGNED", "assigned_at"}, {"ENDED", "ended_at"},
			{"FAILURE", "{{with .failure}}{{.}}{{end}}"}, {"ERROR", "error"},
		},
	},
	{
		use: "tasks cancel ID", short: "Cancel a task", request: "POST /api/v1/tasks/{task_id}/cancel",
		params:  []param{{"--reason", "reason", text, "why; the task shows it"}, idempotencyKey},
		message: "{{.id}} is cancelled",
	},
	{
		use: "tasks reply ID REPLY", short: "Reply to the question of a task's agent",
		example: `  comet tasks reply 01890a5d-ac96-774b-bcce-b302099a8057 'the year 2026'`,
		request: "POST /api/v1/tasks/{task_id}/reply", params: []param{{"REPLY", "reply", text, ""}}, message: "the reply is sent to the agent",
	},
	{
		use: "tasks output ID", short: "Print the output of a task byte by byte",
		long: `Print the output of a task byte by byte, as its agent sent it; on a terminal control
characters are shown instead of obeyed.`,
		request: "GET /api/v1/tasks/{task_id}/output",
		params: []param{
			{"--log", "", switchOn, "print the log of the task instead of its result"},
			{"--follow -f", "", switchOn, "go on until the task has ended"},
		},
		run: func(ctx context.Context, c *call) error {
			params := &client.GetTaskOutputParams{}
			if c.changed("follow") {
				params.Follow = new(c.flagText("follow") != "")
			}
			if c.flagText("log") != "" {
				params.Stream = new(client.GetTaskOutputParamsStreamLog)
			}
			return c.printOutput(ctx, c.args[0], params)
		},
	},
	{
		use: "tasks messages ID", short: "Show the logged protocol messages about a task",
		request: "GET /api/v1/tasks/{task_id}/messages", params: []param{limitFlag}, pages: "messages",
		columns: []column{
			{"AT", "at"}, {"ID", "id"}, {"CAUSE", "parent_id"}, {"FROM", "from"}, {"TO", "to"}, {"TYPE", "type"}, {"CODE", "err"}, {"DATA", "data"},
		},
	},
	{
		use: "tasks wait ID", short: "Wait for the end of a task",
		long:    "Wait for the end of a task. A task that does not succeed, or does not end in time, is exit code 1.",
		request: "GET /api/v1/tasks/{task_id}",
		params:  []param{{"--timeout", "", kind{placeholder: "duration", local: true}, "how long to wait; 0 is for ever"}},
		run:     waitForTask,
	},
	{
		use: "sessions list", short: "List sessions, newest first, with closed ones",
		request: "GET /api/v1/sessions", params: []param{{"--mine", "mine", yesOrNo, "only sessions that this token opened"}, limitFlag},
		pages: "sessions",
		columns: []column{
			{"ID", "id"}, {"STATE", "state"}, {"AGENT", "agent_id"}, {"OPEN TASKS", "open_tasks"}, {"TASKS", "tasks"},
			{"CREATED", "created_at"}, {"CLOSED", "closed_at"},
		},
	},
	{use: "sessions get ID", short: "Show a session", request: "GET /api/v1/sessions/{session_id}", fields: sessionFields},
	{
		use: "sessions open [ID]", short: "Open a session; only its id goes to standard output",
		example: `  SESSION=$(comet sessions open --context '{"customer": 42}')`,
		request: "POST /api/v1/sessions",
		params: []param{
			{"ID", "id", text, ""},
			{"--context", "context", jsonValue, "the context for the agents, a JSON `object`; @FILE reads it from a file, - from standard input"},
		},
		secret: "id",
	},
	{use: "sessions close ID", short: "Close a session; it takes no more tasks", request: "POST /api/v1/sessions/{session_id}/close", fields: sessionFields},
	{
		use: "sessions questions ID", short: "List the open questions of the agents in a session",
		request: "GET /api/v1/sessions/{session_id}/questions", rows: "questions",
		columns: []column{
			{"TASK", "task_id"}, {"AGENT", "agent_id"}, {"QUESTION", "text"},
			{"OPTIONS", `{{range $i, $o := .options}}{{if $i}}, {{end}}{{add $i 1}} {{$o}}{{end}}`}, {"UNTIL", "deadline"},
		},
	},
	{
		use: "sessions reply ID [REPLY]", short: "Reply to a question of an agent in a session",
		example: `  comet sessions reply S1 --choice 2
  comet sessions reply trip 'the year 2026' --task 01890a5d-ac96-774b-bcce-b302099a8057`,
		request: "POST /api/v1/sessions/{session_id}/reply",
		params: []param{
			{"REPLY", "reply", text, ""},
			{"--task", "task_id", text, "the `task` whose question it is, if there are several"},
			{"--choice", "choice", number, "the number of one of the options, instead of a text"},
		},
		message: "the reply is sent to the agent",
	},
	{
		use: "workers list", short: "List known workers", request: "GET /api/v1/workers",
		params: []param{{"--worker", "v5_id", text, "only the agent that PROTOCOL_V5 calls `W<n>`, such as W41"}},
		pages:  "workers",
		columns: []column{
			{"AGENT", "agent_id"}, {"V5", "v5_id"}, {"STATE", "state"}, {"PROTOCOL", "{{.protocol}}{{with .protocol_version}} {{.}}{{end}}"}, {"TRANSPORT", "transport"},
			{"BUSY", "{{.in_flight}} of {{.concurrency}}"}, {"LOAD", "{{.load}} %"}, {"BREAKER", "{{.breaker.state}}{{with .breaker.until}} until {{.}}{{end}}"}, {"LAST SEEN", "last_seen_at"},
		},
	},
	{
		use: "workers get AGENT", short: "Show a worker", request: "GET /api/v1/workers/{agent_id}",
		fields: []column{
			{"Agent", "agent_id"}, {"In PROTOCOL_V5", "v5_id"}, {"State", "state"}, {"Protocol", "{{.protocol}}{{with .protocol_version}} {{.}}{{end}}"}, {"Transport", "transport"},
			{"Busy", "{{.in_flight}} of {{.concurrency}}"}, {"Load", "{{.load}} %"}, {"Failures", "failures"},
			{"Breaker", "{{.breaker.state}}{{with .breaker.until}} until {{.}}{{end}}"}, {"Last assigned", "last_assigned_at"}, {"Last seen", "last_seen_at"},
		},
	},
}

func submitTask(ctx context.Context, c *call) error {
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	if c.flagText("wait") == "" {
		return c.printResponse(body)
	}
	var submitted client.TaskView
	if err := decode(body, &submitted); err != nil {
		return err
	}
	body, t, err := c.waitFor(ctx, submitted.ID, 0)
	if err != nil {
		return err
	}
	err = c.out.show(body, func() error { return c.printOutput(ctx, t.ID, &client.GetTaskOutputParams{}) })
	if err == nil {
		err = unsuccessful(t)
	}
	return err
}

func waitForTask(ctx context.Context, c *call) error {
	timeout := time.Duration(0)
	if text := c.flagText("timeout"); text != "" {
		var err error
		if timeout, err = parseDuration(text); err != nil {
			return usagef("--timeout: %w", err)
		}
	}
	body, t, err := c.waitFor(ctx, c.args[0], timeout)
	if err != nil {
		return err
	}
	err = c.out.show(body, func() error {
		printLine(c.out.w, "%s", stateOf(t))
		return nil
	})
	if err == nil {
		err = unsuccessful(t)
	}
	return err
}

// maxWait is how long one request waits, in seconds; the server may allow less.
const maxWait = 60

// waitFor requests a task again and again until it has ended or the timeout has passed; 0 is
// no timeout.
func (s *session) waitFor(ctx context.Context, id string, timeout time.Duration) (body []byte, t client.TaskDetail, err error) {
	for begin := time.Now(); ; {
		wait := maxWait
		if timeout > 0 {
			left := timeout - time.Since(begin)
			wait = max(min(wait, int((left+time.Second-1)/time.Second)), 0)
		}
		body, err = s.readResponse(s.api.GetTask(ctx, id, &client.GetTaskParams{Wait: &wait}))
		if err == nil {
			t = client.TaskDetail{}
			err = decode(body, &t)
		}
		if err != nil || t.EndedAt != nil || wait == 0 {
			return body, t, err
		}
	}
}

// stateOf is a task's state with what it waits for.
func stateOf(t client.TaskDetail) string {
	if t.WaitingFor == nil {
		return string(t.State)
	}
	return string(t.State) + ", waits for " + waitsText(string(*t.WaitingFor))
}

// unsuccessful is the error of a task that did not succeed, nil if it did.
func unsuccessful(t client.TaskDetail) error {
	switch {
	case t.EndedAt == nil:
		return fmt.Errorf("the task has not ended: it is %s", stateOf(t))
	case t.State == client.TaskDetailStateDone:
		return nil
	case t.Failure != nil:
		return fmt.Errorf("the task failed (%s): %s", printable(*t.Failure), printable(t.Error))
	}
	return fmt.Errorf("the task is %s: %s", t.State, printable(t.Error))
}

// printOutput copies a task's output to standard output.
func (s *session) printOutput(ctx context.Context, id string, params *client.GetTaskOutputParams) error {
	resp, err := s.streaming().GetTaskOutput(ctx, id, params)
	if err != nil {
		return s.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		_, err := s.readResponse(resp, nil)
		return err
	}
	if telemetry.IsTerminal(s.out.w) {
		err = copyPrintable(s.out.w, resp.Body)
	} else {
		_, err = io.Copy(s.out.w, resp.Body)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("the output was cut off: %w", err)
	}
	return err
}

// streaming is the API without a time limit, for responses that go on.
func (s *session) streaming() *client.Client {
	c := *s.api
	c.Client = &http.Client{}
	return &c
}

// copyPrintable copies text as it comes, and shows control characters instead of sending them
// to a terminal. It ends the last line.
func copyPrintable(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for last := '\n'; ; {
		c, size, err := in.ReadRune()
		if err != nil {
			if last != '\n' {
				_ = out.WriteByte('\n') // Flush returns its error
			}
			_ = out.Flush()
			if err == io.EOF { //nolint:errorlint // as io.Reader promises it
				return nil
			}
			return err
		}
		last = c
		switch {
		case c == utf8.RuneError && size == 1, isControl(c) && c != '\n' && c != '\t':
			_, _ = fmt.Fprintf(out, `\u%04x`, c) // Flush returns its error
		default:
			_, _ = out.WriteRune(c)
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
