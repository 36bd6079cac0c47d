//go:build unix

package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/upstream"
)

// long is the timeout of expected events.
const long = time.Minute

// bench is a manager with its changes and its log.
type bench struct {
	*upstream.Manager
	mu      sync.Mutex
	log     bytes.Buffer
	changes []upstream.Change
}

// setup starts a manager that is stopped with the test.
func setup(t *testing.T, o upstream.Options, servers ...upstream.Server) *bench {
	t.Helper()
	b := &bench{}
	o.Logger = slog.New(slog.NewTextHandler(b, nil))
	o.OnChange = func(c upstream.Change) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changes = append(b.changes, c)
	}
	if o.ChangeDelay == 0 {
		o.ChangeDelay = 10 * time.Millisecond
	}
	if o.Backoff == 0 {
		o.Backoff = 10 * time.Millisecond
	}
	if o.FirstStartWait == 0 {
		o.FirstStartWait = long
	}
	b.Manager = upstream.New(&o)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		require.NoError(t, b.Stop(ctx))
	})
	_, err := b.Apply(t.Context(), "file", servers)
	require.NoError(t, err)
	return b
}

// Write implements io.Writer for the log.
func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *bench) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

func (b *bench) reported(c upstream.Change) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.changes {
		if x == c {
			return true
		}
	}
	return false
}

// fakeServer returns the definition of an upstream that is the test binary.
func fakeServer(id, mode string) upstream.Server {
	return upstream.Server{ID: id, Command: os.Args[0], Env: map[string]string{fakeMode: mode}}
}

func (b *bench) status(t *testing.T, id string) upstream.Status {
	t.Helper()
	s, known := b.Server(id)
	require.True(t, known)
	return s
}

// await waits until the status of an upstream fulfils a condition.
func (b *bench) await(t *testing.T, id string, want func(upstream.Status) bool) upstream.Status {
	t.Helper()
	var s upstream.Status
	require.Eventually(t, func() bool {
		s = b.status(t, id)
		return want(s)
	}, long, 5*time.Millisecond, "%s", &last{b, id})
	return s
}

// last describes an upstream when it is printed.
type last struct {
	b  *bench
	id string
}

func (l *last) String() string {
	s, _ := l.b.Server(l.id)
	text, _ := json.Marshal(s)
	return string(text)
}

func isReady(s upstream.Status) bool { return s.State == upstream.Ready }

func (b *bench) ready(t *testing.T, id string) upstream.Status { return b.await(t, id, isReady) }

// call calls a tool and returns the text of its result.
func (b *bench) call(t *testing.T, id, tool, args string) string {
	t.Helper()
	res, err := b.Call(t.Context(), id, tool, json.RawMessage(args), nil)
	require.NoError(t, err)
	return textOf(t, res)
}

func textOf(t *testing.T, result *upstream.Result) string {
	t.Helper()
	res, err := result.Decoded()
	require.NoError(t, err)
	require.Len(t, res.Content, 1)
	text, ok := res.Content[0].(*mcp.TextContent)
	require.True(t, ok)
	return text.Text
}

func requireReason(t *testing.T, want string, err error) {
	t.Helper()
	requireCode(t, errs.UpstreamFailed, err)
	require.Equal(t, want, errs.From(err).Meta["reason"], "%v", err)
}

func requireCode(t *testing.T, want errs.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, errs.CodeOf(err), "%v", err)
}
