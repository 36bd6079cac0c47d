package background

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
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

func TestMemoryLimitIsTheTightestOfTheControlGroups(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control group":       {nil, 0},
		"no limit":               {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, container":   {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"version 2, service":     {map[string]string{"proc/self/cgroup": "0::/system.slice/comet.service\n", "sys/fs/cgroup/system.slice/comet.service/memory.max": "536870912\n", "sys/fs/cgroup/system.slice/memory.max": "1073741824\n"}, 512 << 20},
		"version 2, group above": {map[string]string{"proc/self/cgroup": "0::/pod/container\n", "sys/fs/cgroup/pod/container/memory.max": "max\n", "sys/fs/cgroup/pod/memory.max": "1073741824\n"}, 1 << 30},
		"version 1, container":   {map[string]string{"proc/self/cgroup": "4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n"}, 512 << 20},
		"version 1, host":        {map[string]string{"proc/self/cgroup": "4:memory:/a\n3:cpu:/b\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "536870912\n", "sys/fs/cgroup/memory/b/memory.limit_in_bytes": "1\n"}, 512 << 20},
		"version 1, no limit":    {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for path, text := range test.files {
				path = filepath.Join(root, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			require.Equal(t, test.want, memoryLimit(root))
		})
	}
}

func TestGarbageIsLimited(t *testing.T) { //nolint:paralleltest // other tests change the limit
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	LimitGarbage(64 << 20)
	require.EqualValues(t, 64<<20, debug.SetMemoryLimit(-1))
	live := make([]byte, 100<<20)
	require.Eventually(t, func() bool {
		runtime.GC()
		return debug.SetMemoryLimit(-1) >= 200<<20
	}, time.Minute, 5*time.Millisecond, "twice the live heap")
	runtime.KeepAlive(live)
	require.Eventually(t, func() bool {
		runtime.GC()
		return debug.SetMemoryLimit(-1) == 64<<20
	}, time.Minute, 5*time.Millisecond)
}
