package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
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
	"comet/internal/protocol/v5"
	"comet/internal/registry"
	"comet/internal/transport"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// overheard is the pipe dialect, which notes what it is given.
type overheard struct {
	*v5.Protocol
	mu     sync.Mutex
	lines  []string
	padded int // how much longer what an agent is told becomes, in bytes
}

func (o *overheard) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	o.mu.Lock()
	o.lines = append(o.lines, string(raw))
	o.mu.Unlock()
	return o.Protocol.Receive(ctx, from, raw, wait)
}

func (o *overheard) Render(ctx context.Context, a models.Agent, m models.InboxMessage, limit int) ([][]byte, error) {
	parts, err := o.Protocol.Render(ctx, a, m, limit)
	if len(parts) > 0 && o.padded > 0 {
		parts[0] = append(parts[0], bytes.Repeat([]byte{'.'}, o.padded)...)
	}
	return parts, err
}

func (o *overheard) heard(line string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		if l == line {
			return true
		}
	}
	return false
}

// inn is a house that takes plain lines, over WebSocket, HTTP and TCP.
type inn struct {
	*house
	speech   *overheard
	listener *transport.Listener
	address  string
	keys     *auth.Keys
	names    chan string // that agents without a token have proposed
	pinged   bool        // that agents are pinged while a test runs, so they have to read
}

// plainRule runs one case in a fresh inn on every kind of database.
func plainRule(t *testing.T, name string, lines transport.Options, tcp transport.ListenerOptions, fn func(t *testing.T, h *inn)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, openInn(t, db, lines, tcp)) })
	})
}

func openInn(t *testing.T, db *storetest.DB, lines transport.Options, tcp transport.ListenerOptions) *inn {
	t.Helper()
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	work := orchestrator.New(db.Store, usage.New(db.Store, nil), &orchestrator.Options{
		Registry: reg, Classes: map[string]orchestrator.Policy{v5.Class: v5.Policy()}, Poll: 5 * time.Millisecond,
	})
	runner := jobs.New(db.Store, &jobs.Options{Poll: 5 * time.Millisecond})
	work.Register(runner)
	require.NoError(t, work.Start(t.Context()))
	require.NoError(t, runner.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, runner.Stop(context.Background()))
		require.NoError(t, work.Stop(context.Background()))
	})
	require.Eventually(t, func() bool { return work.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	keys := auth.NewKeys(db.Store, nil)
	h := &inn{speech: &overheard{Protocol: v5.New(work, &v5.Options{Keys: keys})}, keys: keys, names: make(chan string, 1000), pinged: lines.Heartbeat == beat}
	h.house = open(t, bed{db, work}, &lines, func(c *transport.Core) { c.Dialects = append(c.Dialects, h.speech) })
	if tcp.Enroll == nil {
		tcp.Enroll = func(_ context.Context, name string) (string, error) {
			h.names <- name
			return name, nil
		}
	}
	h.listener = transport.NewListener(h.links, "127.0.0.1:0", &tcp)
	require.NoError(t, h.listener.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, h.listener.Stop(context.Background())) }) // before the lines are
	h.address = h.listener.Addr().String()
	return h
}

// enough is how long is waited for what must come.
const enough = time.Minute

// beat is a heartbeat that does not make a test long, and that a busy machine keeps.
const beat = 150 * time.Millisecond

// talker is an agent's end of a plain line.
type talker struct {
	t    *testing.T
	send func(text string) error
	next func() (string, error)
	drop func()
}

// dialLine opens a TCP connection on which nothing was said yet.
func (h *inn) dialLine(t *testing.T) (*talker, net.Conn) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", h.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(enough)))
	in := bufio.NewReader(conn)
	return &talker{
		t,
		func(text string) error { _, err := io.WriteString(conn, text+"\n"); return err },
		func() (string, error) { text, err := in.ReadString('\n'); return strings.TrimSuffix(text, "\n"), err },
		func() { _ = conn.Close() },
	}, conn
}

// come opens a plain line of ada's, over TCP with the J that has to be its first, and reads the
// answer to that.
func (h *inn) come(t *testing.T, way, token, data string) *talker {
	t.Helper()
	g, before := h.enter(t, way, token), h.CachedWorker("ada").ConnectionID
	join := "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5" + data
	if way == transport.TCP {
		join += ";token=" + token
	}
	g.say(join)
	require.Regexp(t, `\|A\|T0\|-\|D\|-\|0\|S0\|-\|registered;id=W\d+;status=active;version=V5$`, g.hear())
	h.worker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	return g
}

