package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/wire/envelope"
)

func TestWork(t *testing.T) {
	t.Parallel()

	t.Run("sends status and result of a request", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		setup(t, s, nil, map[string]agent.Handler{"run_playbook": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			var p struct{ Playbook string }
			if err := w.Decode(&p); err != nil {
				return agent.Result{}, err
			}
			if err := w.Progress(40, "pulling"); err != nil {
				return agent.Result{}, err
			}
			_, err := fmt.Fprintln(w, "pulled", p.Playbook)
			w.Tokens(100)
			w.TokensOf("small", 23)
			return agent.Result{Output: "done", CPUTime: 1500 * time.Millisecond}, err
		}})
		e := request("run_playbook", `{"playbook":"a.yml"}`)
		s.send(e)
		got := s.eventually(e)
		require.Equal(t, envelope.WorkResult{
			TaskID: e.Payload.(envelope.WorkRequest).TaskID, Status: envelope.OutcomeSuccess, Output: "done",
			Resources: envelope.Resources{CPUTimeMS: 1500, Tokens: 123},
		}, got.Payload)
		require.JSONEq(t, `{"tokens_by_model":{"small":23}}`, string(got.Custom))
		require.Equal(t, e.TraceID, got.TraceID)
		require.Equal(t, "infra", got.From)
		require.Equal(t, "orchestrator", got.To)
		all := s.of(e.RequestID)
		first := all[0].Payload.(envelope.WorkStatus)
		require.Equal(t, envelope.StatusRunning, first.Status)
		last := all[len(all)-2].Payload.(envelope.WorkStatus)
		require.Equal(t, 40, last.Progress)
		require.Equal(t, &envelope.Step{Number: 1, Name: "pulling", Output: "pulled a.yml\n"}, last.Step)
	})

	t.Run("reports the start of silent work unless it ends at once", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		goOn := make(chan struct{})
		setup(t, s, nil, map[string]agent.Handler{
			"slow":  func(context.Context, *agent.Work) (agent.Result, error) { <-goOn; return agent.Result{}, nil },
			"quick": func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{}, nil },
		})
		slow, quick := request("slow", `{}`), request("quick", `{}`)
		s.send(slow)
		require.Eventually(t, func() bool { return len(s.of(slow.RequestID)) == 1 }, minute, soon)
		require.Equal(t, envelope.WorkStatus{TaskID: slow.Payload.(envelope.WorkRequest).TaskID, Status: envelope.StatusRunning}, s.of(slow.RequestID)[0].Payload)
		close(goOn)
		s.eventually(slow)
		s.send(quick)
		s.eventually(quick)
		require.IsType(t, envelope.WorkResult{}, s.of(quick.RequestID)[len(s.of(quick.RequestID))-1].Payload)
	})

	t.Run("reports every step with its output", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		setup(t, s, nil, map[string]agent.Handler{"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			for i := range 5 {
				if err := w.Progress(i*20, fmt.Sprint("step ", i)); err != nil {
					return agent.Result{}, err
				}
				_, _ = fmt.Fprintf(w, "output %d", i)
			}
			return agent.Result{}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		s.eventually(e)
		var steps []string
		for _, m := range s.of(e.RequestID) {
			if st, ok := m.Payload.(envelope.WorkStatus); ok && st.Step != nil {
				steps = append(steps, fmt.Sprintf("%d %s %s", st.Step.Number, st.Step.Name, st.Step.Output))
			}
		}
		require.Equal(t, []string{"1 step 0 output 0", "2 step 1 output 1", "3 step 2 output 2", "4 step 3 output 3", "5 step 4 output 4"}, steps)
	})

	t.Run("ignores the prefix custom:", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		setup(t, s, nil, map[string]agent.Handler{"custom:brew": func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{Output: "tea"}, nil
		}})
		for _, name := range []string{"brew", "custom:brew"} {
			e := request(name, `{}`)
			s.send(e)
			require.Equal(t, "tea", s.eventually(e).Payload.(envelope.WorkResult).Output)
		}
	})

	t.Run("replaces output that is not UTF-8 and splits no character", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		text := strings.Repeat("é€😀", 40_000)
		setup(t, s, &agent.Options{Flush: time.Millisecond}, map[string]agent.Handler{"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			for i := range len(text) {
				if _, err := w.Write([]byte{text[i]}); err != nil {
					return agent.Result{}, err
				}
			}
			_, err := w.Write([]byte("\xff\x00end"))
			return agent.Result{}, err
		}})
		e := request("w", `{}`)
		s.send(e)
		s.eventually(e)
		require.Equal(t, text+"\uFFFD\uFFFDend", s.output(e.RequestID))
	})

	t.Run("sends a long result in chunks", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		text := strings.Repeat("0123456789é", 100_000)
		setup(t, s, nil, map[string]agent.Handler{"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			return agent.Result{Output: text}, w.Progress(90, "collecting")
		}})
		e := request("w", `{}`)
		s.send(e)
		require.Empty(t, s.eventually(e).Payload.(envelope.WorkResult).Output)
		var chunks []envelope.Chunk
		for _, m := range s.of(e.RequestID) {
			if st, ok := m.Payload.(envelope.WorkStatus); ok && st.Step != nil && st.Step.Chunk != (envelope.Range{}) {
				require.Equal(t, 2, st.Step.Number)
				chunks = append(chunks, envelope.Chunk{Range: st.Step.Chunk, Text: st.Step.Output})
			}
		}
		require.Equal(t, text, laid(t, chunks))
	})

	t.Run("repeats the status of silent work", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		setup(t, s, &agent.Options{KeepAlive: 5 * time.Millisecond}, map[string]agent.Handler{"w": waits})
		e := request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 3 }, minute, soon)
		for _, m := range s.of(e.RequestID) {
			require.Equal(t, envelope.TypeWorkStatus, m.Type)
		}
	})
}

