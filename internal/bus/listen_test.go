package bus_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/testkit"
)

// agent connects to the embedded server as an agent.
func agent(t *testing.T, b *bus.Bus, options ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	options = append(options, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	conn, err := nats.Connect("nats://"+b.Addr(), options...)
	if err == nil {
		t.Cleanup(conn.Close)
	}
	return conn, err
}

// tokens accepts the tokens "token of <agent>".
func tokens(_ context.Context, token string, client netip.Addr) (string, error) {
	name, ok := strings.CutPrefix(token, "token of ")
	if !ok || !client.IsLoopback() {
		return "", errors.New("no such token")
	}
	return name, nil
}

func TestWithoutListenThereIsNoPort(t *testing.T) {
	t.Parallel()
	require.Empty(t, start(t, nil).Addr())
}

func TestAnAgentUsesItsInboxAndOutbox(t *testing.T) {
	t.Parallel()
	b := start(t, &bus.Options{Listen: "127.0.0.1:0"})
	received := receive(t, b, string(bus.AgentOutboxes))
	conn, err := agent(t, b)
	require.NoError(t, err)
	inbox, err := conn.SubscribeSync(bus.AgentInboxes.Of("infra-1"))
	require.NoError(t, err)
	require.NoError(t, conn.Publish(bus.AgentOutboxes.Of("infra-1"), []byte("up")))
	require.Equal(t, "up", string(testkit.Receive(t, received).Data))
	require.NoError(t, b.Publish(bus.AgentInboxes.Of("infra-1"), []byte("down")))
	m, err := inbox.NextMsg(timeout)
	require.NoError(t, err)
	require.Equal(t, "down", string(m.Data))
}

func TestAnAgentMayUseNoOtherSubjects(t *testing.T) {
	t.Parallel()
	for name, authenticate := range map[string]func(context.Context, string, netip.Addr) (string, error){"without a token": nil, "with a token": tokens} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, &bus.Options{Listen: "localhost:0", Authenticate: authenticate})
			conn, err := agent(t, b, nats.Token("token of infra-1"), nats.PermissionErrOnSubscribe(true))
			require.NoError(t, err)
			for _, subject := range []string{">", "comet.>", string(bus.WakeDispatches), "comet.wake.>", "comet.agents.>", "_INBOX.>", bus.AgentOutboxes.Of("infra-1")} {
				sub, err := conn.SubscribeSync(subject)
				require.NoError(t, err)
				_, err = sub.NextMsg(timeout)
				require.ErrorIs(t, err, nats.ErrPermissionViolation, subject)
			}
			received := receive(t, b, ">")
			for _, subject := range []string{string(bus.WakeDispatches), string(bus.WakeEverything), bus.AgentInboxes.Of("infra-1"), "other"} {
				require.NoError(t, conn.Publish(subject, nil))
			}
			require.NoError(t, conn.Publish(bus.AgentOutboxes.Of("infra-1"), nil))
			require.Equal(t, bus.AgentOutboxes.Of("infra-1"), testkit.Receive(t, received).Subject, "the other messages were rejected")
		})
	}
}

