package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	"comet/internal/registry"
	"comet/internal/transport"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// recordingProtocol is the pipe dialect, which notes what it is given.
type recordingProtocol struct {
	*v5.Protocol
	mu      sync.Mutex
	lines   []string
	padding int // how much longer what an agent is told becomes, in bytes
}

func (o *recordingProtocol) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	o.mu.Lock()
	o.lines = append(o.lines, string(raw))
	o.mu.Unlock()
	return o.Protocol.Receive(ctx, from, raw, wait)
}

func (o *recordingProtocol) Render(ctx context.Context, a models.Agent, m models.InboxMessage, limit int) ([][]byte, error) {
	parts, err := o.Protocol.Render(ctx, a, m, limit)
	if len(parts) > 0 && o.padding > 0 {
		parts[0] = append(parts[0], bytes.Repeat([]byte{'.'}, o.padding)...)
	}
	return parts, err
}

func (o *recordingProtocol) received(line string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		if l == line {
			return true
		}
	}
	return false
}

// v5Fixture is a house that takes plain lines, over WebSocket, HTTP and TCP.
type v5Fixture struct {
	*fixture
	protocol *recordingProtocol
	listener *transport.TCPListener
	address  string
	keys     *auth.Keys
	names    chan string // that agents without a token have proposed
	pinged   bool        // that agents are pinged while a test runs, so they have to read
}

// runV5Case runs one case in a fresh inn on every kind of database.
func runV5Case(t *testing.T, name string, lines transport.Options, tcp transport.TCPOptions, fn func(t *testing.T, h *v5Fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, openV5Fixture(t, db, lines, tcp)) })
	})
}

func openV5Fixture(t *testing.T, db *storetest.DB, lines transport.Options, tcp transport.TCPOptions) *v5Fixture {
	t.Helper()
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	work := orchestrator.New(db.Store, usage.New(db.Store, nil), &orchestrator.Options{
		Registry: reg, Classes: map[string]orchestrator.Policy{v5.Class: v5.Policy()}, Poll: 5 * time.Millisecond,
	})
	runner := jobs.New(db.Store, &jobs.Options{Poll: 5 * time.Millisecond})
	work.RegisterJobs(runner)
	require.NoError(t, work.Start(t.Context()))
	require.NoError(t, runner.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, runner.Stop(context.Background()))
		require.NoError(t, work.Stop(context.Background()))
	})
	require.Eventually(t, func() bool { return work.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	keys := auth.NewKeys(db.Store, nil)
	h := &v5Fixture{protocol: &recordingProtocol{Protocol: v5.New(work, &v5.Options{Keys: keys})}, keys: keys, names: make(chan string, 1000), pinged: lines.Heartbeat == testHeartbeat}
	h.fixture = openFixture(t, backend{db, work}, &lines, func(c *transport.Core) { c.Protocols = append(c.Protocols, h.protocol) })
	if tcp.Enroll == nil {
		tcp.Enroll = func(_ context.Context, name string) (string, error) {
			h.names <- name
			return name, nil
		}
	}
	h.listener = transport.NewTCPListener(h.transports, "127.0.0.1:0", &tcp)
	require.NoError(t, h.listener.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, h.listener.Stop(context.Background())) }) // before the lines are
	h.address = h.listener.Addr().String()
	return h
}

// testTimeout is how long is waited for what must come.
const testTimeout = time.Minute

// testHeartbeat is a heartbeat that does not make a test long, and that a busy machine keeps.
const testHeartbeat = 150 * time.Millisecond

// v5Client is an agent's end of a plain line.
type v5Client struct {
	t     *testing.T
	send  func(text string) error
	read  func() (string, error)
	close func()
}

// dialTCP opens a TCP connection on which nothing was said yet.
func (h *v5Fixture) dialTCP(t *testing.T) (*v5Client, net.Conn) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", h.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	in := bufio.NewReader(conn)
	return &v5Client{
		t,
		func(text string) error { _, err := io.WriteString(conn, text+"\n"); return err },
		func() (string, error) { text, err := in.ReadString('\n'); return strings.TrimSuffix(text, "\n"), err },
		func() { _ = conn.Close() },
	}, conn
}

// joinOver opens a plain line of ada's, over TCP with the J that has to be its first, and reads the
// answer to that.
func (h *v5Fixture) joinOver(t *testing.T, way, token, data string) *v5Client {
	t.Helper()
	g, before := h.dialOver(t, way, token), h.CachedWorker("ada").ConnectionID
	join := "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5" + data
	if way == transport.TCP {
		join += ";token=" + token
	}
	g.sendLine(join)
	require.Regexp(t, `\|A\|T0\|-\|D\|-\|0\|S0\|-\|registered;id=W\d+;status=active;version=V5$`, g.next())
	h.waitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	return g
}

