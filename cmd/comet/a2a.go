package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"comet/internal/a2a/client"
	"comet/internal/a2a/console"
	"comet/internal/telemetry"
)

// remoteAgent reads the card of an A2A agent: that at a URL, or of an agent of the server.
func (c *call) remoteAgent(ctx context.Context, target string) (*console.Agent, error) {
	o := client.Options{Transport: http.DefaultTransport, UserAgent: "comet/" + telemetry.ReadBuild(version).Version}
	secret := given[string](c, "bearer")
	if !strings.Contains(target, "://") {
		target, secret = strings.TrimSuffix(c.server, "/")+"/a2a/agents/"+url.PathEscape(target)+"/agent-card.json", c.token
	}
	if secret != "" {
		o.Header, o.Value = "Authorization", "Bearer "+secret
	}
	return console.Read(ctx, target, o)
}

// showCard prints what the card of an A2A agent says, or its error.
func showCard(ctx context.Context, c *call) error {
	a, err := c.remoteAgent(ctx, c.args[0])
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"card": a.Card, "endpoint": a.Endpoint})
	if c.out.format != formatTable {
		body = a.Raw
	}
	if err != nil {
		return err
	}
	return c.printResponse(body)
}

// sendA2A sends a message to an A2A agent and prints the artifacts of its task.
func sendA2A(ctx context.Context, c *call) error {
	a, err := c.remoteAgent(ctx, c.args[0])
	if err != nil {
		return err
	}
	m := client.Message{MessageID: given[string](c, "message-id"), ContextID: given[string](c, "context"), TaskID: given[string](c, "task")}
	if m.MessageID == "" {
		m.MessageID = uuid.NewString()
	}
	if text := strings.Join(c.args[1:], " "); text != "" {
		m.Parts = append(m.Parts, client.Part{Text: &text})
	}
	if data, ok := c.local["data"].(json.RawMessage); ok {
		m.Parts = append(m.Parts, client.Part{Data: data})
	}
	if len(m.Parts) == 0 {
		return usagef("give a text or --data")
	}
	if name := given[string](c, "capability"); name != "" {
		m.Metadata, _ = json.Marshal(map[string]string{"capability": name}) // a string
	}
	return c.printSent(a.Send(ctx, m, !given[bool](c, "no-wait"), newDisplay(c.out.w, c.messages, false), func(text string) { printLine(c.messages, "%s", text) }))
}

// printSent ends the output of a sent message and returns the error of a task that did not succeed.
func (c *call) printSent(r console.Result, err error) error {
	state := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(r.State), "TASK_STATE_"), "_", " "))
	switch {
	case err != nil:
		return err
	case state == "input required":
		return &endedError{exitFailure, "the agent asks: " + r.Text + "; reply with --task " + r.TaskID}
	case state != "completed" && r.State.Terminal() || state == "auth required":
		return &endedError{exitFailure, strings.TrimSuffix("the task is "+state+": "+r.Text, ": ")}
	}
	return nil
}
