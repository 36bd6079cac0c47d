package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// planWorkflow prints the plan of the workflow in a file, of an intent or of a stored workflow.
func planWorkflow(ctx context.Context, c *call) error {
	return c.printResult(c.sendWorkflow(ctx))
}

// rowOf returns the command of the table with a usage line.
func rowOf(use string) command {
	table := commandTable()
	return table[slices.IndexFunc(table, func(c command) bool { return c.use == use })]
}

// sendWorkflow sends the workflow of the file, of --intent or of --definition, and returns the body of the response.
func (c *call) sendWorkflow(ctx context.Context) ([]byte, error) {
	path, name := given[string](c, "FILE"), given[string](c, "definition")
	sources := 0
	for _, is := range []bool{path != "", name != "", c.changed("intent")} {
		if is {
			sources++
		}
	}
	var err error
	switch config := configOf(c); {
	case sources != 1:
		err = usagef("give exactly one of FILE, --intent and --definition")
	case c.local["input"] != nil && name == "":
		err = usagef("--input requires --definition")
	case path != "":
		err = c.readWorkflow(path, config)
	default:
		if len(config) > 0 {
			c.sent["config"] = config
		}
		if name != "" {
			c.sent["definition"], err = invocationOf(c, name)
		}
	}
	if err != nil {
		return nil, err
	}
	body, err := c.send(ctx)
	return body, withToolError(err)
}

// configOf returns the members of config that the flags of a call set.
func configOf(c *call) map[string]json.RawMessage {
	options := map[string]json.RawMessage{}
	if given[bool](c, "layers") {
		options["per_layer_validation"] = json.RawMessage("true")
	}
	if budget, ok := c.local["budget"].(int64); ok {
		options["budget"] = json.RawMessage(strconv.FormatInt(budget, 10))
	}
	return options
}

// sendTasks sends the workflow in the file that is the second argument.
func sendTasks(ctx context.Context, c *call) error {
	if err := c.readWorkflow(c.args[1], nil); err != nil {
		return err
	}
	body, err := c.send(ctx)
	if err != nil {
		return withToolError(err)
	}
	return c.printResponse(body)
}

// readWorkflow reads the request in a file, with options as members of config.
func (c *call) readWorkflow(path string, options map[string]json.RawMessage) error {
	data, err := c.readInput(path)
	if err != nil {
		return err
	}
	c.file = nameOf(path)
	c.sent["*"], err = workflowRequest(path, data, options)
	return err
}

// invocationOf returns the member definition of a request to start a stored workflow. The name may have a version:
// name@version.
func invocationOf(c *call, name string) (map[string]any, error) {
	name, version, versioned := strings.Cut(name, "@")
	out := map[string]any{"name": name}
	if versioned {
		n, err := strconv.Atoi(version)
		if err != nil {
			return nil, usagef("the version of --definition must be a number, not %q", input.Clip(version))
		}
		out["version"] = n
	}
	if value := c.local["input"]; value != nil {
		out["input"] = value
	}
	return out, nil
}

// workflowRequest returns the request in a JSON or YAML file, with options as members of config.
func workflowRequest(path string, data []byte, options map[string]json.RawMessage) ([]byte, error) {
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
	case len(options) == 0:
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
	maps.Copy(config, options)
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