// laid returns the output of chunks, each at its offset: once, without gaps and up to the total
// that all of them have.
func laid(t *testing.T, chunks []envelope.Chunk) string {
	t.Helper()
	require.NotEmpty(t, chunks)
	output, covered := make([]byte, chunks[0].Total), int64(0)
	for _, c := range chunks {
		require.Equal(t, chunks[0].Total, c.Total)
		require.Equal(t, c.To-c.From, int64(len(c.Text)))
		require.LessOrEqual(t, c.To, c.Total)
		require.Equal(t, make([]byte, len(c.Text)), output[c.From:c.To], "%s is new", c.Range)
		covered += int64(copy(output[c.From:c.To], c.Text))
	}
	require.Equal(t, chunks[0].Total, covered)
	return string(output)
}

// waits is a handler that returns when its context ends.
func waits(ctx context.Context, _ *agent.Work) (agent.Result, error) {
	<-ctx.Done()
	return agent.Result{Output: "interrupted"}, ctx.Err()
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	setup(t, s, &agent.Options{Concurrency: 10}, map[string]agent.Handler{
		"invalid": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			return agent.Result{}, w.Decode(&[]int{})
		},
		"unsupported": func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{}, fmt.Errorf("wrapped: %w", agent.Unsupported("unsupported"))
		},
		"limit": func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{}, agent.ResourceLimit("gpu_vram_mb", 128, 512)
		},
		"fails": func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{Output: "half"}, errors.New("broken")
		},
		"code":   func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{ExitCode: 7}, nil },
		"panics": func(context.Context, *agent.Work) (agent.Result, error) { panic("oh") },
		"waits":  waits,
	})
	cases := []struct {
		name string
		e    envelope.Envelope
		want envelope.Payload
	}{
		{"invalid parameters are 5003", request("invalid", `{}`), envelope.Failure{Code: 5003}},
		{"unsupported work is 5006", request("unsupported", `{}`), envelope.Failure{Code: 5006}},
		{"an unregistered work type is 5006", request("unknown", `{}`), envelope.Failure{Code: 5006}},
		{"a resource limit is 5005", request("limit", `{}`), envelope.ResourceLimit("gpu_vram_mb", 128, 512)},
		{"an error is a failed result", request("fails", `{}`), envelope.WorkResult{Status: "failed", ExitCode: 1, Output: "half\nbroken"}},
		{"an exit code is a failed result", request("code", `{}`), envelope.WorkResult{Status: "failed", ExitCode: 7}},
		{"a panic is a failed result", request("panics", `{}`), envelope.WorkResult{Status: "failed", ExitCode: 1, Output: "panic: oh"}},
		{
			"the hint max_duration_seconds ends work", hinted(request("waits", `{}`), envelope.Hints{MaxDurationSeconds: 1}),
			envelope.WorkResult{Status: "failed", ExitCode: 124, Output: "interrupted\n" + agent.ErrMaxDuration.Error()},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s.send(c.e)
			switch got := s.eventually(c.e).Payload.(type) {
			case envelope.WorkResult:
				got.TaskID, got.Resources.DurationSeconds = [16]byte{}, 0
				require.Equal(t, c.want, got)
			case envelope.Failure:
				want := c.want.(envelope.Failure)
				require.Equal(t, want.Code, got.Code)
				if want.Message != "" {
					require.Equal(t, want, got)
				}
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cause := make(chan error, 1)
	setup(t, s, nil, map[string]agent.Handler{"w": func(ctx context.Context, w *agent.Work) (agent.Result, error) {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		_, _ = fmt.Fprint(w, "last words")
		return agent.Result{}, ctx.Err()
	}})
	e, waiting := request("w", `{}`), request("w", `{}`)
	s.send(e)
	require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
	s.send(waiting)
	s.send(cancelling(waiting))
	require.Equal(t, envelope.OutcomeCancelled, s.eventually(waiting).Payload.(envelope.WorkResult).Status, "work that waits for a slot")
	s.send(cancelling(e))
	got := s.eventually(e).Payload.(envelope.WorkResult)
	require.ErrorIs(t, <-cause, agent.ErrCancelled)
	require.Equal(t, envelope.OutcomeCancelled, got.Status)
	require.EqualValues(t, 130, got.ExitCode)
	require.Equal(t, "last words", s.output(e.RequestID))
}

func TestRetryAfterCancellation(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	stopping, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	setup(t, s, &agent.Options{Concurrency: 2}, map[string]agent.Handler{"w": func(ctx context.Context, _ *agent.Work) (agent.Result, error) {
		if runs.Add(1) > 1 {
			return agent.Result{Output: "the second time"}, nil
		}
		<-ctx.Done()
		close(stopping)
		<-release
		return agent.Result{}, ctx.Err()
	}})
	e := request("w", `{}`)
	s.send(e)
	require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
	s.send(cancelling(e)) // as for work that hangs
	<-stopping
	s.send(attempt(e))
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.owed) == 0 }, minute, soon)
	close(release)
	require.Equal(t, "the second time", s.eventually(e).Payload.(envelope.WorkResult).Output)
	require.Len(t, s.results(e.RequestID), 1, "the cancelled attempt has no result")
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	release := make(chan struct{})
	var now, most atomic.Int64
	setup(t, s, &agent.Options{Concurrency: 2}, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		<-release
		return agent.Result{}, nil
	}})
	var all []envelope.Envelope
	for range 5 {
		all = append(all, request("w", `{}`))
		s.send(all[len(all)-1])
	}
	require.EqualValues(t, 5005, s.eventually(all[4]).Payload.(envelope.Failure).Code, "two run, two wait, one is too many")
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.beats) > 0 && s.beats[len(s.beats)-1].Status == envelope.PresenceBusy
	}, minute, soon, "an agent without a free slot reports busy")
	close(release)
	for _, e := range all[:4] {
		require.Equal(t, envelope.OutcomeSuccess, s.eventually(e).Payload.(envelope.WorkResult).Status)
	}
	require.EqualValues(t, 2, most.Load())
}
