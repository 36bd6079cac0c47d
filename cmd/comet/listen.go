package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
	"comet/webhooks/signature"
)

// How long the listener tries to remove its webhook when it ends; the server may be restarting.
const (
	removeTimeout = 10 * time.Second
	removeAttempt = 3 * time.Second
	removePause   = 300 * time.Millisecond
)

// listenFlags are the flags of "comet webhooks listen".
type listenFlags struct {
	events                 []string
	agent, listen, forward string
	subtree                bool
}

func newListenCommand(flags *clientFlags) *cobra.Command {
	var f listenFlags
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive events on this machine, print and forward them",
		Long: `Receive events on this machine: listen on a port, register a webhook for it, verify
every signature and print the events, one JSON document per line with -o json. With
--forward each request is forwarded unchanged and gets the response of that server.
The webhook is removed when the command ends.

The server must be able, and allowed, to connect to this machine. By default it does
not connect to loopback addresses; for development start it with
  ` + allowLoopback,
		Example: `  comet webhooks listen
  comet webhooks listen --events agent.budget_warning,agent.budget_exceeded --agent orch-personnel --subtree
  comet webhooks listen --forward http://127.0.0.1:3000/webhook`,
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.events, "events", nil, "the `events` to receive; repeatable, or separated by commas (default: all)")
	fs.StringVar(&f.agent, "agent", "", "only events of this `agent`")
	fs.BoolVar(&f.subtree, "subtree", false, "also events of the agents below --agent")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 picks a free one")
	fs.StringVar(&f.forward, "forward", "", "`URL` to forward every request to")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		return s.listen(ctx, cmd, f)
	})
}

// listen receives events until ctx ends, which is no error.
func (s *session) listen(ctx context.Context, cmd *cobra.Command, f listenFlags) (err error) {
	forward, err := newForwarder(f.forward)
	if err != nil {
		return err
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return usagef("cannot listen on %s: %w", f.listen, err)
	}
	secret := signature.FormatSecret(signature.NewSecret())
	verifier, err := signature.NewVerifier(secret)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal was closed
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // a closed pipe ends the command in good order
	r := newReceiver(verifier, forward, newPrinter(s.out, s.messages))
	server := &http.Server{Handler: r, ReadHeaderTimeout: removeTimeout, ReadTimeout: forwardTimeout}
	go func() { r.fail(server.Serve(socket)) }()
	defer func() { _ = server.Close() }()

	hook, err := s.register(ctx, cmd, f, s.addressOf(ctx, socket.Addr()), secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.unregister(ctx, hook.ID, removeTimeout)) }()
	if err := s.testDelivery(ctx, hook); err != nil && ctx.Err() == nil {
		return err
	}
	if r.started.Store(true); ctx.Err() == nil {
		printLine(s.messages, "listening on %s as webhook %s; Ctrl-C removes it", hook.URL, hook.ID)
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

// addressOf is the URL under which the server reaches the listener. A listener on all addresses
// has the address that this machine uses towards the server.
func (s *session) addressOf(ctx context.Context, listening net.Addr) string {
	addr := listening.(*net.TCPAddr).AddrPort()
	host := addr.Addr().Unmap()
	if host.IsUnspecified() {
		host = s.localAddress(ctx)
	}
	return (&url.URL{Scheme: "http", Host: netip.AddrPortFrom(host, addr.Port()).String(), Path: "/"}).String()
}

func (s *session) localAddress(ctx context.Context) netip.Addr {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	server, err := url.Parse(s.server)
	if err != nil {
		return loopback
	}
	port := server.Port()
	if port == "" {
		port = "443" // any port: nothing is sent
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return loopback
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// register creates the webhook. It is not interrupted, because the id would be unknown and the
// webhook could not be removed.
func (s *session) register(ctx context.Context, cmd *cobra.Command, f listenFlags, address, secret string) (client.WebhookIssued, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	draft := client.WebhookDraft{
		URL: address, Secret: &secret, Description: new("comet webhooks listen on " + host),
		AgentID: flagValue(cmd, "agent", f.agent), Subtree: flagValue(cmd, "subtree", f.subtree), Ordering: new(client.DeliveryOrderingAgent),
		Events: everyEvent(),
	}
	if cmd.Flags().Changed("events") {
		draft.Events = nil
		for _, e := range f.events {
			draft.Events = append(draft.Events, client.WebhookDraftEvents(e))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	hook, _, err := decodeAs[client.WebhookIssued](s.readResponse(s.api.CreateWebhook(ctx, nil, draft)))
	var refused *apiError
	if errors.As(err, &refused) && refused.problem.Code == "address-refused" {
		s.explain(address)
	}
	return hook, err
}

// everyEvent is the list of all events of webhooks.
func everyEvent() []client.WebhookDraftEvents {
	return []client.WebhookDraftEvents{
		client.WebhookDraftEventsAgentCreated, client.WebhookDraftEventsAgentUpdated, client.WebhookDraftEventsAgentDeactivated,
		client.WebhookDraftEventsAgentBudgetWarning, client.WebhookDraftEventsAgentBudgetExceeded, client.WebhookDraftEventsWebhookDisabled,
	}
}

// testDelivery makes the server send a test event, to find out whether it reaches the listener.
func (s *session) testDelivery(ctx context.Context, hook client.WebhookIssued) error {
	t, _, err := decodeAs[client.WebhookTested](s.readResponse(s.api.TestWebhook(ctx, hook.ID)))
	if err != nil {
		return err
	}
	if !t.Succeeded {
		s.explain(hook.URL)
		return undelivered(t)
	}
	return nil
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
		case code == exitUnavailable || code == exitFailure: // the server may come back
			select {
			case <-time.After(removePause):
				continue
			case <-ctx.Done():
			}
		}
		printLine(s.messages, "The webhook %s still exists. Remove it with", id)
		printLine(s.messages, "  comet webhooks delete %s --server %s", id, s.server)
		return err
	}
}

func (s *session) removeOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeAttempt)
	defer cancel()
	_, err := s.readResponse(s.api.DeleteWebhook(ctx, id))
	return err
}
