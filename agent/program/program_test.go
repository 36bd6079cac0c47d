//go:build unix

package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
)

// fakeTask records progress, tokens and output.
type fakeTask struct {
	parameters string
	hints      agent.Hints

	mu     sync.Mutex
	output bytes.Buffer
	steps  []string
	tokens map[string]int64
}

func (f *fakeTask) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.output.Write(p)
}

func (f *fakeTask) Progress(percent int, step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, fmt.Sprintf("%d %s", percent, step))
	return nil
}

func (f *fakeTask) TokensOf(model string, n int64) {
	if f.tokens == nil {
		f.tokens = map[string]int64{}
	}
	f.tokens[model] += n
}

func (f *fakeTask) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.output.String()
}

func (f *fakeTask) Type() string      { return "run_playbook" }
func (f *fakeTask) TaskID() uuid.UUID { return uuid.MustParse("550e8400-e29b-41d4-a716-446655440004") }
func (f *fakeTask) RequestID() uuid.UUID {
	return uuid.MustParse("550e8400-e29b-41d4-a716-446655440003")
}
func (f *fakeTask) TraceID() uuid.UUID          { return uuid.MustParse("550e8400-e29b-41d4-a716-446655440002") }
func (f *fakeTask) Hints() agent.Hints          { return f.hints }
func (f *fakeTask) Parameters() json.RawMessage { return json.RawMessage(f.parameters) }