// enter opens a plain line on which nothing was said yet.
func (h *inn) enter(t *testing.T, way, token string) *talker {
	t.Helper()
	if way == transport.TCP {
		g, _ := h.dialLine(t)
		return g
	}
	conn, _, err := websocket.Dial(t.Context(), h.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"v5"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	t.Cleanup(cancel)
	g := &talker{
		t,
		func(text string) error { return conn.Write(ctx, websocket.MessageText, []byte(text)) },
		func() (string, error) { _, text, err := conn.Read(ctx); return string(text), err },
		func() { _ = conn.CloseNow() },
	}
	if h.pinged {
		g.readOn(ctx)
	}
	return g
}

// readOn reads without being asked, as an agent has to that pings are to reach; what came is
// given out line by line.
func (g *talker) readOn(ctx context.Context) {
	type line struct {
		text string
		err  error
	}
	lines, read := make(chan line, 100), g.next
	go func() {
		for {
			text, err := read()
			lines <- line{text, err}
			if err != nil {
				return
			}
		}
	}()
	g.next = func() (string, error) {
		select {
		case l := <-lines:
			return l.text, l.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (g *talker) say(text string) {
	g.t.Helper()
	require.NoError(g.t, g.send(text))
}

// hear returns the next line.
func (g *talker) hear() string {
	g.t.Helper()
	text, err := g.next()
	require.NoError(g.t, err)
	return text
}

// about returns the next line, which is of a type, and the task and the session it is about.
func (g *talker) about(kind string) (tid, ctx string) {
	g.t.Helper()
	text := g.hear()
	segments := strings.Split(text, "|")
	require.Len(g.t, segments, 11, text)
	require.Equal(g.t, kind, segments[2], text)
	return segments[3], segments[8]
}

// barrier asks who is there and returns what came before the answer.
func (g *talker) barrier() (before []string) {
	g.t.Helper()
	g.say(askRoll)
	for {
		text := g.hear()
		if strings.Contains(text, "|S|T0|") {
			return before
		}
		before = append(before, text)
	}
}

const (
	askRoll  = "M7|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*"
	showLife = "M8|W1>O1|H|T0|-|-|-|0|S0|-|load=1%"
)

// over reads until the line has ended, and returns what came before that.
func (g *talker) over() (all []string) {
	g.t.Helper()
	for {
		text, err := g.next()
		if err == nil {
			all = append(all, text)
			continue
		}
		require.NotErrorIs(g.t, err, context.DeadlineExceeded)
		require.NotErrorIs(g.t, err, os.ErrDeadlineExceeded)
		return all
	}
}

// first registers an agent that is W1, and returns its token.
func (h *inn) first(t *testing.T, id string) string {
	t.Helper()
	token := h.agent(t, id)
	n, err := h.AgentNumber(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	return token
}

// ways are those on which plain lines are spoken.
func ways(t *testing.T, name string, lines transport.Options, fn func(t *testing.T, h *inn, way string)) {
	t.Helper()
	for _, way := range []string{transport.WebSocket, transport.TCP} {
		plainRule(t, name+"/"+way, lines, transport.ListenerOptions{}, func(t *testing.T, h *inn) { fn(t, h, way) })
	}
}

// TestAPlainLine (docs/adr/0016): its rules are those of every line, and there are no
// words but the messages.
func TestAPlainLine(t *testing.T) {
	t.Parallel()
	plainRule(t, "hands nothing over before J", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g := h.enter(t, transport.WebSocket, h.first(t, "ada"))
		h.tell(t, "ada", 1)
		require.Empty(t, g.barrier())
		g.say("M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.hear(), "|A|T0|", "before anything else")
		g.about("U")
		require.Equal(t, v5.Name, h.worker(t, "ada", online).Protocol)
	})
	ways(t, "hands over as much work as concurrency= says", transport.Options{}, func(t *testing.T, h *inn, way string) {
		token := h.first(t, "ada")
		wide := h.come(t, way, token, ";concurrency=3")
		for range 3 {
			h.submit(t, "ada")
		}
		h.inboxOf(t, "ada", 3)
		narrow := h.come(t, way, token, ";concurrency=1")
		require.LessOrEqual(t, len(wide.over()), 3, "it is replaced")
		tid, session := narrow.about("R")
		h.tell(t, "ada", 1)
		narrow.about("U")
		require.Empty(t, narrow.barrier(), "work waits, and all else does not")
		narrow.say("M2|W1>O1|A|" + tid + "|-|R|-|0|" + session + "|-|-")
		other, where := narrow.about("R")
		require.NotEqual(t, tid+session, other+where)
		require.Empty(t, narrow.barrier())
	})
	ways(t, "hands work over again on the next line until it was spoken of", transport.Options{}, func(t *testing.T, h *inn, way string) {
		token := h.first(t, "ada")
		g := h.come(t, way, token, "")
		h.submit(t, "ada")
		before := g.hear()
		g.say(showLife)
		require.Empty(t, g.barrier())
		h.inboxOf(t, "ada", 1)
		g.drop()
		h.worker(t, "ada", offline)
		g = h.come(t, way, token, "")
		again := g.hear()
		require.Equal(t, before[strings.Index(before, "|"):], again[strings.Index(again, "|"):], "but for its number")
		segments := strings.Split(again, "|")
		g.say("M2|W1>O1|U|" + segments[3] + "|-|R|-|0|" + segments[8] + "|-|progress=10%")
		h.inboxOf(t, "ada", 0)
		g.drop()
		h.worker(t, "ada", offline)
		g = h.come(t, way, token, "")
		require.Empty(t, g.barrier())
	})
	ways(t, "takes for received what is no work once anything was said after it", transport.Options{}, func(t *testing.T, h *inn, way string) {
		g := h.come(t, way, h.first(t, "ada"), "")
		for _, what := range []string{showLife, askRoll, "nonsense", "M9|W1>O1|S|T5|-|D|-|0|S9|-|-"} {
			h.tell(t, "ada", 2)
			g.about("U")
			g.about("U")
			h.inboxOf(t, "ada", 2)
			g.say(what)
			h.inboxOf(t, "ada", 0)
			if what != showLife { // which is not answered
				g.hear()
			}
		}
	})
	ways(t, "is cut off where its agent does not read", transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, h *inn, way string) {
		h.speech.padded = 32 << 20
		g := h.come(t, way, h.first(t, "ada"), "")
		h.tell(t, "ada", 1)
		h.worker(t, "ada", offline)
		h.metricIs(t, 0, "comet_link_lines", way)
		text, err := g.next()
		require.Error(t, err, "the line is over, and what was written of it is no message")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, len(text), 32<<20)
		h.inboxOf(t, "ada", 1)
	})
	ways(t, "stays when its agent says L, and gives no work until J", transport.Options{Heartbeat: beat}, func(t *testing.T, h *inn, way string) {
		g := h.come(t, way, h.first(t, "ada"), "")
		g.say("M2|W1>O1|L|T0|-|-|-|0|S0|-|reason=lunch")
		require.Contains(t, g.hear(), "|A|T0|-|-|-|0|S0|-|left")
		require.True(t, offline(h.CachedWorker("ada")))
		h.beats(t, 2, func() { require.Empty(t, g.barrier()) })
		task := h.submit(t, "ada")
		require.Empty(t, g.barrier())
		require.True(t, offline(h.CachedWorker("ada")))
		now, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskNew, now.State)
		g.say("M3|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.hear(), "|A|T0|")
		h.worker(t, "ada", online)
		h.db.Clock.Advance(2 * time.Second) // when it is tried again
		g.about("R")
	})
	ways(t, "ends when its token is revoked", transport.Options{Heartbeat: beat}, func(t *testing.T, h *inn, way string) {
		h.first(t, "ada")
		issued := h.token(t, "ada")
		g := h.come(t, way, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.Empty(t, g.over())
		h.worker(t, "ada", offline)
	})
	plainRule(t, "ends when its token is revoked, also before J", transport.Options{Heartbeat: beat}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		issued := h.token(t, "ada")
		g := h.enter(t, transport.WebSocket, issued.Secret)
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.Empty(t, g.over())
	})
	ways(t, "says why to an agent whose token was revoked and who says something", transport.Options{Heartbeat: time.Hour}, func(t *testing.T, h *inn, way string) {
		h.first(t, "ada")
		issued := h.token(t, "ada")
		g := h.come(t, way, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		g.say(askRoll)
		said := g.over()
		require.Len(t, said, 1)
		require.Equal(t, refusedToken, unnumbered(said[0]))
	})
	ways(t, "ends when the server stops", transport.Options{}, func(t *testing.T, h *inn, way string) {
		g := h.come(t, way, h.first(t, "ada"), "")
		h.links.Drain()
		require.Empty(t, g.over())
		h.metricIs(t, 0, "comet_link_lines", way)
	})
	plainRule(t, "replaces the older one, whichever way either is", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		var before *talker
		for _, way := range []string{transport.TCP, transport.WebSocket, transport.TCP, transport.TCP} {
			g := h.come(t, way, token, "")
			if before != nil {
				require.Empty(t, before.over())
			}
			h.worker(t, "ada", func(w models.Worker) bool { return online(w) && w.Transport == way })
			before = g
		}
		require.Empty(t, before.barrier())
	})
	plainRule(t, "takes one J after the other, whatever task they name", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g := h.enter(t, transport.WebSocket, h.first(t, "ada"))
		const n = 20
		for i := range n {
			g.say(fmt.Sprintf("M%d|W1>O1|J|T%d|-|-|-|0|S1|-|concurrency=%d", i+1, i+1, i+2))
		}
		for i := range n {
			require.Contains(t, g.hear(), fmt.Sprintf("|A|T%d|-|D|-|0|S1|-|registered;id=W1", i+1))
		}
		require.Equal(t, 2, h.worker(t, "ada", online).Concurrency, "the window is that of the first")
	})
}

// beats waits until every line was looked after that many times, and does something
// meanwhile.
func (h *inn) beats(t *testing.T, n int, meanwhile func()) {
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

// unnumbered is what is said without the numbers of its messages, which begin anywhere.
func unnumbered(text string) string { return messageNumber.ReplaceAllString(text, "") }
