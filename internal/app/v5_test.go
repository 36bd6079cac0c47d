package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/models"
)

// tcpClient is a TCP connection that carries lines, like netcat.
type tcpClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialTCP(t *testing.T, address string) *tcpClient {
	t.Helper()
	return dial(t, "tcp", address)
}

func dial(t *testing.T, network, address string) *tcpClient {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(long)))
	return &tcpClient{t, conn, bufio.NewReader(conn)}
}

func (c *tcpClient) send(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, line+"\n")
	require.NoError(c.t, err)
}

func (c *tcpClient) next() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSuffix(line, "\n")
}

// readAll returns everything until the connection ends.
func (c *tcpClient) readAll() string {
	c.t.Helper()
	text, err := io.ReadAll(c.in)
	require.NoError(c.t, err)
	return string(text)
}

var workerID = regexp.MustCompile(`registered;id=(W\d+(?:\.\d+)?);status=active;version=V5;pid=M\d+$`)

// join sends J without a token and returns the number of the agent.
func (c *tcpClient) join(data string) string {
	c.t.Helper()
	c.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5" + data)
	line := c.next()
	found := workerID.FindStringSubmatch(line)
	require.Len(c.t, found, 2, line)
	return found[1]
}

// startWithV5 starts a server with a TCP listener for PROTOCOL_V5.
func startWithV5(t *testing.T, cfg config.Config, opts *app.Options) *app.App {
	t.Helper()
	cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration = "127.0.0.1:0", true
	a, err := app.New(t.Context(), cfg, opts)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	return a
}

// TestV5Enrollment (decisions: “a loopback J without either registers an agent”): an agent needs
// only a TCP connection.
func TestV5Enrollment(t *testing.T) {
	withoutLeaks(t, "an enrolled agent works", func(t *testing.T, cfg config.Config) {
		a := startWithV5(t, cfg, nil)
		c := newClient(t, a.URL(), adminToken(t, cfg.Data))
		worker := dialTCP(t, a.V5Addr())
		own := worker.join(";name=digger;caps=web_search,custom:dig")
		got := get[agent](t, c, "/api/v1/agents/v5-digger")
		require.Equal(t, []any{"digger", models.Level(2), 8, 555, "orch-my-team", true},
			[]any{got.Name, got.Level, *got.SphereID, got.FrequencyHz, *got.ParentID, got.IsActive})
		require.ElementsMatch(t, []string{"web_search", "custom:dig"}, got.Capabilities)
		eventually(t, func() bool { return c.online(t, "v5-digger") }, "the agent is online")

		var submitting sync.WaitGroup
		var status int
		var answer []byte
		submitting.Go(func() {
			resp, err := c.Send(t.Context(), http.MethodPost, "/api/v5/messages", "M1|User>O1|R|-|P1|N|-|0|-|B500|call=dig;deep=true",
				"Content-Type", "text/plain", "Prefer", "wait=30")
			if err == nil {
				status, answer = resp.Status, resp.Body
			}
		})
		request := strings.Split(worker.next(), "|")
		require.Equal(t, []string{"O1>" + own, "R"}, request[1:3])
		require.Equal(t, "call=dig;deep=true", request[10])
		worker.send("M2|" + own + ">O1|S|" + request[3] + "|P1|D|-|0|" + request[8] + "|B450|hole=1")
		require.Contains(t, worker.next(), "|A|")
		submitting.Wait()
		require.Equal(t, http.StatusOK, status, "%s", answer)
		require.Contains(t, string(answer), "|S|T1|P1|D|-|0|"+request[8]+"|B450|hole=1\n")

		// It reconnects under its name and keeps its number.
		again := dialTCP(t, a.V5Addr())
		require.Equal(t, own, again.join(";name=digger"))
		require.Empty(t, worker.readAll(), "the newer connection replaces the older one")
		other := dialTCP(t, a.V5Addr())
		require.NotEqual(t, own, other.join(""), "without a name it is another agent")
		wrong := dialTCP(t, a.V5Addr())
		wrong.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|name=No Name")
		require.Contains(t, wrong.readAll(), "|F|E10|0|S0|-|desc=name must be")
		before := len(c.tree(t))

		// The agent has the same restrictions as any other.
		status, body, err := c.do(t.Context(), http.MethodDelete, "/api/v1/agents/v5-digger", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, status, "%s", body)
		again.send("M2|" + own + ">O1|H|T0|-|-|-|0|S0|-|load=1%")
		require.Contains(t, again.readAll(), "|E90|", "the agent is deactivated")
		third := dialTCP(t, a.V5Addr())
		third.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|name=digger")
		require.Contains(t, third.readAll(), "|E90|0|S0|-|reason=token;desc=the agent is not accepted", "a deactivated agent cannot enroll again")
		require.Len(t, c.tree(t), before)

		require.NoError(t, a.Stop(t.Context()))
		require.Empty(t, other.readAll())
		c.HTTP.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
	})
}