func TestATokenPermitsTheSubjectsOfItsAgentOnly(t *testing.T) {
	t.Parallel()
	b := start(t, &bus.Options{Listen: "127.0.0.1:0", Authenticate: tokens})
	for _, wrong := range [][]nats.Option{nil, {nats.Token("guessed")}, {nats.UserInfo("infra-1", "guessed")}, {nats.Token("token of ")}} {
		_, err := agent(t, b, wrong...)
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
	conn, err := agent(t, b, nats.UserInfo("any name", "token of infra-1"), nats.PermissionErrOnSubscribe(true))
	require.NoError(t, err)
	for _, other := range []string{bus.AgentInboxes.Of("infra-2"), string(bus.AgentInboxes)} {
		sub, err := conn.SubscribeSync(other)
		require.NoError(t, err)
		_, err = sub.NextMsg(timeout)
		require.ErrorIs(t, err, nats.ErrPermissionViolation, other)
	}
	received := receive(t, b, string(bus.AgentOutboxes))
	require.NoError(t, conn.Publish(bus.AgentOutboxes.Of("infra-2"), []byte("forged")))
	require.NoError(t, conn.Publish(bus.AgentOutboxes.Of("infra-1"), []byte("own")))
	require.Equal(t, "own", string(testkit.Receive(t, received).Data))
}

func TestResponsesGoToSubjectsOfTheSenderOnly(t *testing.T) {
	t.Parallel()
	b := start(t, &bus.Options{Listen: "127.0.0.1:0", Authenticate: tokens})
	answered := make(chan error, 10)
	_, err := b.Subscribe(string(bus.AgentOutboxes), func(m bus.Message) { answered <- m.Respond([]byte("ok")) })
	require.NoError(t, err)
	flush(t, b)
	conn, err := agent(t, b, nats.Token("token of infra-1"), nats.CustomInboxPrefix("comet.agents.infra-1.reply"))
	require.NoError(t, err)
	m, err := conn.Request(bus.AgentOutboxes.Of("infra-1"), nil, timeout)
	require.NoError(t, err)
	require.Equal(t, "ok", string(m.Data))
	require.NoError(t, testkit.Receive(t, answered))

	for _, forged := range []string{bus.AgentInboxes.Of("infra-2"), string(bus.WakeEverything), "comet", "comet.agents.infra-2.reply.1", "comet.agents.infra-1.reply"} {
		require.NoError(t, conn.PublishRequest(bus.AgentOutboxes.Of("infra-1"), forged, nil))
		require.True(t, errs.Is(testkit.Receive(t, answered), errs.InvalidRequest), forged)
	}
}

// TestARevokedTokenEndsItsConnections checks that other connections stay, and all of them while tokens
// cannot be verified.
func TestARevokedTokenEndsItsConnections(t *testing.T) {
	t.Parallel()
	var refusal atomic.Pointer[error]
	var checks atomic.Int64
	b := start(t, &bus.Options{Listen: "127.0.0.1:0", Recheck: 10 * time.Millisecond, Authenticate: func(ctx context.Context, token string, client netip.Addr) (string, error) {
		if err := refusal.Load(); err != nil && token == "token of infra-1" {
			checks.Add(1)
			return "", *err
		}
		return tokens(ctx, token, client)
	}})
	closed := make(chan struct{})
	connect := func(name string, options ...nats.Option) *nats.Conn {
		conn, err := agent(t, b, append(options, nats.Token("token of "+name), nats.NoReconnect())...)
		require.NoError(t, err)
		return conn
	}
	revoked := connect("infra-1", nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	other := connect("infra-2")

	unavailable := errs.New(errs.Unavailable, "the database is unavailable")
	refusal.Store(new(error(unavailable)))
	require.Eventually(t, func() bool { return checks.Load() > 2 }, timeout, time.Millisecond)
	require.NoError(t, revoked.FlushTimeout(timeout), "the token may be valid")

	revocation := errs.New(errs.Unauthenticated, "the token was revoked")
	refusal.Store(new(error(revocation)))
	testkit.Receive(t, closed)
	require.NoError(t, other.FlushTimeout(timeout))
}

func TestStartReturnsAnErrorForAnAddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	b, err := bus.New(&bus.Options{Listen: taken.Addr().String()})
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(t.Context()), "address already in use")
	require.NoError(t, b.Stop(t.Context()))
}

func TestTheEmbeddedServerUsesTLS(t *testing.T) {
	t.Parallel()
	ours, agents := newAuthority(t), newAuthority(t)
	cert, key := ours.issue(t)
	b := start(t, &bus.Options{Listen: "127.0.0.1:0", CertFile: cert, KeyFile: key, CAFile: agents.file})
	requireWorks(t, b)
	_, err := agent(t, b)
	require.Error(t, err, "the client does not trust the server")
	_, err = agent(t, b, nats.RootCAs(ours.file))
	require.Error(t, err, "the client has no certificate")
	cert, key = agents.issue(t)
	conn, err := agent(t, b, nats.RootCAs(ours.file), nats.ClientCert(cert, key))
	require.NoError(t, err)
	require.NoError(t, conn.FlushTimeout(timeout))
}

func TestNoticesOfTheEmbeddedServerAreDebugRecords(t *testing.T) {
	t.Parallel()
	var log logBuffer
	b := start(t, &bus.Options{Logger: infoLogger(&log)})
	requireWorks(t, b)
	require.NoError(t, b.Break())
	waitConnected(t, b)
	stop(t, b)
	require.NotContains(t, log.String(), "part=nats")
}

func TestManyAgentsConnectConcurrently(t *testing.T) {
	t.Parallel()
	b := start(t, &bus.Options{Listen: "127.0.0.1:0", Authenticate: tokens})
	received := receive(t, b, string(bus.AgentOutboxes))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			conn, err := nats.Connect("nats://"+b.Addr(), nats.Token("token of a"))
			if err == nil {
				err = errors.Join(conn.Publish(bus.AgentOutboxes.Of("a"), nil), conn.FlushTimeout(timeout))
				conn.Close()
			}
			require.NoError(t, err)
		})
	}
	for range 20 {
		testkit.Receive(t, received)
	}
	all.Wait()
}