// shell returns a Runner of a script.
func shell(script string) *Runner {
	return New([]string{"/bin/sh", "-c", script}, &Options{Grace: time.Minute, MaxOutput: 1 << 20})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, script string, w *fakeTask) (agent.Result, error) {
		t.Helper()
		if w.parameters == "" {
			w.parameters = "{}"
		}
		r := shell(script)
		return r.runTask(t.Context(), w)
	}

	t.Run("passes the parameters on standard input", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{parameters: `{"a":[1,2]}`}
		r, err := run(t, `cat; echo; echo "$COMET_PARAMETERS"`, w)
		require.NoError(t, err)
		require.Equal(t, "{\"a\":[1,2]}\n{\"a\":[1,2]}\n", r.Output)
	})

	t.Run("does not block on unread parameters", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{parameters: `{"a":"` + strings.Repeat("x", 1<<20) + `"}`}
		r, err := run(t, `echo "${COMET_PARAMETERS-too long} ${COMET_PARAM_A-too long}"`, w)
		require.NoError(t, err)
		require.Equal(t, "too long too long\n", r.Output)
	})

	t.Run("passes ids and scalars as variables", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{parameters: `{"name":"a b","n":1.50,"yes":true,"o":{},"nil":null,"path":"/evil","extra-vars.x":"dashes","nul":"a\u0000b"}`}
		r, err := run(t, `env | grep '^COMET_' | grep -v COMET_PARAMETERS | sort; test "$PATH" != /evil`, w)
		require.NoError(t, err)
		require.Equal(t, strings.Join([]string{
			"COMET_PARAM_EXTRA_VARS_X=dashes", "COMET_PARAM_N=1.50", "COMET_PARAM_NAME=a b", "COMET_PARAM_PATH=/evil", "COMET_PARAM_YES=true",
			"COMET_REQUEST_ID=550e8400-e29b-41d4-a716-446655440003", "COMET_TASK_ID=550e8400-e29b-41d4-a716-446655440004",
			"COMET_TRACE_ID=550e8400-e29b-41d4-a716-446655440002", "COMET_WORK_TYPE=run_playbook", "",
		}, "\n"), r.Output)
	})

	t.Run("sends the lines of both streams without directives", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{}
		r, err := run(t, `echo one; echo "::progress 40 pulling  images"; echo two >&2; echo "::progress 41" >&2; echo "::tokens 12 small"; echo "::tokens 3"; echo "::progress 140 no"; echo "::other 1"; printf end`, w)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"one", "two", "::progress 41", "::progress 140 no", "::other 1", "end"}, strings.Split(strings.TrimSpace(w.text()), "\n"))
		require.Equal(t, w.text(), r.Output)
		require.Equal(t, []string{"40 pulling  images"}, w.steps)
		require.Equal(t, map[string]int64{"small": 12, "": 3}, w.tokens)
	})

	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"an exit code is the result's":      {"exit 7", 7},
		"a signal is 128 and its number":    {"kill -TERM $$", 143},
		"a kill is 128 and its number, too": {"kill -KILL $$", 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := run(t, c.script, &fakeTask{})
			require.NoError(t, err)
			require.Equal(t, c.code, r.ExitCode)
		})
	}

	t.Run("fails the task if the command is missing", func(t *testing.T) {
		t.Parallel()
		r := New([]string{filepath.Join(t.TempDir(), "gone")}, nil)
		result, err := r.runTask(t.Context(), &fakeTask{parameters: "{}"})
		require.ErrorContains(t, err, "cannot be started")
		require.Equal(t, 126, result.ExitCode)
	})

	t.Run("sends megabytes in order and keeps their end as the result", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{}
		r, err := run(t, `i=0; while [ $i -lt 300 ]; do printf '%065535d\n' $i; i=$((i+1)); done`, w)
		require.NoError(t, err)
		var want strings.Builder
		for i := range 300 {
			_, _ = fmt.Fprintf(&want, "%065535d\n", i)
		}
		same := want.String() == w.text() // require.Equal would print 19 MiB
		require.True(t, same)
		require.Less(t, len(r.Output), 1<<20)
		mark, rest, _ := strings.Cut(r.Output, "\n")
		require.Equal(t, "[earlier output is omitted]", mark)
		require.True(t, strings.HasSuffix(want.String(), rest))
		require.Len(t, rest, 65536*15, "complete lines")
	})

	t.Run("sends a long line without an end", func(t *testing.T) {
		t.Parallel()
		w := &fakeTask{}
		_, err := run(t, `head -c 300000 /dev/zero | tr '\0' x`, w)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("x", 300_000), w.text())
	})

	t.Run("reports the resources it used", func(t *testing.T) {
		t.Parallel()
		var line string
		r := shell(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`)
		r.opts.Log = func(text string) { line = text }
		result, err := r.runTask(t.Context(), &fakeTask{parameters: "{}"})
		require.NoError(t, err)
		require.Positive(t, result.CPUTime)
		require.Regexp(t, `^\S+Z  550e8400-e29b-41d4-a716-446655440004  run_playbook  success  exit 0  \S+  cpu \S+  rss [1-9]\d* MB$`, line)
	})

	t.Run("hides comet's variables", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"HOME=/", "COMETS=7"}, inherited([]string{
			"COMET_TOKEN=secret", "HOME=/", "COMET_ADMIN_TOKEN=secret", "COMET_DATABASE_URL=postgres://u:p@h/d", "COMET_NATS_URL=nats://u:p@h", "COMET_SERVER=x",
			"COMET_CLIENT_CONFIG=x", "COMET_PARAM_X=old", "COMET_TASK_ID=old", "COMET_=x", "comet_token=secret", "COMETS=7",
		}))
	})
}

func TestCommandIsEnded(t *testing.T) {
	t.Parallel()
	// begin runs a script until it has printed ready and the pid of its child.
	begin := func(t *testing.T, r *Runner, w *fakeTask) (cancel context.CancelCauseFunc, child int, ended func() (agent.Result, error)) {
		t.Helper()
		w.parameters = "{}"
		ctx, cancel := context.WithCancelCause(t.Context())
		var result agent.Result
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			result, err = r.runTask(ctx, w)
		}()
		require.Eventually(t, func() bool { return strings.Contains(w.text(), "ready") }, time.Minute, 5*time.Millisecond)
		child, _ = strconv.Atoi(strings.Fields(w.text())[0])
		return cancel, child, func() (agent.Result, error) {
			<-done
			return result, err
		}
	}
	gone := func(t *testing.T, pid int) {
		t.Helper()
		require.Positive(t, pid)
		require.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 5*time.Millisecond, "a child of the command lives on")
	}

	t.Run("asks the process group to end", func(t *testing.T) {
		t.Parallel()
		r := shell(`trap 'echo last words; exit 3' TERM; sleep 600 & echo $! ready; wait`)
		w := &fakeTask{}
		cancel, child, ended := begin(t, r, w)
		cancel(agent.ErrCancelled)
		result, err := ended()
		require.ErrorIs(t, err, agent.ErrCancelled)
		require.Equal(t, 3, result.ExitCode)
		require.Contains(t, w.text(), "last words")
		gone(t, child)
	})

	t.Run("kills a command that ignores SIGTERM after the grace period", func(t *testing.T) {
		t.Parallel()
		r := shell(`trap '' TERM; sleep 600 & echo $! ready; while :; do sleep 600; done`)
		r.opts.Grace = 10 * time.Millisecond
		cancel, child, ended := begin(t, r, &fakeTask{})
		cancel(agent.ErrMaxDuration)
		result, err := ended()
		require.ErrorIs(t, err, agent.ErrMaxDuration)
		require.Equal(t, agent.ExitMaxDuration, result.ExitCode)
		gone(t, child)
	})

	t.Run("kills it at once at a second signal", func(t *testing.T) {
		t.Parallel()
		r := shell(`trap '' TERM; sleep 600 & echo $! ready; while :; do sleep 600; done`)
		_, child, ended := begin(t, r, &fakeTask{})
		r.Kill()
		_, err := ended()
		require.ErrorIs(t, err, agent.ErrStopping)
		gone(t, child)
	})

	t.Run("kills processes that it leaves", func(t *testing.T) {
		t.Parallel()
		r := shell(`sleep 600 & echo $! ready`)
		w := &fakeTask{}
		_, child, ended := begin(t, r, w)
		result, err := ended()
		require.NoError(t, err)
		require.Zero(t, result.ExitCode)
		gone(t, child)
	})
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	// A shell with 64 MiB in a variable, in a child process.
	const script = `sh -c 'x=$(head -c 67108864 /dev/zero | tr "\0" x); echo full; sleep 600'`
	t.Run("kills the group of a command that uses more", func(t *testing.T) {
		t.Parallel()
		r := shell(script)
		w := &fakeTask{parameters: "{}", hints: agent.Hints{MaxMemoryMB: 32}}
		_, err := r.runTask(t.Context(), w)
		require.ErrorContains(t, err, "Resource limit exceeded")
	})
	t.Run("spares a command that uses less", func(t *testing.T) {
		t.Parallel()
		r := shell(`sleep 0.6; echo done`)
		w := &fakeTask{parameters: "{}", hints: agent.Hints{MaxMemoryMB: 64}}
		result, err := r.runTask(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, "done\n", result.Output)
	})
	t.Run("reads a process name with parentheses", func(t *testing.T) {
		t.Parallel()
		line := "7 (evil) 1 2 (x) S 5 6 6 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9 1000000 321 18446744073709551615 1"
		require.Equal(t, procStat{parent: 5, group: 6, session: 6, pages: 321}, readProcess([]byte(line)))
	})
}

func TestExampleWorker(t *testing.T) {
	t.Parallel()
	w := &fakeTask{parameters: `{"text":"hello"}`}
	r := New([]string{"../../examples/workers/echo.sh"}, &Options{MaxOutput: 100})
	result, err := r.runTask(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, agent.Result{Output: "hello\n", CPUTime: result.CPUTime}, result)
	require.Equal(t, []string{"50 preparing the echo"}, w.steps)
}
