package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"syscall"
	"time"

	"comet/cmd/comet/forward"
	"comet/cmd/comet/viewtext"
	"comet/internal/background"
	"comet/openapi/client"
	"comet/webhooks/signature"
)

// How long the listener tries to remove its webhook when it ends; the server may be restarting.
const (
	removeTimeout = 10 * time.Second
	removeAttempt = 3 * time.Second
	removePause   = 300 * time.Millisecond
)

// listen receives events until ctx ends, which is no error.
func listen(ctx context.Context, c *call) (err error) {
	target, err := parseForward(given[string](c, "forward"))
	if err != nil {
		return err
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", given[string](c, "listen"))
	if err != nil {
		return usagef("%w; choose another address with --listen", err)
	}
	defer func() { _ = socket.Close() }()
	if address := socket.Addr().(*net.TCPAddr); address.IP.IsUnspecified() {
		return usagef("--listen must have an address at which the server can reach this machine, not %s", address)
	}
	secret := signature.FormatSecret(signature.NewSecret())
	verifier, err := signature.NewVerifier(secret)
	if err != nil {
		return err
	}
	ctx, stop := untilClosed(ctx)
	defer stop()
	r := newReceiver(verifier, target, &printer{out: c.out, messages: c.messages})
	server := &http.Server{Handler: r, ReadHeaderTimeout: removeTimeout, ReadTimeout: forward.Timeout}
	go func() { r.fail(server.Serve(socket)) }()
	defer func() { _ = server.Close() }()

	hook, err := c.registerListener(ctx, "http://"+socket.Addr().String()+"/", secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.unregister(ctx, hook.ID, removeTimeout)) }()
	if err := c.testDelivery(ctx, hook); err != nil && ctx.Err() == nil {
		return err
	}
	if r.started.Store(true); ctx.Err() == nil {
		printLine(c.messages, "listening on %s as webhook %s; Ctrl-C removes it", hook.URL, hook.ID)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		if errors.Is(err, syscall.EPIPE) {
			return nil // comet webhooks listen | head
		}
		return err
	}
}

// registerListener creates the webhook. It is not interrupted, because the id would be unknown and
// the webhook could not be removed.
func (c *call) registerListener(ctx context.Context, address, secret string) (hook client.WebhookIssued, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	c.sent["url"], c.sent["secret"], c.sent["ordering"] = address, secret, client.DeliveryOrderingAgent
	c.sent["description"] = "comet webhooks listen on " + host
	if !c.changed("events") {
		c.sent["events"] = []string{"*"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	body, err := c.send(ctx)
	if refused, ok := errors.AsType[*apiError](err); ok && refused.problem.Code == "address-refused" {
		c.explain(address)
	}
	if err == nil {
		err = decode(body, &hook)
	}
	return hook, err
}

// testDelivery makes the server send a test event, to find out whether it reaches the listener.
func (s *session) testDelivery(ctx context.Context, hook client.WebhookIssued) error {
	var tested map[string]any
	body, err := s.do(ctx, http.MethodPost, "/api/v1/webhooks/"+hook.ID+"/test", nil, nil)
	if err == nil {
		err = decodeView(body, &tested)
	}
	attempt, isMap := tested["attempt"].(map[string]any)
	if err == nil && isMap && tested["succeeded"] != true {
		s.explain(hook.URL)
		err = fmt.Errorf("the test was not delivered: %s", viewtext.Attempt(attempt))
	}
	return err
}

const allowLoopback = `COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8,::1/128 comet serve`

// explain prints how the server can be allowed to reach the listener.
func (s *session) explain(address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
		printLine(s.messages, "The server at %s must run on this machine and be allowed to connect to it. Start it with", s.server)
		printLine(s.messages, "  %s", allowLoopback)
		return
	}
	printLine(s.messages, "The server at %s must reach %s, and its webhooks.allow_networks must contain that address", s.server, address)
	printLine(s.messages, "if it is a private one. --listen sets another.")
}

// unregister removes the webhook; it retries until the timeout while the server is down, and
// prints the command to remove it if that fails.
func (s *session) unregister(ctx context.Context, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for {
		err := s.removeOnce(ctx, id)
		switch code := exitCode(err); {
		case err == nil || code == exitNotFound:
			printLine(s.messages, "removed webhook %s", id)
			return nil
		case (code == exitUnavailable || code == exitFailure) && background.Sleep(ctx, removePause) == nil:
			continue // the server may come back
		}
		printLine(s.messages, "The webhook %s still exists. Remove it with", id)
		printLine(s.messages, "  comet webhooks delete %s --server %s", id, s.server)
		return err
	}
}

func (s *session) removeOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeAttempt)
	defer cancel()
	_, err := s.do(ctx, http.MethodDelete, "/api/v1/webhooks/"+id, nil, nil)
	return err
}

// redeliver sends one delivery of a webhook again, or all since a time.
func redeliver(ctx context.Context, c *call) error {
	one := len(c.args) == 2
	if c.changed("since") == one {
		return usagef("give a DELIVERY or --since, one of the two")
	}
	if one {
		for _, flag := range []string{"until", "event", "include-succeeded", "include-missed"} {
			if c.changed(flag) {
				return usagef("--%s selects deliveries of a period; use it with --since and without DELIVERY", flag)
			}
		}
		c.params = nil
		c.request, c.message = "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", "{{.DELIVERY}} is due again"
	}
	return sendAndShow(ctx, c)
}
