package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/app"
	"comet/internal/config"
)

// office is a server with one agent, in front of which lines can break.
type office struct {
	url, admin, own string
	http            *http.Client
}

func openOffice(t *testing.T) *office {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", t.TempDir()
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	token, err := os.ReadFile(filepath.Join(cfg.Data, "admin.token"))
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := &office{url: a.URL(), admin: strings.TrimSpace(string(token)), http: &http.Client{Transport: transport, Timeout: minute}}
	o.do(t, http.MethodPost, "/api/v1/agents", `{"id":"clerk","name":"clerk","level":2,"parent_id":"orch-my-team","sphere_id":8,"frequency_hz":555,
		"capabilities":["custom:write"],"type":"infra","token_budget":100000}`)
	var made struct{ Token string }
	require.NoError(t, json.Unmarshal(o.do(t, http.MethodPost, "/api/v1/tokens", `{"name":"clerk","agent_id":"clerk","scopes":["messages:send"]}`), &made))
	o.own = made.Token
	return o
}

func (o *office) do(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, o.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+o.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, text)
	return text
}

// asker asks for work, past whatever breaks.
func (o *office) asker(t *testing.T) *agent.Client {
	t.Helper()
	c, err := agent.NewClient(o.url, o.admin, o.http)
	require.NoError(t, err)
	return c
}

// clerk runs the agent until the test ends or stop is called.
func (o *office) clerk(t *testing.T, url string, opts *agent.Options, write agent.Handler) (stop func()) {
	t.Helper()
	transport := &http.Transport{}
	opts.Dialect = cmp.Or(opts.Dialect, agent.DialectV5)
	opts.Drain, opts.Client = -1, &http.Client{Transport: transport}
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	a, err := agent.New(url, o.own, opts.Backoff(soon, 5*soon))
	require.NoError(t, err)
	a.Handle("write", write)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	})
	t.Cleanup(stop)
	return stop
}

// bridge passes connections on to a server and breaks each after so many bytes of what
// the server says: what comes of the rest nobody hears.
type bridge struct {
	url   string
	after atomic.Int64 // 0 for never, below it for at once
	lines atomic.Int64

	mu   sync.Mutex
	open []net.Conn
}

func newBridge(t *testing.T, to string, after int64) *bridge {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &bridge{url: "http://" + l.Addr().String()}
	b.after.Store(after)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.pass(in, strings.TrimPrefix(to, "http://")) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.cut()
		running.Wait()
	})
	return b
}

func (b *bridge) pass(in net.Conn, to string) {
	defer func() { _ = in.Close() }()
	if b.after.Load() < 0 {
		return
	}
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.open = append(b.open, in, out)
	b.mu.Unlock()
	b.lines.Add(1)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in)
		_, _ = out.Close(), in.Close()
	})
	both.Go(func() {
		if n := b.after.Load(); n > 0 {
			_, _ = io.CopyN(in, out, n)
		} else {
			_, _ = io.Copy(in, out)
		}
		_, _ = out.Close(), in.Close()
	})
	both.Wait()
}

// cut breaks what is open.
func (b *bridge) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.open {
		_ = c.Close()
	}
	b.open = nil
}

