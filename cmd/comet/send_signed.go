package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"comet/agent/genesis"
	"comet/openapi/client"
)

// sendSigned sends a REQUEST of the Genesis protocol and prints the messages that answer it: those that are partial as they
// arrive, and the last one.
func sendSigned(ctx context.Context, c *call) error {
	for _, flag := range []string{"hint", "request-id", "trace-id", "cancel-on-interrupt"} {
		if c.changed(flag) {
			return usagef("--%s is not available with --protocol genesis", flag)
		}
	}
	payload, err := c.parameters(given[string](c, "param-file"), c.args[1:])
	if err != nil {
		return err
	}
	api, err := c.signer(ctx)
	if err != nil {
		return err
	}
	awaited, wait := ctx, given[time.Duration](c, "wait")
	if wait > 0 {
		var cancel context.CancelFunc
		awaited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	ended := false
	err = api.Send(awaited, genesis.Request{From: c.local["from"].(string), To: given[string](c, "to"), Intent: c.args[0], Payload: payload}, func(m genesis.Message) error { //nolint:forcetypeassert // set by signer
		ended = m.Type == "ERROR" || m.Type == "RESPONSE" && m.Status != "PARTIAL"
		return c.showSigned(m)
	})
	switch {
	case ctx.Err() != nil:
		return &endedError{exitInterrupted, "interrupted; the task continues"}
	case awaited.Err() != nil && !ended:
		return &endedError{exitTimeout, fmt.Sprintf("no end within %s; a task that was accepted continues", wait)}
	case err == nil && !ended:
		return errors.New("the stream ended before the task; the task continues")
	case errors.As(err, new(*url.Error)):
		return c.unreachable(err)
	}
	return err
}

// signer returns the client of sendSigned and sets the flag --from to the sender. A signature with the key of another sender than
// that of the token replaces the token.
func (c *call) signer(ctx context.Context) (*genesis.Client, error) {
	api, from := &genesis.Client{Server: c.server, Token: c.token}, given[string](c, "from")
	if path := given[string](c, "key"); path != "" {
		text, err := c.readInput(path)
		if err == nil {
			api.Key, err = genesis.ParseKey(text)
		}
		if err != nil {
			return nil, usagef("--key: %w", err)
		}
	}
	if c.token != "" && (from == "" || api.Key != nil) {
		var me client.CallerIdentity
		if _, err := c.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
			return nil, err
		}
		name := me.Token.Name
		if me.Agent != nil {
			name = me.Agent.ID
		}
		if from = cmp.Or(from, name); api.Key != nil && from != name {
			api.Token = ""
		}
	}
	if from == "" {
		return nil, usagef("--from is required without a token")
	}
	c.local["from"] = from
	return api, nil
}

// showSigned prints a message, and returns a failure as an error.
func (c *call) showSigned(m genesis.Message) error {
	switch {
	case m.Type == "EVENT", m.Type == "REQUEST": // an acknowledgement, or a question
		printLine(c.messages, "%s", printable(string(m.Value)))
		return nil
	case m.Kind == "TIMEOUT":
		return &endedError{exitTimeout, fmt.Sprintf("%s: %s", m.Code, m.Text)}
	case m.Type == "ERROR":
		status := m.HTTPStatus
		if status == http.StatusOK { // in a stream
			status = http.StatusServiceUnavailable
		}
		return &apiError{status: status, problem: client.Problem{Title: m.Code, Detail: &m.Text}, body: m.Raw}
	}
	body := m.Raw
	if c.out.format == formatTable {
		body = m.Value
	}
	var err error
	if body != nil {
		err = c.out.show(body, func() error { return output{w: c.out.w, format: formatJSON}.show(body, nil) })
	}
	if m.Status == "FAILURE" {
		err = errors.Join(err, &endedError{exitFailure, fmt.Sprintf("%s: %s", m.Code, m.Text)})
	}
	return err
}
