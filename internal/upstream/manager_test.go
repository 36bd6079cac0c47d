//go:build unix

package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/upstream"
)

func TestCalls(t *testing.T) {
	t.Parallel()

	t.Run("RunInParallelOverOneConnection", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				res, err := b.Call(t.Context(), "a", "echo", json.RawMessage(fmt.Sprintf(`{"i":%d}`, i)), nil)
				require.NoError(t, err)
				require.JSONEq(t, fmt.Sprintf(`{"i":%d}`, i), textOf(t, res))
			})
		}
		wg.Wait()
		require.Zero(t, b.status(t, "a").Restarts)
	})

	t.Run("OneThatIsCancelledIsCancelledAtTheUpstream", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.Call(ctx, "a", "held", nil, nil)
			done <- err
		}()
		s := b.await(t, "a", func(s upstream.Status) bool { return len(s.Stderr) == 1 })
		id := strings.TrimPrefix(s.Stderr[0], "held ")
		cancel()
		err := <-done
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, context.Canceled)
		s = b.await(t, "a", func(s upstream.Status) bool { return len(s.Stderr) == 2 })
		require.Equal(t, "cancelled "+id, s.Stderr[1])
	})

	t.Run("ProgressReachesItsOwnCallAndEndsWithIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		progress := make(chan upstream.Progress, 10)
		done := make(chan error, 1)
		go func() {
			_, err := b.Call(t.Context(), "a", "slow", nil, &upstream.CallOptions{Progress: func(p upstream.Progress) { progress <- p }})
			done <- err
		}()
		for i := range 3 {
			require.Equal(t, upstream.Progress{Progress: float64(i + 1), Total: 3, Message: "m"}, <-progress)
		}
		require.Equal(t, "gone", b.call(t, "a", "go", ""))
		require.NoError(t, <-done)
		require.Empty(t, progress)
	})

	t.Run("AreRefusedWhereThereIsNoUpstream", func(t *testing.T) {
		t.Parallel()
		off := fakeServer("off", "plain")
		off.Disabled = true
		b := setup(t, upstream.Options{}, off)
		_, err := b.Call(t.Context(), "off", "echo", nil, nil)
		requireReason(t, upstream.ReasonDown, err)
		require.Equal(t, `upstream "off" is disabled`, errs.From(err).Detail)
		require.Equal(t, upstream.Disabled, b.status(t, "off").State)
	})
}

func TestApplyTouchesOnlyWhatHasChanged(t *testing.T) {
	t.Parallel()
	one, two, three := fakeServer("one", "plain"), fakeServer("two", "plain"), fakeServer("three", "plain")
	b := setup(t, upstream.Options{}, one, two)
	before := map[string]int{"one": b.ready(t, "one").PID, "two": b.ready(t, "two").PID}

	two.Env = map[string]string{fakeMode: "plain", "MORE": "1"}
	stopped, err := b.Apply(t.Context(), "file", []upstream.Server{one, two, three})
	require.NoError(t, err)
	require.Empty(t, stopped)
	b.ready(t, "three")
	require.Equal(t, before["one"], b.ready(t, "one").PID)
	require.NotEqual(t, before["two"], b.ready(t, "two").PID)
	requireGone(t, before["two"])

	t.Run("AndNothingOfAnotherSource", func(t *testing.T) {
		require.NoError(t, b.Put(t.Context(), "api", fakeServer("four", "plain")))
		err := b.Put(t.Context(), "api", fakeServer("one", "plain"))
		requireCode(t, errs.Conflict, err)
		requireCode(t, errs.Conflict, b.Remove(t.Context(), "api", "one"))
		stopped, err := b.Apply(t.Context(), "file", []upstream.Server{one, fakeServer("four", "plain"), {ID: "b_d", Command: "x"}})
		require.ErrorContains(t, err, `upstream "four" is already defined by api`)
		require.ErrorContains(t, err, `upstream "b_d" cannot be used: id may contain only letters, digits and hyphens, for example "b-d"`)
		require.ElementsMatch(t, []string{"three", "two"}, stopped)
		b.ready(t, "four")
		require.Len(t, b.Servers(), 2)
		require.NoError(t, b.Remove(t.Context(), "api", "four"))
		requireCode(t, errs.NotFound, b.Remove(t.Context(), "api", "four"))
		require.Equal(t, before["one"], b.status(t, "one").PID)
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()

	t.Run("AProgramThatIsKilledIsStartedAgain", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		pid := b.ready(t, "a").PID
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		s := b.await(t, "a", func(s upstream.Status) bool { return isReady(s) && s.PID != pid })
		require.Equal(t, 1, s.Restarts)
		require.Empty(t, s.Error)
		require.Contains(t, b.logged(), "signal: killed")
	})

	t.Run("RestartEndsTheWaitForTheNextTry", func(t *testing.T) {
		t.Parallel()
		set := make(chan struct{})
		lookup := func(name string) (string, bool) {
			select {
			case <-set:
				return "now-it-is", name == "LATE"
			default:
				return "", false
			}
		}
		a := fakeServer("a", "plain")
		a.Env["KEY"] = "${LATE}"
		b := setup(t, upstream.Options{Backoff: time.Hour, MaxBackoff: time.Hour, LookupEnv: lookup}, a)
		s := b.await(t, "a", func(s upstream.Status) bool { return s.State == upstream.Failed && s.Error != "" })
		require.Equal(t, "in env.KEY, the variable LATE is not set", s.Error)
		close(set)
		require.NoError(t, b.Restart("a"))
		b.ready(t, "a")
	})

	t.Run("TheNewestRevisionIsSpokenWhereItCanBe", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("old", "plain"), fakeServer("new", "sdk"), upstream.Server{
			ID: "asked", Command: os.Args[0], Env: map[string]string{fakeMode: "sdk"}, Protocol: "2025-06-18",
		})
		require.Equal(t, "2025-11-25", b.ready(t, "old").Protocol)
		require.Equal(t, "2025-06-18", b.ready(t, "asked").Protocol)
		s := b.ready(t, "new")
		require.Equal(t, "2026-07-28", s.Protocol)
		require.Equal(t, []any{"sdk", "2", "be kind"}, []any{s.ServerName, s.ServerVersion, s.Instructions})
	})

	t.Run("StopEndsEverythingAndMayBeRepeated", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{StopGrace: 20 * time.Millisecond}, fakeServer("a", "plain"), fakeServer("b", "stubborn"), fakeServer("c", "silent"))
		pids := []int{b.ready(t, "a").PID, b.ready(t, "b").PID}
		require.NoError(t, b.Stop(t.Context()))
		require.NoError(t, b.Stop(t.Context()))
		for _, pid := range pids {
			requireGone(t, pid)
		}
		_, err := b.Call(t.Context(), "a", "echo", nil, nil)
		require.Equal(t, `upstream "a" has been stopped`, errs.From(err).Detail)
		requireCode(t, errs.Unavailable, b.Put(t.Context(), "api", fakeServer("d", "plain")))
	})
}