func TestV5(t *testing.T) {
	t.Parallel()

	t.Run("lines that break lose nothing and repeat nothing", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		b := newBridge(t, o.url, 1500)
		var log, result bytes.Buffer
		for i := range 3000 {
			_, _ = fmt.Fprintf(&log, "%d|\n", i%7) // most pieces are like another one
			_, _ = fmt.Fprintf(&result, "%d>\x01", i)
		}
		o.clerk(t, b.url, &agent.Options{}, func(_ context.Context, w *agent.Work) (agent.Result, error) {
			if string(w.Parameters()) != `{"n":1}` {
				return agent.Result{}, fmt.Errorf("the parameters are %s", w.Parameters())
			}
			_, err := w.Write(log.Bytes())
			return agent.Result{Output: result.String()}, err
		})
		c := o.asker(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{To: "G8", Capability: "write", Parameters: json.RawMessage(`{"n":1}`)})
		require.NoError(t, err)
		reply, err = c.AwaitLine(t.Context(), reply, nil)
		require.NoError(t, err)
		require.True(t, reply.Succeeded, "%+v", reply)
		require.Equal(t, result.String(), reply.Output)
		require.Equal(t, log.String(), string(o.do(t, http.MethodGet, "/api/v1/tasks/"+reply.Task.String()+"/output?stream=log", "")))
		require.Greater(t, b.lines.Load(), int64(3), "lines have broken")
	})

	t.Run("what an earlier process had begun is told at the first line, and runs again", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		b := newBridge(t, o.url, 0)
		dir := filepath.Join(t.TempDir(), "cache")
		cache, err := agent.OpenCache(dir, 0)
		require.NoError(t, err)
		begun := make(chan struct{})
		stop := o.clerk(t, b.url, &agent.Options{Cache: cache}, func(ctx context.Context, _ *agent.Work) (agent.Result, error) {
			close(begun)
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		})
		c := o.asker(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{Capability: "write", Timeout: 10 * minute})
		require.NoError(t, err)
		<-begun
		b.after.Store(-1)
		b.cut()
		stop() // and can tell nobody
		cache, err = agent.OpenCache(dir, 0)
		require.NoError(t, err)
		o.clerk(t, o.url, &agent.Options{Cache: cache}, func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{Output: "at last"}, nil
		})
		reply, err = c.AwaitLine(t.Context(), reply, nil)
		require.NoError(t, err)
		require.Equal(t, "at last", reply.Output, "%+v", reply)
	})

	t.Run("the functions that are registered are what the agent offers, and other work is refused", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		o.clerk(t, o.url, &agent.Options{Concurrency: 3}, func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{}, agent.Invalid("the title is missing")
		})
		require.Eventually(t, func() bool {
			return strings.Contains(string(o.do(t, http.MethodGet, "/api/v1/workers", "")), `"concurrency":3`)
		}, minute, 10*soon)
		c := o.asker(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{To: "W1", Capability: "write"})
		require.NoError(t, err)
		reply, err = c.AwaitLine(t.Context(), reply, nil)
		require.NoError(t, err)
		require.Equal(t, "E10", reply.Code)
		require.Contains(t, reply.Message, "the title is missing")
		reply, err = c.AskLine(t.Context(), &agent.LineRequest{Capability: "draw"})
		require.NoError(t, err)
		require.Equal(t, "E19", reply.Code, "%+v", reply)
	})

	t.Run("a token that is not accepted ends it", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		a, err := agent.New(o.url, "wrong", &agent.Options{Dialect: agent.DialectV5, Client: o.http})
		require.NoError(t, err)
		a.Handle("write", nil)
		var refused *agent.Refused
		require.ErrorAs(t, a.Run(t.Context()), &refused)
		require.Equal(t, http.StatusUnauthorized, refused.Status)
		_, err = agent.New(o.url, "x", &agent.Options{Dialect: "v4"})
		require.ErrorContains(t, err, "the dialect must be")
	})

	t.Run("the newer line of an agent has the older one wait", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		var log lockedBuffer
		a, err := agent.New(o.url, o.own, &agent.Options{Dialect: agent.DialectV5, Drain: -1, Logger: slog.New(slog.NewTextHandler(&log, nil)), Client: o.http})
		require.NoError(t, err)
		a.Handle("write", func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{}, nil })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = a.Run(ctx) })
		defer running.Wait()
		defer cancel()
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "connected") }, minute, soon)
		other := o.line(t)
		other.say(t, "M1|W9>O1|J|T0|-|-|-|0|S0|-|-")
		require.Contains(t, other.hear(t), "registered;id=W1")
		require.Eventually(t, func() bool { return strings.Contains(log.String(), "connected elsewhere") }, minute, soon)
	})
}