// TestHundredthV5Worker (PROTOCOL_V5 §2.2): further workers get sub-agent numbers.
func TestHundredthV5Worker(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	a := startWithV5(t, cfg, nil)
	const n = 101
	var mu sync.Mutex
	numbers := map[string]bool{}
	var all sync.WaitGroup
	for i := range n {
		c := dialTCP(t, a.V5Addr())
		all.Go(func() {
			if _, err := fmt.Fprintf(c.conn, "M1|W1>O1|J|T0|-|-|-|0|S0|-|name=agent-%d\n", i); err != nil {
				return
			}
			line, _ := c.in.ReadString('\n')
			if found := workerID.FindStringSubmatch(strings.TrimSuffix(line, "\n")); len(found) == 2 {
				mu.Lock()
				defer mu.Unlock()
				numbers[found[1]] = true
			}
		})
	}
	all.Wait()
	require.Len(t, numbers, n)
	for _, want := range []string{"W1", "W99", "W1.1", "W2.1"} {
		require.Contains(t, numbers, want)
	}
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	require.Equal(t, http.StatusOK, c.status(t, "/api/v1/agents/v5-agent-100"))
}

// TestV5TokenIsNotStored is TestTokenInMessageIsNotStored for token= of J.
func TestV5TokenIsNotStored(t *testing.T) {
	t.Parallel()
	cfg, log := configured(t, "sqlite"), &output{}
	cfg.HTTP.MaxAuthFailures = 1000
	a := startWithV5(t, cfg, &app.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	own := registerAgent(t, c, "digger")
	var replies strings.Builder
	for _, token := range []string{secret, own} {
		for _, data := range []string{
			"token=%s", "caps=custom:digger;token=%s", "token=%s;version=V3", "token=\"%s\"", " token = %s ;concurrency=0", "token=%s;token=%[1]s", "caps=a>b;token=%s",
			"token=%s;desc=" + strings.Repeat("x", 300), "token=%s;auth=S1:0000:00000000", "token=%s;auth=bad", "TOKEN=%s", "desc=" + strings.Repeat("x", 180) + ";token=%s",
		} {
			conn := dialTCP(t, a.V5Addr())
			conn.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|" + fmt.Sprintf(data, token))
			line := conn.next()
			replies.WriteString(line)
			if strings.Contains(line, "registered") { // and again on the same connection
				conn.send("M2|W1>O1|J|T0|-|-|-|0|S0|-|" + fmt.Sprintf(data, token))
				replies.WriteString(conn.next())
			}
			require.NoError(t, conn.conn.Close())
		}
	}
	require.Contains(t, replies.String(), "registered")
	require.NoError(t, a.Stop(t.Context()))
	for place, text := range map[string]string{"a row": rows(t, cfg), "a file": contents(t, cfg.Data), "the log": log.String(), "the replies": replies.String()} {
		for _, token := range []string{secret, own} {
			if at := strings.Index(text, token); at >= 0 {
				t.Errorf("the token is in %s: %q", place, text[max(0, at-200):min(len(text), at+50)])
			}
		}
	}
}

// TestV5WithoutSelfRegistration: by default a program on this machine needs a token.
func TestV5WithoutSelfRegistration(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	cfg.Transport.V5Listen = "127.0.0.1:0"
	a := started(t, cfg)
	defer func() { require.NoError(t, a.Stop(context.Background())) }()
	conn := dialTCP(t, a.V5Addr())
	conn.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5;name=shouter;caps=shout")
	require.Contains(t, conn.next(), "token= is missing")
	require.Empty(t, conn.readAll())
	status, _, err := newClient(t, a.URL(), adminToken(t, cfg.Data)).do(t.Context(), http.MethodGet, "/api/v1/agents/v5-shouter", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status)
}

// TestV5Listen: there is no listener by default, the address must be free, and it is free again
// after a stop.
func TestV5Listen(t *testing.T) {
	t.Parallel()
	a := started(t, configured(t, "sqlite"))
	require.Empty(t, a.V5Addr())
	require.NoError(t, a.Stop(t.Context()))

	taken := startWithV5(t, configured(t, "sqlite"), nil)
	cfg := configured(t, "sqlite")
	cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration = taken.V5Addr(), true
	next, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.ErrorContains(t, next.Start(t.Context()), "--v5-listen")
	require.NoError(t, next.Stop(context.Background()))
	conn := dialTCP(t, taken.V5Addr())
	conn.join(";name=last")
	require.NoError(t, taken.Stop(t.Context()))
	require.Empty(t, conn.readAll())
	cfg.Data = t.TempDir()
	next, err = app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, next.Start(t.Context()))
	defer func() { require.NoError(t, next.Stop(context.Background())) }()
	require.Equal(t, cfg.Transport.V5Listen, next.V5Addr())
	dialTCP(t, next.V5Addr()).join(";name=first")
}
