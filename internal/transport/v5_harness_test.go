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
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/references"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// recordingProtocol is PROTOCOL_V5 and records the messages it receives.
type recordingProtocol struct {
	*v5.Protocol
	mu      sync.Mutex
	lines   []string
	padding int // bytes added to each rendered message
}

func (o *recordingProtocol) Receive(ctx context.Context, from protocol.Peer, raw []byte, wait time.Duration) protocol.Reply {
	o.mu.Lock()
	o.lines = append(o.lines, string(raw))
	o.mu.Unlock()
	return o.Protocol.Receive(ctx, from, raw, wait)
}

func (o *recordingProtocol) Render(ctx context.Context, to protocol.Peer, m models.InboxMessage, limit int) ([][]byte, error) {
	parts, err := o.Protocol.Render(ctx, to, m, limit)
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

// v5Fixture is a fixture that serves PROTOCOL_V5 over WebSocket, HTTP and TCP.
type v5Fixture struct {
	*fixture
	protocol *recordingProtocol
	listener *transport.TCPListener
	address  string
	keys     *auth.Keys
	names    chan string // the names proposed by agents without a token
	pinged   bool        // the server sends pings during the test, so clients must read
}

// runV5Case runs one case on a new fixture for each kind of database.
func runV5Case(t *testing.T, name string, lines transport.Options, tcp transport.TCPOptions, fn func(t *testing.T, f *v5Fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, openV5Fixture(t, db, lines, tcp)) })
	})
}

func openV5Fixture(t *testing.T, db *storetest.DB, lines transport.Options, tcp transport.TCPOptions) *v5Fixture {
	t.Helper()
	work := testkit.StartWork(t, db, orchestrator.Options{
		Resolver: references.Resolver{}, Classes: map[string]orchestrator.Policy{v5.Class: v5.Policy()},
	})
	keys := auth.NewKeys(db.Store, nil)
	f := &v5Fixture{protocol: &recordingProtocol{Protocol: v5.New(work.Orchestrator, db.Store, &v5.Options{Keys: keys})}, keys: keys, names: make(chan string, 1000), pinged: lines.Heartbeat == testHeartbeat}
	f.fixture = openFixture(t, work, &lines, func(c *transport.Core) { c.Keys, c.Protocols = keys, append(c.Protocols, f.protocol) })
	if tcp.Enroll == nil {
		tcp.Enroll = func(ctx context.Context, name string, trusted bool) (string, error) {
			f.names <- name
			if trusted {
				return name, nil
			}
			return name, f.markSelfRegistered(ctx, name)
		}
	}
	f.listener = transport.NewTCPListener(f.transports, "127.0.0.1:0", &tcp)
	require.NoError(t, f.listener.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, f.listener.Stop(context.Background())) }) // before the server
	f.address = f.listener.Addr().String()
	return f
}

// markSelfRegistered makes an agent one that registered itself, if it exists.
func (f *v5Fixture) markSelfRegistered(ctx context.Context, id string) error {
	err := f.DB.Write(ctx, func(tx *store.Tx) error {
		before, err := tx.Agents().Lock(id)
		if err != nil {
			return err
		}
		after := before
		after.SelfRegistered = true
		return tx.Agents().Update(before, after)
	})
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// testTimeout limits the wait for an event that must occur.
const testTimeout = time.Minute

// testHeartbeat is short, but long enough for a busy machine.
const testHeartbeat = 150 * time.Millisecond

// v5Client is the agent's end of an unframed connection.
type v5Client struct {
	t     *testing.T
	send  func(text string) error
	read  func() (string, error)
	close func()
}

// dialTCP opens a TCP connection without sending anything.
func (f *v5Fixture) dialTCP(t *testing.T) (*v5Client, net.Conn) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.address)
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

// joinOver opens an unframed connection of the agent ada, sends J and reads its reply.
func (f *v5Fixture) joinOver(t *testing.T, via, token, data string) *v5Client {
	t.Helper()
	c, before := f.dialOver(t, via, token), f.CachedWorker("ada").ConnectionID
	join := "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5" + data
	if via == transport.TCP {
		join += ";token=" + token
	}
	c.sendLine(join)
	require.Regexp(t, `\|A\|T0\|-\|D\|-\|0\|S0\|-\|registered;id=W\d+;status=active;version=V5;pid=M\d+$`, c.next())
	f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	return c
}