func TestAskingInLines(t *testing.T) {
	t.Parallel()

	t.Run("what is asked back is told once, and its answer goes to the worker", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		worker, c := o.line(t), o.asker(t)
		worker.say(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|-")
		_ = worker.hear(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{To: "W1", Capability: "write", Priority: "P0", Budget: 300})
		require.NoError(t, err)
		r := strings.SplitN(worker.hear(t), "|", 11)
		require.Equal(t, []string{"O1>W1", "R", "T1", "P0", "N", "-", "0", reply.Context, "B300", "call=write"}, r[1:])
		worker.say(t, "M2|W1>O1|C|T1|P0|R|-|0|"+reply.Context+"|B300|question=which format?;options=json,txt")
		require.Contains(t, worker.hear(t), "|asked")
		var questions []string
		var answered sync.WaitGroup
		answered.Go(func() {
			line := worker.hear(t)
			worker.say(t, "M3|W1>O1|S|T1|P0|D|-|0|"+reply.Context+"|B200|got="+line[strings.LastIndex(line, "=")+1:])
		})
		reply, err = c.AwaitLine(t.Context(), reply, func(r agent.LineReply) {
			questions = append(questions, r.Question)
			_, _, err := c.SayLines(t.Context(), 0, "M2|User>O1|C|"+r.TID+"|-|R|-|0|"+r.Context+"|-|answer=txt")
			require.NoError(t, err)
		})
		answered.Wait()
		require.NoError(t, err)
		require.Equal(t, "got=txt", reply.Output)
		require.Equal(t, []string{`question=which format?;opt1=json;opt2=txt`}, questions)
	})

	t.Run("a long result comes whole, whatever the worker speaks", func(t *testing.T) {
		t.Parallel()
		for _, dialect := range []string{agent.DialectEnvelope, agent.DialectV5} {
			for end, exit := range map[string]int{"success": 0, "failure": 4} {
				o := openOffice(t)
				want := strings.Repeat(end+"\n", 10_000)
				o.clerk(t, o.url, &agent.Options{Dialect: dialect}, func(context.Context, *agent.Work) (agent.Result, error) {
					return agent.Result{Output: want, ExitCode: exit}, nil
				})
				c := o.asker(t)
				reply, err := c.AskLine(t.Context(), &agent.LineRequest{Capability: "write"})
				require.NoError(t, err)
				reply, err = c.AwaitLine(t.Context(), reply, nil)
				require.NoError(t, err)
				require.Equal(t, []any{exit == 0, exit}, []any{reply.Succeeded, reply.ExitCode}, "%s: %+v", dialect, reply)
				same := want == reply.Output // 80 KB, which nobody wants to see compared
				require.True(t, same, dialect)
			}
		}
	})

	t.Run("work is taken back", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		ended := make(chan error, 1)
		o.clerk(t, o.url, &agent.Options{}, func(ctx context.Context, _ *agent.Work) (agent.Result, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return agent.Result{}, context.Cause(ctx)
		})
		c := o.asker(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{Capability: "write"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			return strings.Contains(string(o.do(t, http.MethodGet, "/api/v1/tasks/"+reply.Task.String(), "")), `"running"`)
		}, minute, 10*soon)
		require.NoError(t, c.CancelLine(t.Context(), reply))
		require.ErrorIs(t, <-ended, agent.ErrCancelled)
		reply, err = c.AwaitLine(t.Context(), reply, nil)
		require.NoError(t, err)
		require.Equal(t, []any{"U", true, false}, []any{reply.Type, reply.Ended, reply.Succeeded})
	})

	for name, r := range map[string]agent.LineRequest{
		"an object":           {Capability: "x", Parameters: json.RawMessage(`{"a":{}}`)},
		"null":                {Capability: "x", Parameters: json.RawMessage(`{"a":null}`)},
		"a bar":               {Capability: "x", Parameters: json.RawMessage(`{"a":"|"}`)},
		"a quote":             {Capability: "x", Parameters: json.RawMessage(`{"a":"\""}`)},
		"too much":            {Capability: "x", Parameters: json.RawMessage(`{"a":"` + strings.Repeat("x", 200) + `"}`)},
		"no object":           {Capability: "x", Parameters: json.RawMessage(`[]`)},
		"an address of none":  {To: "X1", Capability: "x"},
		"a priority of none":  {Priority: "P3", Capability: "x"},
		"a budget over 9,999": {Budget: 10_000, Capability: "x"},
	} {
		t.Run("a line cannot say "+name, func(t *testing.T) {
			t.Parallel()
			c, err := agent.NewClient("http://127.0.0.1:9", "x", nil)
			require.NoError(t, err)
			_, err = c.AskLine(t.Context(), &r)
			require.True(t, agent.IsUnsayable(err), "%v", err)
		})
	}

	t.Run("a door that is not there is an error with its status", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		c, err := agent.NewClient(o.url+"/elsewhere", o.admin, o.http)
		require.NoError(t, err)
		_, _, err = c.SayLines(t.Context(), 0, "M1|User>O1|Q|T0|-|-|-|0|S0|-|-")
		var refused *agent.Refused
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusNotFound, refused.Status)
	})
}

// wire is a line that a test holds itself.
type wire struct{ conn *websocket.Conn }

func (o *office) line(t *testing.T) wire {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), o.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPClient: o.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + o.own}}, Subprotocols: []string{"v5"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return wire{conn}
}

func (w wire) say(t *testing.T, line string) {
	t.Helper()
	require.NoError(t, w.conn.Write(t.Context(), websocket.MessageText, []byte(line)))
}

func (w wire) hear(t *testing.T) string {
	t.Helper()
	_, data, err := w.conn.Read(t.Context())
	require.NoError(t, err)
	return string(data)
}

// lockedBuffer is written and read by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
