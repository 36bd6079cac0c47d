package telemetry_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/telemetry"
)

func TestBuffer(t *testing.T) {
	t.Parallel()
	bubble := func(name string, test func(t *testing.T, out *sink, b *telemetry.Buffer)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out sink
				test(t, &out, telemetry.NewBuffer(&out))
			})
		})
	}
	bubble("records are written together after 100 ms", func(t *testing.T, out *sink, b *telemetry.Buffer) {
		log, err := telemetry.NewLogger(b, &telemetry.LogOptions{Format: "json"})
		require.NoError(t, err)
		for range 2 {
			log.Info("one")
			log.Info("two")
			<-time.After(99 * time.Millisecond)
			synctest.Wait()
			require.Empty(t, out.take())
			<-time.After(time.Millisecond)
			synctest.Wait()
			require.Equal(t, 2, strings.Count(out.take(), "\n"))
		}
	})
	bubble("a warning is written at once, after the records before it", func(t *testing.T, out *sink, b *telemetry.Buffer) {
		log, err := telemetry.NewLogger(b, &telemetry.LogOptions{Format: "json"})
		require.NoError(t, err)
		log = log.With("part", "test").WithGroup("more")
		log.Info("before")
		require.Empty(t, out.take())
		log.Warn("now")
		require.Regexp(t, `(?s)"before".*"now".*\n$`, out.take())
	})
	bubble("64 KiB are written at once", func(t *testing.T, out *sink, b *telemetry.Buffer) {
		for range 63 {
			_, err := b.Write(make([]byte, 1<<10))
			require.NoError(t, err)
		}
		require.Empty(t, out.take())
		_, err := b.Write(make([]byte, 1<<10))
		require.NoError(t, err)
		require.Len(t, out.take(), 64<<10)
	})
	bubble("Flush writes what is left, once", func(t *testing.T, out *sink, b *telemetry.Buffer) {
		_, err := b.Write([]byte("last"))
		require.NoError(t, err)
		require.NoError(t, b.Flush())
		require.NoError(t, b.Flush())
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, "last", out.take())
	})
}

// sink is a buffer that the delayed write may fill while the test reads it.
type sink struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

// take returns what was written since the last call.
func (s *sink) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.buf.Reset()
	return s.buf.String()
}
