package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"comet/internal/input"
	"comet/internal/workflow/outline"
)

// watchWorkflow prints the tasks of a workflow as they begin and end, and its state when it is paused or has ended.
func watchWorkflow(ctx context.Context, c *call) error {
	return c.printResult(c.watch(ctx, c.args[0]))
}

// watch prints the tasks of a workflow as they begin and end on standard error, and returns its state when it is paused or
// has ended.
func (c *call) watch(ctx context.Context, id string) (ended []byte, err error) {
	tasks := &outline.Progress{Print: func(line string) { printLine(c.messages, "%s", line) }}
	read := func(ctx context.Context) error { // returns errTailed when the workflow no longer runs
		req, err := c.httpRequest(ctx, http.MethodGet, "/api/v1/workflows/"+url.PathEscape(id), http.Header{}, nil)
		if err != nil {
			return err
		}
		resp, err := c.http.Do(req)
		body, err := c.readResponse(resp, err)
		if err != nil {
			return err
		}
		tag, _, _ := strings.Cut(strings.Trim(resp.Header.Get("ETag"), `"`), ".")
		version, _ := strconv.ParseInt(tag, 10, 64) // 0 without an ETag: tasks may be printed twice
		done, err := tasks.State(body, version)
		if done {
			ended, err = body, errTailed
		}
		return err
	}
	events := &follower{call: &call{session: c.session, command: command{request: "GET /api/v1/events"}, cmd: c.cmd, sent: map[string]any{"workflow_id": id}}}
	events.opened = read // later changes arrive as events
	events.show = func(ctx context.Context, e input.Event) error {
		done, err := tasks.Event(string(e.Name), e.Data)
		if done {
			return read(ctx)
		}
		return err
	}
	if err := events.run(ctx); err != nil {
		return nil, c.suggest(ctx, err, c.ids, c.args)
	}
	if ended == nil {
		return nil, ctx.Err()
	}
	return ended, nil
}

// graphWorkflow prints the graph of a workflow, or of the workflow in a file.
func graphWorkflow(ctx context.Context, c *call) error {
	draw := map[string]func([]outline.Task) string{"": outline.Mermaid, "mermaid": outline.Mermaid, "dot": outline.Dot}[given[string](c, "output")]
	if draw == nil {
		return usagef("the output format must be mermaid or dot, not %q", given[string](c, "output"))
	}
	send, name := c.send, c.args[0]
	if _, err := os.Stat(name); name == "-" || err == nil || !strings.HasPrefix(name, "wf_") {
		send, c.request, c.local["FILE"] = c.sendWorkflow, rowOf("workflows plan [FILE]").request, name
	}
	body, err := send(ctx)
	if err != nil {
		return err
	}
	var graph struct {
		Tasks []outline.Task `json:"tasks"`
	}
	err = decode(body, &graph)
	for line := range strings.Lines(draw(graph.Tasks)) {
		printLine(c.out.w, "%s", strings.TrimSuffix(line, "\n"))
	}
	return err
}
