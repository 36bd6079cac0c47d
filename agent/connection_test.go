package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/wire/envelope"
)

// TestLostConnections closes the connection at random moments while work goes on.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("loses nothing and runs nothing twice, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			random := rand.New(rand.NewPCG(1, seed))
			s.judge = func(envelope.Envelope, int) verdict {
				switch n := random.IntN(40); n {
				case 0, 1:
					return cutBefore
				case 2, 3:
					return cutAfter
				}
				return acknowledge
			}
			const tasks, texts = 15, 25
			var mu sync.Mutex
			runs := map[uuid.UUID]int{}
			setup(t, s, &agent.Options{Concurrency: tasks, Flush: time.Millisecond, MaxPending: 20}, map[string]agent.Handler{
				"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
					mu.Lock()
					runs[w.RequestID()]++
					mu.Unlock()
					for i := range texts {
						if err := w.Progress(i, fmt.Sprint("step ", i)); err != nil {
							return agent.Result{}, err
						}
						if _, err := fmt.Fprintf(w, "%d;", i); err != nil {
							return agent.Result{}, err
						}
					}
					return agent.Result{Output: "done"}, nil
				},
			})
			want := ""
			for i := range texts {
				want += fmt.Sprintf("%d;", i)
			}
			var all []envelope.Envelope
			for range tasks {
				e := request("w", `{}`)
				all = append(all, e)
				s.send(e)
			}
			for _, e := range all {
				require.Equal(t, envelope.OutcomeSuccess, s.eventually(e).Payload.(envelope.WorkResult).Status)
				require.Len(t, s.results(e.RequestID), 1)
				require.Equal(t, want, s.output(e.RequestID), "complete and in order")
				mu.Lock()
				times := runs[e.RequestID]
				mu.Unlock()
				require.Equal(t, 1, times)
			}
			opened, repeats := s.counts()
			require.Greater(t, opened, 3, "connections were lost")
			require.Positive(t, repeats, "unacknowledged messages were sent again")
		})
	}
}

func TestBackPressure(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var mu sync.Mutex
	silent := true
	s.judge = func(e envelope.Envelope, _ int) verdict {
		mu.Lock()
		defer mu.Unlock()
		if silent && e.Type == envelope.TypeWorkStatus {
			return ignore
		}
		return acknowledge
	}
	text := strings.Repeat("x", 32<<10)
	written := make(chan int, 1000)
	setup(t, s, &agent.Options{MaxPendingBytes: 1 << 20}, map[string]agent.Handler{"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
		for i := range 100 {
			if _, err := w.Write([]byte(text)); err != nil {
				return agent.Result{}, err
			}
			written <- i
		}
		return agent.Result{}, nil
	}})
	e := request("w", `{}`)
	s.send(e)
	require.Eventually(t, func() bool { return len(written) >= 30 }, minute, soon)
	require.Never(t, func() bool { return len(written) > 36 }, 50*time.Millisecond, soon, "1 MiB and what one batch holds")
	mu.Lock()
	silent = false
	mu.Unlock()
	s.cut() // the next connection brings every message again
	s.eventually(e)
	require.Equal(t, strings.Repeat(text, 100), s.output(e.RequestID))
}

func TestMissingAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.hello.HeartbeatSeconds = 0.02
	ignored := map[uuid.UUID]bool{}
	s.judge = func(e envelope.Envelope, _ int) verdict {
		if _, beat := e.Payload.(envelope.Heartbeat); !beat && !ignored[e.MessageID] {
			ignored[e.MessageID] = true
			return ignore
		}
		return acknowledge
	}
	setup(t, s, nil, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
		return agent.Result{Output: "done"}, nil
	}})
	e := request("w", `{}`)
	s.send(e)
	require.Equal(t, "done", s.eventually(e).Payload.(envelope.WorkResult).Output)
	opened, _ := s.counts()
	require.Equal(t, 1, opened, "on the same connection")
}

