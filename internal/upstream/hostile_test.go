//go:build unix

package upstream_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/upstream"
)

func TestAHostileUpstreamAffectsOnlyItself(t *testing.T) {
	t.Parallel()

	t.Run("GarbageIsDroppedCountedAndShown", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		require.Equal(t, "after", b.call(t, "bad", "garbage", ""))
		s := b.status(t, "bad")
		require.Zero(t, s.Restarts)
		require.Equal(t, []string{`6 lines or events were dropped that are not messages of the protocol; the first one began with "starting up"`}, s.Warnings)
	})

	t.Run("OneThatNeverAnswersFailsItsCallOnly", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"), fakeServer("good", "plain"))
		_, err := b.Call(t.Context(), "bad", "never", nil, &upstream.CallOptions{Timeout: 50 * time.Millisecond})
		requireReason(t, upstream.ReasonTimeout, err)
		require.Equal(t, `upstream "bad" did not respond to the tool never within 50ms`, errs.From(err).Detail)
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""), "the connection is as good as before")
		require.Equal(t, "{}", b.call(t, "good", "echo", ""))
		require.Zero(t, b.status(t, "bad").Restarts)
	})

	t.Run("OneThatDoesNotAnswerAnythingIsStartedAgain", func(t *testing.T) {
		t.Parallel()
		bad := fakeServer("bad", "plain")
		bad.Timeout = 5 * time.Second // of the check, and of the lists at the start
		b := setup(t, upstream.Options{StopGrace: 10 * time.Millisecond}, bad)
		_, err := b.Call(t.Context(), "bad", "hang", nil, &upstream.CallOptions{Timeout: 50 * time.Millisecond})
		requireReason(t, upstream.ReasonTimeout, err)
		b.await(t, "bad", func(s upstream.Status) bool { return isReady(s) && s.Restarts == 1 })
		require.Contains(t, b.logged(), "it does not respond any more")
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""))
	})

	t.Run("OneThatNeverStartsDelaysNoOther", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{FirstStartWait: time.Millisecond, StopGrace: 10 * time.Millisecond}, fakeServer("bad", "silent"), fakeServer("good", "plain"))
		b.ready(t, "good")
		_, err := b.Call(t.Context(), "bad", "echo", nil, nil)
		requireReason(t, upstream.ReasonDown, err)
		require.Equal(t, `upstream "bad" is starting`, errs.From(err).Detail)
		require.Nil(t, b.Tools("bad"))
	})

	t.Run("OneThatCannotBeStartedIsTriedAgainAndSaysWhy", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("exits", "exits"), upstream.Server{ID: "missing", Command: "no-such-program"})
		hasty := setup(t, upstream.Options{StartTimeout: time.Second, StopGrace: 10 * time.Millisecond}, fakeServer("silent", "silent"))
		s := b.await(t, "exits", func(s upstream.Status) bool { return s.State == upstream.Failed && s.Restarts > 2 })
		require.Equal(t, "the program ended (exit status 3); its last output: cannot open ", s.Error)
		require.False(t, s.NextAttempt.IsZero())
		require.Zero(t, s.PID)
		s = b.await(t, "missing", func(s upstream.Status) bool { return s.Error != "" })
		require.Equal(t, "the program \"no-such-program\" could not be started: executable file not found in $PATH", s.Error)
		s = hasty.await(t, "silent", func(s upstream.Status) bool { return s.Error != "" })
		require.Equal(t, "it does not respond to the first request within 1s", s.Error)
		_, err := b.Call(t.Context(), "missing", "echo", nil, nil)
		require.ErrorContains(t, err, `upstream "missing" is down: the program "no-such-program" could not be started`)
	})

	t.Run("ASecondAnswerIsIgnored", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		require.Equal(t, "first", b.call(t, "bad", "twice", ""))
		require.JSONEq(t, `{"a":1}`, b.call(t, "bad", "echo", `{"a":1}`))
	})

	t.Run("DeathInTheMiddleOfACall", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		_, err := b.Call(t.Context(), "bad", "die", nil, nil)
		requireReason(t, upstream.ReasonDown, err)
		require.Equal(t, `upstream "bad" ended before it responded to the tool die`, errs.From(err).Detail)
		b.await(t, "bad", func(s upstream.Status) bool { return isReady(s) && s.Restarts == 1 })
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""))
		require.Eventually(t, func() bool { return b.reported(upstream.Change{Server: "bad", Kind: upstream.Down}) }, long, 5*time.Millisecond)
		require.Contains(t, b.logged(), "the program ended (exit status 3)")
	})

	t.Run("AResultOverTheLimitFailsItsCallOnly", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		b.ready(t, "bad")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := b.Call(t.Context(), "bad", "big", nil, nil)
				requireReason(t, upstream.ReasonTooLarge, err)
			})
		}
		wg.Wait()
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""))
		require.Zero(t, b.status(t, "bad").Restarts)
	})

	t.Run("TooManyTools", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "many"))
		s := b.ready(t, "bad")
		require.Equal(t, upstream.MaxTools, s.Tools)
		require.Equal(t, []string{"there are more than 10000 tools; the others were left out"}, s.Warnings)
		require.Equal(t, "t00000", b.Tools("bad")[0].Name)
	})

	t.Run("ToolsThatCannotBeUsedAreLeftOutAndNamed", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "odd"))
		s := b.ready(t, "bad")
		var names []string
		for _, tool := range b.Tools("bad") {
			names = append(names, tool.Name)
		}
		require.Equal(t, []string{"a", "b", "c"}, names)
		require.Equal(t, "d", b.Tools("bad")[1].Description, "the first of a name wins")
		text := strings.Join(s.Warnings, "\n")
		for _, want := range []string{
			`the tool "b" was left out: an earlier one has the same name`, `the tool "" was left out: it has no name`,
			"its name is longer than 128 bytes", `the tool "s1" was left out: its input schema is not a JSON Schema of an object: q: "strnig" is not a type`,
			`"s2"`, `"s3"`, `"s4" was left out: it has no input schema`, `"s5" was left out: its input schema is not a JSON Schema of an object: its type is not "object"`,
		} {
			require.Contains(t, text, want)
		}
		_, err := b.Call(t.Context(), "bad", "s1", nil, nil)
		requireCode(t, errs.NotFound, err)
	})

	t.Run("AFloodOnStandardErrorIsReadKeptShortAndLoggedInPart", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "floods"))
		s := b.await(t, "bad", func(s upstream.Status) bool {
			return isReady(s) && len(s.Stderr) == 20 && s.Stderr[19] == "line 199999"
		})
		require.Equal(t, "line 199980", s.Stderr[0])
		require.Less(t, strings.Count(b.logged(), "standard error of an upstream"), 5000)
	})

	t.Run("AStormOfChangesIsReadAFewTimes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{ChangeDelay: 50 * time.Millisecond}, fakeServer("bad", "plain"))
		require.Equal(t, "stormed", b.call(t, "bad", "storm", ""))
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""))
		require.False(t, b.reported(upstream.Change{Server: "bad", Kind: upstream.Tools}), "nothing has changed")
	})

	t.Run("RequestsWithoutParametersEndNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		_, err := b.Call(t.Context(), "bad", "crash", nil, nil)
		requireReason(t, upstream.ReasonProtocol, err)
		require.Equal(t, "{}", b.call(t, "bad", "echo", ""))
		require.Zero(t, b.status(t, "bad").Restarts)
	})

	t.Run("AnErrorOfItsOwnIsPassedOn", func(t *testing.T) {
		t.Parallel()
		server := fakeServer("bad", "plain")
		server.Env["API_KEY"] = "hidden-value-1"
		b := setup(t, upstream.Options{}, server)
		_, err := b.Call(t.Context(), "bad", "refuse", nil, nil)
		requireReason(t, upstream.ReasonProtocol, err)
		require.Equal(t, `upstream "bad" refused the tool refuse: no (-32004)`, errs.From(err).Detail)
		require.EqualValues(t, -32004, errs.From(err).Meta["rpc_code"])
		require.JSONEq(t, `{"why":"so","key":"********"}`, string(errs.From(err).Meta["rpc_data"].(json.RawMessage)))
	})

	t.Run("OneThatDoesNotEndIsKilled", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{StopGrace: 20 * time.Millisecond}, fakeServer("bad", "stubborn"))
		pid := b.ready(t, "bad").PID
		require.NoError(t, b.Remove(t.Context(), "file", "bad"))
		requireGone(t, pid)
	})

	t.Run("WhatItStartedEndsWithIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("bad", "plain"))
		child, err := strconv.Atoi(b.call(t, "bad", "grandchild", ""))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(child, 0))
		_, err = b.Call(t.Context(), "bad", "die", nil, nil)
		requireReason(t, upstream.ReasonDown, err)
		requireGone(t, child)
	})
}

// requireGone waits until a process has ended. A zombie has ended, too.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat[strings.LastIndexByte(string(stat), ')'):]), " Z ")
	}, long, 5*time.Millisecond)
}

func TestArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, upstream.Options{MaxMessage: 1 << 20}, fakeServer("a", "plain"))
	for name, args := range map[string]string{"a list": "[]", "text": `"x"`, "half an object": "{"} {
		_, err := b.Call(t.Context(), "a", "echo", json.RawMessage(args), nil)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), name)
	}
	_, err := b.Call(t.Context(), "a", "echo", json.RawMessage(`{"a":"`+strings.Repeat("x", 1<<20)+`"}`), nil)
	requireReason(t, upstream.ReasonTooLarge, err)
	_, err = b.Call(t.Context(), "a", "nothing", nil, nil)
	requireCode(t, errs.NotFound, err)
	require.Equal(t, `upstream "a" has no tool "nothing"`, errs.From(err).Detail)
	_, err = b.Call(t.Context(), "b", "echo", nil, nil)
	requireCode(t, errs.NotFound, err)
}