// TestKill9 kills a program that runs an upstream with SIGKILL. The upstream ignores the end of its
// input and SIGTERM.
func TestKill9LeavesNoUpstreamBehind(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), fakeMode+"=holder")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = in.Close() })
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	requireGone(t, pid)
}

func TestEverythingElseOfAnUpstream(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]string{"Newest": "", "Session": "2025-11-25"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := fakeServer("a", "sdk")
			a.Protocol = protocol
			everything(t, setup(t, upstream.Options{MaxMessage: 1 << 20}, a))
		})
	}
}

// everything uses all features of newSDKServer, over any transport.
func everything(t *testing.T, b *bench) {
	t.Helper()
	s := b.ready(t, "a")
	require.Equal(t, []int{7, 1, 1, 1}, []int{s.Tools, s.Resources, s.Templates, s.Prompts}, s.Warnings)
	require.Equal(t, "ask", b.Tools("a")[0].Name)
	require.Equal(t, "file:///a", b.Resources("a")[0].URI)
	require.Equal(t, "file:///{x}", b.ResourceTemplates("a")[0].URITemplate)
	require.Equal(t, "greet", b.Prompts("a")[0].Name)
	require.JSONEq(t, `{"x":1}`, b.call(t, "a", "echo", `{"x":1}`))

	res, err := b.ReadResource(t.Context(), "a", "file:///a", nil)
	require.NoError(t, err)
	require.Equal(t, "content", res.Contents[0].Text)
	prompt, err := b.GetPrompt(t.Context(), "a", "greet", map[string]string{"who": "you"}, nil)
	require.NoError(t, err)
	require.Equal(t, "hello you", prompt.Description)
	completed, err := b.Complete(t.Context(), "a", &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "y"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"y!"}, completed.Completion.Values)

	_, err = b.ReadResource(t.Context(), "a", "file:///b/c", nil)
	requireReason(t, upstream.ReasonProtocol, err)
	_, err = b.Call(t.Context(), "a", "big", nil, nil)
	requireReason(t, upstream.ReasonTooLarge, err)

	var asked string
	answer, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{
		Can: upstream.Capabilities{Elicitation: &mcp.ElicitationCapabilities{}},
		Ask: func(_ context.Context, q mcp.InputRequestMap) (mcp.InputResponseMap, error) {
			answers := mcp.InputResponseMap{}
			for name, form := range q {
				asked = form.(*mcp.ElicitParams).Message
				answers[name] = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"ok": true}}
			}
			return answers, nil
		},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"sure?", "accept"}, []string{asked, textOf(t, answer)})
	require.Equal(t, "decline", b.call(t, "a", "ask", ""))

	require.Equal(t, "added", b.call(t, "a", "more", ""))
	b.await(t, "a", func(s upstream.Status) bool { return s.Tools == 8 })
	require.Equal(t, "new", b.call(t, "a", "added", ""))
	require.Eventually(t, func() bool { return b.reported(upstream.Change{Server: "a", Kind: upstream.Tools}) }, long, 5*time.Millisecond)
	require.NoError(t, b.Subscribe(t.Context(), "a", "file:///a"))
	require.Equal(t, "touched", b.call(t, "a", "touch", ""))
	require.Eventually(t, func() bool {
		return b.reported(upstream.Change{Server: "a", Kind: upstream.ResourceUpdated, URI: "file:///a"})
	}, long, 5*time.Millisecond)
	require.NoError(t, b.Unsubscribe(t.Context(), "a", "file:///a"))
	require.NoError(t, b.Unsubscribe(t.Context(), "a", "file:///a"))
	require.Zero(t, b.status(t, "a").Restarts)
}
