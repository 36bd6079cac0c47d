package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"comet/internal/background"
	"comet/internal/input"
)

// runWorkflow starts the workflow of a file or an intent, and prints its id or, with --wait, its state when it is paused or
// has ended. It prints the plan for an intent that the server does not start.
func runWorkflow(ctx context.Context, c *call) error {
	body, err := c.sendWorkflow(ctx)
	if err != nil {
		return err
	}
	var started struct {
		ID string `json:"workflow_id"`
	}
	if err := decode(body, &started); err != nil {
		return err
	}
	if started.ID == "" {
		plan := rowOf("workflows plan [FILE]")
		c.message, c.secret, c.fields, c.table, c.after, c.failed = "", "", plan.fields, plan.table, plan.after, plan.failed
		return c.printResponse(body)
	}
	if !given[bool](c, "wait") && !given[bool](c, "watch") {
		c.fields, c.table, c.after, c.failed = nil, "", "", ""
		return c.printResponse(body)
	}
	c.message, c.secret = "", ""
	if !given[bool](c, "watch") {
		return c.printResult(c.waitForWorkflow(ctx, body))
	}
	printLine(c.messages, "started workflow %s", started.ID)
	return c.printResult(c.watch(ctx, started.ID))
}

// planWorkflow prints the checked workflow of a file or an intent.
func planWorkflow(ctx context.Context, c *call) error {
	return c.printResult(c.sendWorkflow(ctx))
}

// rowOf returns the row of the table with a use.
func rowOf(use string) command {
	table := commandTable()
	return table[slices.IndexFunc(table, func(c command) bool { return c.use == use })]
}

// sendWorkflow sends the workflow of the file or of --intent, and returns the body of the response.
func (c *call) sendWorkflow(ctx context.Context) ([]byte, error) {
	path, layers := given[string](c, "FILE"), given[bool](c, "layers")
	switch {
	case (path == "") != c.changed("intent"):
		return nil, usagef("give either a FILE or --intent")
	case path == "" && layers:
		c.sent["config"] = map[string]any{"per_layer_validation": true}
	case path != "":
		data, err := c.readInput(path)
		if err != nil {
			return nil, err
		}
		c.file = nameOf(path)
		if c.sent["*"], err = workflowRequest(path, data, layers); err != nil {
			return nil, err
		}
	}
	body, err := c.send(ctx)
	return body, withToolError(err)
}

// workflowRequest returns the request in a JSON or YAML file, with a pause after each layer if layers is set.
func workflowRequest(path string, data []byte, layers bool) ([]byte, error) {
	kind, err := rosterType("", path, data)
	if err != nil {
		return nil, err
	}
	doc := input.Parse(data, input.Format(strings.TrimPrefix(kind, "application/")))
	switch violations := doc.Violations(); {
	case len(violations) > 0:
		return nil, usagef("%s, line %d: %s", nameOf(path), violations[0].Line, violations[0].Detail)
	case doc.Root.Kind != input.Object:
		return nil, usagef("%s must contain an object with the member workflow, not %s", nameOf(path), doc.Root)
	case !layers:
		return doc.Root.JSON(), nil
	}
	var request, config map[string]json.RawMessage
	err = json.Unmarshal(doc.Root.JSON(), &request)
	if given, ok := request["config"]; ok && err == nil && json.Unmarshal(given, &config) != nil {
		return nil, usagef("config in %s must be an object", nameOf(path))
	}
	if config == nil {
		config = map[string]json.RawMessage{}
	}
	config["per_layer_validation"] = json.RawMessage("true")
	if err == nil {
		request["config"], err = json.Marshal(config)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

// waitForWorkflow requests a workflow, whose state is body, again and again until it is paused or has ended.
func (s *session) waitForWorkflow(ctx context.Context, body []byte) ([]byte, error) {
	for first := true; ; first = false {
		var w struct {
			ID     string `json:"workflow_id"`
			Status string `json:"status"`
		}
		err := decode(body, &w)
		if err != nil || w.Status != "running" {
			return body, err
		}
		if !first { // the server does not wait if too many requests do
			err = background.Sleep(ctx, time.Second)
		}
		if err == nil {
			body, err = s.do(ctx, http.MethodGet, fmt.Sprintf("/api/v1/workflows/%s?wait=%d", url.PathEscape(w.ID), int(maxWait.Seconds())), nil, nil)
		}
		if err != nil {
			return nil, err
		}
	}
}
