package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	a2a "comet/internal/a2a/client"
	"comet/internal/a2a/console"
	"comet/internal/telemetry"
	"comet/openapi/client"
)

// remoteAgent reads the card of an A2A agent: that at a URL, or of an agent of the server.
func (c *call) remoteAgent(ctx context.Context) (*console.Agent, error) {
	target, secret := c.args[0], given[string](c, "bearer")
	if !strings.Contains(target, "://") {
		target, secret = strings.TrimSuffix(c.server, "/")+"/a2a/agents/"+url.PathEscape(target)+"/agent-card.json", c.token
	}
	a, err := console.Read(ctx, target, secret, "comet/"+telemetry.ReadBuild(version).Version)
	return a, withStatus(err)
}

// withStatus gives an error of an A2A agent the HTTP status from which its exit code follows.
func withStatus(err error) error {
	failed, ok := errors.AsType[*a2a.Error](err)
	if !ok {
		return err
	}
	statuses := map[a2a.Kind]int{a2a.Refused: http.StatusUnprocessableEntity, a2a.Unauthorized: http.StatusUnauthorized, a2a.Unreachable: http.StatusServiceUnavailable}
	if failed.Reason == "TASK_NOT_FOUND" {
		statuses[failed.Kind] = http.StatusNotFound
	}
	return &apiError{status: statuses[failed.Kind], problem: client.Problem{Title: failed.Text}}
}

// showCard prints what the card of an A2A agent says, or its error.
func showCard(ctx context.Context, c *call) error {
	a, err := c.remoteAgent(ctx)
	if err != nil {
		return err
	}
	if c.out.format != formatTable {
		return c.printResponse(a.Raw)
	}
	return c.printResponse(a.Summary())
}

// sendA2A sends a message to an A2A agent and prints the artifacts of its task.
func sendA2A(ctx context.Context, c *call) error {
	data, _ := c.local["data"].(json.RawMessage)
	m := console.Message{
		ID: given[string](c, "message-id"), ContextID: given[string](c, "context"), TaskID: given[string](c, "task"), Capability: given[string](c, "capability"),
		Text: strings.Join(c.args[1:], " "), Data: data, NoWait: given[bool](c, "no-wait"),
	}
	if m.Text == "" && data == nil {
		return usagef("give a text or --data")
	}
	a, err := c.remoteAgent(ctx)
	if err != nil {
		return err
	}
	failure, err := a.Send(ctx, m, newDisplay(c.out.w, c.messages, false), func(text string) { printLine(c.messages, "%s", text) })
	if failure != "" && err == nil {
		err = &endedError{exitFailure, failure}
	}
	return withStatus(err)
}