// TestServerUnavailable rejects messages because the server is unavailable, on a connection with
// heartbeats too rare to cause a retry.
func TestServerUnavailable(t *testing.T) {
	t.Parallel()

	t.Run("sends a rejected result again on the same connection", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.hello.HeartbeatSeconds = 3600
		came := 0
		s.judge = func(e envelope.Envelope, _ int) verdict {
			if e.Type == envelope.TypeWorkResult {
				if came++; came == 1 {
					return unable
				}
			}
			return acknowledge
		}
		var runs atomic.Int64
		setup(t, s, nil, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			runs.Add(1)
			return agent.Result{Output: "done"}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		require.Equal(t, "done", s.eventually(e).Payload.(envelope.WorkResult).Output)
		require.EqualValues(t, 1, runs.Load())
		opened, _ := s.counts()
		require.Equal(t, 1, opened)
	})

	t.Run("keeps the order of rejected output and later messages", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.hello.HeartbeatSeconds = 3600
		var first envelope.Envelope
		s.judge = func(e envelope.Envelope, _ int) verdict {
			if st, ok := e.Payload.(envelope.WorkStatus); ok && st.Step != nil && first.MessageID == uuid.Nil {
				first = e
				return ignore
			}
			return acknowledge
		}
		rejected := make(chan struct{})
		setup(t, s, &agent.Options{Flush: time.Millisecond}, map[string]agent.Handler{"w": func(ctx context.Context, w *agent.Work) (agent.Result, error) {
			_, _ = fmt.Fprint(w, "one ")
			select {
			case <-rejected:
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
			_, err := fmt.Fprint(w, "two")
			return agent.Result{Output: "done"}, err
		}})
		e := request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return first.MessageID != uuid.Nil }, minute, soon)
		s.send(envelope.Reply(first, uuid.New(), time.Now(), envelope.Unavailable(envelope.Orchestrator, nil)))
		require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.owed) == 0 }, minute, soon, "the rejection was handled")
		close(rejected)
		require.Equal(t, "done", s.eventually(e).Payload.(envelope.WorkResult).Output)
		require.Equal(t, "one two", s.output(e.RequestID))
	})
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	written := make(chan struct{})
	setup(t, s, &agent.Options{Flush: time.Millisecond}, map[string]agent.Handler{"w": func(ctx context.Context, w *agent.Work) (agent.Result, error) {
		_, _ = fmt.Fprint(w, "too much")
		select {
		case <-written:
		case <-ctx.Done():
		}
		_, err := fmt.Fprint(w, "more of it")
		return agent.Result{Output: "the work goes on"}, err
	}})
	e := request("w", `{}`)
	s.send(e)
	require.Eventually(t, func() bool { return s.output(e.RequestID) != "" }, minute, soon)
	status := slices.IndexFunc(s.of(e.RequestID), func(e envelope.Envelope) bool { return e.Payload.(envelope.WorkStatus).Step != nil })
	refusal := envelope.Reply(s.of(e.RequestID)[status], uuid.New(), time.Now(), envelope.ResourceLimit("output_bytes", 1, 2))
	s.send(refusal)
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.owed) == 0 }, minute, soon)
	close(written)
	require.Equal(t, "the work goes on", s.eventually(e).Payload.(envelope.WorkResult).Output)
	require.Equal(t, "too much", s.output(e.RequestID))
}

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("returns at once for an invalid token", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.refuse = 401
		a, err := agent.New(s.url, "wrong", nil)
		require.NoError(t, err)
		a.Handle("w", waits)
		err = a.Run(t.Context())
		var refused *agent.ResponseError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "the server responded 401 Unauthorized: the token is not valid", err.Error())
	})

	t.Run("returns at once for an error instead of a hello", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.instead = envelope.UnsupportedVersion("1.0", []string{"2.0"})
		a, err := agent.New(s.url, "secret", nil)
		require.NoError(t, err)
		a.Handle("w", waits)
		require.ErrorContains(t, a.Run(t.Context()), "error 5006: Unsupported protocol version 1.0; supported: 2.0")
	})

	t.Run("waits for a server that is down at first", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		s.refuse, s.times = 503, 3
		setup(t, s, nil, map[string]agent.Handler{"w": waits})
	})

	t.Run("drains: finishes running work, rejects new work, reports offline", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		release := make(chan struct{})
		stop := setup(t, s, &agent.Options{Drain: minute, Concurrency: 2}, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			<-release
			return agent.Result{Output: "in time"}, nil
		}})
		e, late := request("w", `{}`), request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
		ended := make(chan error)
		go func() { ended <- stop() }()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.beats) > 0 && s.beats[len(s.beats)-1].Status == envelope.PresenceOffline
		}, minute, soon)
		s.send(late)
		require.EqualValues(t, 5002, s.eventually(late).Payload.(envelope.Failure).Code)
		close(release)
		require.NoError(t, <-ended)
		require.Equal(t, "in time", s.results(e.RequestID)[0].Payload.(envelope.WorkResult).Output)
	})

	t.Run("returns unfinished work to the server after the drain time", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		stop := setup(t, s, &agent.Options{Drain: time.Millisecond}, map[string]agent.Handler{"w": waits})
		e := request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
		require.NoError(t, stop())
		require.EqualValues(t, 5002, s.results(e.RequestID)[0].Payload.(envelope.Failure).Code)
	})

	t.Run("reports a handler that ignores its context", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		release := make(chan struct{})
		stop := setup(t, s, &agent.Options{Grace: time.Millisecond}, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			<-release
			return agent.Result{}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
		require.ErrorContains(t, stop(), "did not return")
		close(release)
	})
}
