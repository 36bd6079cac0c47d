package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/wire/envelope"
)

// caches are new caches of each kind, with a clock.
func caches(t *testing.T, count int) map[string]func(now func() time.Time) agent.Cache {
	return map[string]func(now func() time.Time) agent.Cache{
		"MemoryCache": func(func() time.Time) agent.Cache {
			return agent.NewMemoryCache(count)
		},
		"DirCache": func(now func() time.Time) agent.Cache {
			c, err := agent.OpenCache(filepath.Join(t.TempDir(), "cache"), count)
			require.NoError(t, err)
			c.Clock(now)
			return c
		},
	}
}

func TestCaches(t *testing.T) {
	t.Parallel()
	for name, open := range caches(t, 3) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var later atomic.Int64
			c := open(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
			id := agent.Key{Request: uuid.New(), Task: uuid.New()}
			known, err := c.Begin(id)
			require.NoError(t, err)
			require.Equal(t, agent.CacheEntry{}, known, "it starts")
			require.NoError(t, c.End(id, []byte("answer")))
			known, err = c.Begin(id)
			require.NoError(t, err)
			require.Equal(t, agent.CacheEntry{Result: []byte("answer")}, known, "it has ended")
			require.NoError(t, c.Forget(id))
			known, err = c.Begin(id)
			require.NoError(t, err)
			require.Nil(t, known.Result, "it is forgotten")
			require.NoError(t, c.End(id, []byte("answer")))
			for i := range 10 {
				require.NoError(t, c.End(agent.Key{Request: uuid.New(), Task: id.Task}, fmt.Append(nil, i)))
			}
			known, err = c.Begin(id)
			require.NoError(t, err)
			require.Nil(t, known.Result, "newer results have replaced it")
			if name == "MemoryCache" {
				return
			}
			require.NoError(t, c.End(id, []byte("answer")))
			later.Store(int64(25 * time.Hour))
			known, err = c.Begin(id)
			require.NoError(t, err)
			require.Nil(t, known.Result, "it is too old")
		})
	}
}

func TestCacheKeyHasTask(t *testing.T) {
	t.Parallel()
	for name, open := range caches(t, 0) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(time.Now)
			one := agent.Key{Request: uuid.New(), Task: uuid.New()}
			other := agent.Key{Request: one.Request, Task: uuid.New()}
			require.NoError(t, c.End(one, []byte("of one")))
			known, err := c.Begin(other)
			require.NoError(t, err)
			require.Equal(t, agent.CacheEntry{}, known)
			require.NoError(t, c.End(other, []byte("of the other")))
			require.NoError(t, c.Forget(other))
			known, err = c.Begin(one)
			require.NoError(t, err)
			require.Equal(t, "of one", string(known.Result))
		})
	}
}

