package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"comet/agent/genesis"
	"comet/openapi/client"
)

// sendSigned sends a REQUEST of the Genesis protocol and prints the messages that answer it.
func sendSigned(ctx context.Context, c *call) (err error) {
	var me client.CallerIdentity
	if c.token != "" {
		if _, err := c.do(ctx, http.MethodGet, "/api/v1/me", nil, &me); err != nil {
			return err
		}
	}
	o := genesis.Options{Server: c.server, Token: c.token, Owner: me.Token.Name, From: given[string](c, "from")}
	if me.Agent != nil {
		o.Owner = me.Agent.ID
	}
	if path := given[string](c, "key"); path != "" {
		if o.Key, err = c.readInput(path); err != nil {
			return err
		}
	}
	api, err := genesis.New(o)
	if err != nil {
		return usagef("--key: %w", err)
	}
	payload, err := c.parameters(given[string](c, "param-file"), c.args[1:])
	if err != nil {
		return err
	}
	awaited, cancel := context.WithTimeout(ctx, cmp.Or(given[time.Duration](c, "wait"), 1<<62))
	defer cancel()
	end, err := api.Send(awaited, given[string](c, "to"), c.args[0], payload, c.showSigned)
	switch {
	case err != nil && ctx.Err() != nil:
		return &endedError{exitInterrupted, "interrupted; a task that was accepted continues"}
	case err != nil && awaited.Err() != nil:
		return &endedError{exitTimeout, "no RESPONSE within --wait; a task that was accepted continues"}
	case errors.As(err, new(*url.Error)):
		return c.unreachable(err)
	case err == nil && end.Kind == "TIMEOUT":
		return &endedError{exitTimeout, end.Failure()}
	case err == nil && end.Kind != "":
		return &apiError{status: end.HTTPStatus, problem: client.Problem{Title: end.Code, Detail: &end.Text}, body: end.Raw}
	case err == nil && end.Code != "":
		err = &endedError{exitFailure, end.Failure()}
	}
	return errors.Join(c.showSigned(end), err)
}

// showSigned prints a RESPONSE, and other messages to standard error.
func (c *call) showSigned(m genesis.Message) error {
	to, body := c.out, m.Raw
	if !m.IsResponse() || to.format == formatTable {
		to.format, body = formatJSON, m.Value
	}
	if !m.IsResponse() { // an acknowledgement, or a question
		to.w = c.messages
	}
	if body == nil {
		return nil
	}
	return to.show(body, nil)
}