// dialOver opens an unframed connection without sending anything.
func (f *v5Fixture) dialOver(t *testing.T, via, token string) *v5Client {
	t.Helper()
	if via == transport.TCP {
		c, _ := f.dialTCP(t)
		return c
	}
	conn, _, err := websocket.Dial(t.Context(), f.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"v5"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	c := &v5Client{
		t,
		func(text string) error { return conn.Write(ctx, websocket.MessageText, []byte(text)) },
		func() (string, error) { _, text, err := conn.Read(ctx); return string(text), err },
		func() { _ = conn.CloseNow() },
	}
	if f.pinged {
		c.readInBackground(ctx)
	}
	return c
}

// readInBackground reads continuously, so that pings are answered; next returns the lines in order.
func (c *v5Client) readInBackground(ctx context.Context) {
	type line struct {
		text string
		err  error
	}
	lines, read := make(chan line, 100), c.read
	go func() {
		for {
			text, err := read()
			lines <- line{text, err}
			if err != nil {
				return
			}
		}
	}()
	c.read = func() (string, error) {
		select {
		case l := <-lines:
			return l.text, l.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (c *v5Client) sendLine(text string) {
	c.t.Helper()
	require.NoError(c.t, c.send(text))
}

// next returns the next line.
func (c *v5Client) next() string {
	c.t.Helper()
	text, err := c.read()
	require.NoError(c.t, err)
	return text
}

// nextOfType returns the task and session of the next line, which must have the given type.
func (c *v5Client) nextOfType(kind string) (tid, ctx string) {
	c.t.Helper()
	text := c.next()
	segments := strings.Split(text, "|")
	require.Len(c.t, segments, 11, text)
	require.Equal(c.t, kind, segments[2], text)
	return segments[3], segments[8]
}

// barrier sends a query and returns the lines received before its reply.
func (c *v5Client) barrier() (before []string) {
	c.t.Helper()
	c.sendLine(queryAgents)
	for {
		text := c.next()
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

// readUntilClosed returns the remaining lines of a connection that must end.
func (c *v5Client) readUntilClosed() (all []string) {
	c.t.Helper()
	for {
		text, err := c.read()
		if err == nil {
			all = append(all, text)
			continue
		}
		require.NotErrorIs(c.t, err, context.DeadlineExceeded)
		require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded)
		return all
	}
}

// firstAgent registers the agent that becomes W1, and returns its token.
func (f *v5Fixture) firstAgent(t *testing.T, id string) string {
	t.Helper()
	token := f.agent(t, id)
	n, err := shortid.AgentNumber(t.Context(), f.DB.Store, id)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	return token
}

// runV5Transports runs one case over each transport of unframed connections.
func runV5Transports(t *testing.T, name string, lines transport.Options, fn func(t *testing.T, f *v5Fixture, via string)) {
	t.Helper()
	for _, via := range []string{transport.WebSocket, transport.TCP} {
		runV5Case(t, name+"/"+via, lines, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) { fn(t, f, via) })
	}
}

// waitHeartbeats waits for n heartbeats of every connection and calls meanwhile while it waits.
func (f *v5Fixture) waitHeartbeats(t *testing.T, n int, meanwhile func()) {
	t.Helper()
	token := f.agent(t, "metronome")
	var c *wsClient
	var ended chan struct{}
	connect := func() {
		c, ended = f.connect(t, token, ""), make(chan struct{})
		go func(c *wsClient, ended chan struct{}) { // answers pings
			defer close(ended)
			for {
				if _, _, err := c.conn.Read(context.Background()); err != nil {
					return
				}
			}
		}(c, ended)
	}
	connect()
	for range n + 1 {
		f.DB.Clock.Advance(time.Millisecond)
		for again := true; again; {
			meanwhile()
			select {
			case <-ended: // a busy machine answered too late
				connect()
			default:
			}
			w, err := f.Worker(t.Context(), "metronome")
			again = err != nil || !w.LastSeenAt.Equal(f.DB.Clock.Now())
		}
	}
	_ = c.conn.CloseNow() // it may have ended
	<-ended
}

var messageNumber = regexp.MustCompile(`(?m)^M\d+\||;pid=M\d+$`)

// withoutNumbers removes the message numbers, which begin anywhere, and pid= of replies.
func withoutNumbers(text string) string { return messageNumber.ReplaceAllString(text, "") }