func TestDirCache(t *testing.T) {
	t.Parallel()

	t.Run("ignores files named after the request alone", func(t *testing.T) {
		t.Parallel()
		dir, id := t.TempDir(), agent.Key{Request: uuid.New(), Task: uuid.New()}
		for _, suffix := range []string{".json", ".running"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, id.Request.String()+suffix), []byte("{}"), 0o600))
		}
		c, err := agent.OpenCache(dir, 0)
		require.NoError(t, err)
		left, err := c.Interrupted()
		require.NoError(t, err)
		require.Empty(t, left)
		known, err := c.Begin(id)
		require.NoError(t, err)
		require.Equal(t, agent.CacheEntry{}, known)
		left, err = c.Interrupted()
		require.NoError(t, err)
		require.Equal(t, []agent.Key{id}, left)
	})

	t.Run("keeps foreign files and removes incomplete ones after a day", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		old := time.Now().Add(-25 * time.Hour)
		for _, name := range []string{"notes.txt", uuid.NewString() + ".json", uuid.NewString() + ".running", uuid.NewString() + ".json.new",
			agent.Key{Request: uuid.New()}.String() + ".json"} {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chtimes(path, old, old))
		}
		_, err := agent.OpenCache(dir, 0)
		require.NoError(t, err)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, "notes.txt", entries[0].Name())
	})

	t.Run("makes files that only their owner can read", func(t *testing.T) {
		t.Parallel()
		dir, id := t.TempDir(), agent.Key{Request: uuid.New(), Task: uuid.New()}
		c, err := agent.OpenCache(dir, 0)
		require.NoError(t, err)
		require.NoError(t, c.End(id, []byte("secret")))
		info, err := os.Stat(filepath.Join(dir, id.String()+".json"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
}

func TestIdempotency(t *testing.T) {
	t.Parallel()

	t.Run("separates tasks with the same request id", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		var runs atomic.Int64
		release := make(chan struct{})
		setup(t, s, &agent.Options{Concurrency: 2}, map[string]agent.Handler{"w": func(_ context.Context, w *agent.Work) (agent.Result, error) {
			if runs.Add(1) <= 2 {
				<-release // both run at the same time
			}
			return agent.Result{Output: w.TaskID().String()}, nil
		}})
		one := request("w", `{}`)
		other, third := request("w", `{}`), request("w", `{}`)
		other.RequestID, third.RequestID = one.RequestID, one.RequestID
		s.send(one)
		s.send(other)
		require.Eventually(t, func() bool { return runs.Load() == 2 }, minute, soon)
		close(release)
		require.Eventually(t, func() bool { return len(s.results(one.RequestID)) == 2 }, minute, soon)
		s.send(third) // the others have ended
		s.send(attempt(one))
		require.Eventually(t, func() bool { return len(s.results(one.RequestID)) == 4 }, minute, soon)
		times := map[uuid.UUID]int{}
		for _, e := range s.results(one.RequestID) {
			r := e.Payload.(envelope.WorkResult)
			require.Equal(t, r.TaskID.String(), r.Output, "each has its own result")
			times[r.TaskID]++
		}
		task := func(e envelope.Envelope) uuid.UUID { return e.Payload.(envelope.WorkRequest).TaskID }
		require.Equal(t, map[uuid.UUID]int{task(one): 2, task(other): 1, task(third): 1}, times)
		require.EqualValues(t, 3, runs.Load(), "the cache answers another attempt")
	})

	t.Run("joins a repeated request to running work", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		release := make(chan struct{})
		var runs atomic.Int64
		setup(t, s, nil, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			runs.Add(1)
			<-release
			return agent.Result{Output: "once"}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) == 1 }, minute, soon)
		s.send(attempt(e))
		require.Eventually(t, func() bool { return len(s.of(e.RequestID)) == 2 }, minute, soon, "the second attempt is accepted too")
		close(release)
		s.eventually(e)
		require.EqualValues(t, 1, runs.Load())
		require.Len(t, s.results(e.RequestID), 1)
	})

	t.Run("answers a repeated request from the cache", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		var runs atomic.Int64
		text := strings.Repeat("long ", 100_000)
		setup(t, s, nil, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			runs.Add(1)
			return agent.Result{Output: text, ExitCode: 3}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		first := s.eventually(e)
		s.send(attempt(e))
		require.Eventually(t, func() bool { return len(s.results(e.RequestID)) == 2 }, minute, soon)
		second := s.results(e.RequestID)[1]
		require.Equal(t, first.Payload, second.Payload)
		require.NotEqual(t, first.MessageID, second.MessageID)
		require.EqualValues(t, 1, runs.Load())
		messages := slices.DeleteFunc(s.of(e.RequestID), func(e envelope.Envelope) bool { // reports that it has started
			st, is := e.Payload.(envelope.WorkStatus)
			return is && st.Step == nil
		})
		require.Len(t, messages, 2*2+2, "the chunks twice, two results")
	})

	t.Run("does not store a resource limit", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		var runs atomic.Int64
		setup(t, s, nil, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			if runs.Add(1) == 1 {
				return agent.Result{}, agent.ResourceLimit("memory_mb", 1, 2)
			}
			return agent.Result{}, nil
		}})
		e := request("w", `{}`)
		s.send(e)
		require.EqualValues(t, 5005, s.eventually(e).Payload.(envelope.Failure).Code)
		s.send(attempt(e))
		require.Eventually(t, func() bool { return len(s.results(e.RequestID)) == 2 }, minute, soon)
		require.Equal(t, envelope.OutcomeSuccess, s.results(e.RequestID)[1].Payload.(envelope.WorkResult).Status)
	})

	t.Run("remembers results across a restart", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		var runs atomic.Int64
		run := map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{Output: fmt.Sprint("run ", runs.Add(1))}, nil
		}}
		e := request("w", `{}`)
		for range 3 {
			cache, err := agent.OpenCache(dir, 0)
			require.NoError(t, err)
			s := newServer(t)
			stop := setup(t, s, &agent.Options{Cache: cache}, run)
			s.send(attempt(e))
			require.Equal(t, "run 1", s.eventually(e).Payload.(envelope.WorkResult).Output)
			require.NoError(t, stop())
		}
	})

	for _, noRerun := range []bool{false, true} {
		t.Run(fmt.Sprintf("runs interrupted work again unless NoRerun: %v", noRerun), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cache, err := agent.OpenCache(dir, 0)
			require.NoError(t, err)
			e := request("w", `{}`)
			s := newServer(t)
			stop := setup(t, s, &agent.Options{Cache: cache}, map[string]agent.Handler{"w": waits})
			s.send(e)
			require.Eventually(t, func() bool { return len(s.of(e.RequestID)) > 0 }, minute, soon)
			require.NoError(t, stop())

			s = newServer(t)
			cache, err = agent.OpenCache(dir, 0)
			require.NoError(t, err)
			setup(t, s, &agent.Options{Cache: cache, NoRerun: noRerun}, map[string]agent.Handler{"w": func(context.Context, *agent.Work) (agent.Result, error) {
				return agent.Result{Output: "again"}, nil
			}})
			require.EqualValues(t, 5002, s.eventually(e).Payload.(envelope.Failure).Code, "the interruption is reported at once")
			s.send(attempt(e))
			require.Eventually(t, func() bool { return len(s.results(e.RequestID)) == 2 }, minute, soon)
			got := s.results(e.RequestID)[1].Payload.(envelope.WorkResult)
			if noRerun {
				require.Equal(t, envelope.OutcomeFailed, got.Status)
				require.Contains(t, got.Output, "interrupted")
				return
			}
			require.Equal(t, "again", got.Output)
		})
	}
}