// dialOver opens a plain line on which nothing was said yet.
func (h *v5Fixture) dialOver(t *testing.T, way, token string) *v5Client {
	t.Helper()
	if way == transport.TCP {
		g, _ := h.dialTCP(t)
		return g
	}
	conn, _, err := websocket.Dial(t.Context(), h.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"v5"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	g := &v5Client{
		t,
		func(text string) error { return conn.Write(ctx, websocket.MessageText, []byte(text)) },
		func() (string, error) { _, text, err := conn.Read(ctx); return string(text), err },
		func() { _ = conn.CloseNow() },
	}
	if h.pinged {
		g.readInBackground(ctx)
	}
	return g
}

// readInBackground reads without being asked, as an agent has to that pings are to reach; what came is
// given out line by line.
func (g *v5Client) readInBackground(ctx context.Context) {
	type line struct {
		text string
		err  error
	}
	lines, read := make(chan line, 100), g.read
	go func() {
		for {
			text, err := read()
			lines <- line{text, err}
			if err != nil {
				return
			}
		}
	}()
	g.read = func() (string, error) {
		select {
		case l := <-lines:
			return l.text, l.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (g *v5Client) sendLine(text string) {
	g.t.Helper()
	require.NoError(g.t, g.send(text))
}

// next returns the next line.
func (g *v5Client) next() string {
	g.t.Helper()
	text, err := g.read()
	require.NoError(g.t, err)
	return text
}

// nextOfType returns the next line, which is of a type, and the task and the session it is about.
func (g *v5Client) nextOfType(kind string) (tid, ctx string) {
	g.t.Helper()
	text := g.next()
	segments := strings.Split(text, "|")
	require.Len(g.t, segments, 11, text)
	require.Equal(g.t, kind, segments[2], text)
	return segments[3], segments[8]
}

// barrier asks who is there and returns what came before the answer.
func (g *v5Client) barrier() (before []string) {
	g.t.Helper()
	g.sendLine(queryAgents)
	for {
		text := g.next()
		if strings.Contains(text, "|S|T0|") {
			return before
		}
		before = append(before, text)
	}
}

const (
	queryAgents   = "M7|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*"
	heartbeatLine = "M8|W1>O1|H|T0|-|-|-|0|S0|-|load=1%"
)

// readUntilClosed reads until the line has ended, and returns what came before that.
func (g *v5Client) readUntilClosed() (all []string) {
	g.t.Helper()
	for {
		text, err := g.read()
		if err == nil {
			all = append(all, text)
			continue
		}
		require.NotErrorIs(g.t, err, context.DeadlineExceeded)
		require.NotErrorIs(g.t, err, os.ErrDeadlineExceeded)
		return all
	}
}

// firstAgent registers an agent that is W1, and returns its token.
func (h *v5Fixture) firstAgent(t *testing.T, id string) string {
	t.Helper()
	token := h.agent(t, id)
	n, err := h.AgentNumber(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	return token
}

// runV5Transports are those on which plain lines are spoken.
func runV5Transports(t *testing.T, name string, lines transport.Options, fn func(t *testing.T, h *v5Fixture, way string)) {
	t.Helper()
	for _, way := range []string{transport.WebSocket, transport.TCP} {
		runV5Case(t, name+"/"+way, lines, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) { fn(t, h, way) })
	}
}

// waitHeartbeats waits until every line was looked after that many times, and does something
// meanwhile.
func (h *v5Fixture) waitHeartbeats(t *testing.T, n int, meanwhile func()) {
	t.Helper()
	c := h.connect(t, h.agent(t, "metronome"), "")
	var reader sync.WaitGroup
	reader.Go(func() { // answers pings
		for {
			if _, _, err := c.conn.Read(context.Background()); err != nil {
				return
			}
		}
	})
	for range n + 1 {
		h.db.Clock.Advance(time.Millisecond)
		for again := true; again; {
			meanwhile()
			w, err := h.Worker(t.Context(), "metronome")
			again = err != nil || !w.LastSeenAt.Equal(h.db.Clock.Now())
		}
	}
	require.NoError(t, c.conn.CloseNow())
	reader.Wait()
}

var messageNumber = regexp.MustCompile(`(?m)^M\d+\|`)

// withoutNumbers is what is said without the numbers of its messages, which begin anywhere.
func withoutNumbers(text string) string { return messageNumber.ReplaceAllString(text, "") }
