package background

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUnmappedPagesAreReadAgain(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("a page of a database"), 1<<16)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, want, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	mapped, err := unix.Mmap(int(file.Fd()), 0, len(want), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mapped) }()
	require.Equal(t, want, mapped)
	unmapFilePages()
	require.Equal(t, want, mapped)
}

func TestMemoryOfAnIdleProcessIsReleased(t *testing.T) { //nolint:paralleltest // other tests allocate
	synctest.Test(t, func(t *testing.T) {
		before := releasedBytes()
		block := make([]byte, 64<<20)
		for i := range block {
			block[i] = 1
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ReleaseMemory(ctx)
		<-time.After((idleIntervals + 2) * memoryInterval) // the first interval contains the allocation
		synctest.Wait()
		require.Greater(t, releasedBytes(), before)
	})
}

func releasedBytes() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestAProcessIsIdleThatAllocatesLittle(t *testing.T) {
	t.Parallel()
	require.True(t, isIdle(quietRate-1, 0))
	require.False(t, isIdle(quietRate, 0))
	require.True(t, isIdle(quietRate, 8*quietRate), "more with a large heap")
	require.False(t, isIdle(2*quietRate, 8*quietRate))
}
