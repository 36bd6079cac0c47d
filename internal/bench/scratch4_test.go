package bench

import (
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/registry"
	"comet/store"
)

func BenchmarkOurs(b *testing.B) {
	var mu sync.Mutex
	var batches, members int
	var busy time.Duration
	dir, started := b.TempDir(), time.Now()
	clock := func() time.Time { return day().Add(time.Since(started)) }
	st, err := store.Open(b.Context(), store.Options{Dir: dir, ReadConnections: readConnections, Clock: clock, OnCommit: func(n int, took time.Duration) {
		mu.Lock()
		batches++
		members += n
		busy += took
		mu.Unlock()
	}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, st.Close()) })
	h := &house{store: st, registry: registry.New(st, nil)}
	seed(b, st, h.registry)
	tokens := auth.New(st, nil)
	_, err = tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	h.chain = serve(b, api.New(h.registry, tokens, &api.Options{Logger: accessLog(b, dir)}))
	var last atomic.Int64
	s := h.creator(b, "ours", "/api/v1/agents", &last)
	s.run(b)
	f, _ := os.Create("/tmp/ours.prof")
	_ = pprof.StartCPUProfile(f)
	for range 12 {
		batches, members, busy = 0, 0, 0
		p := s.run(b)
		b.Logf("%.0f/s %.0f µs; %d batches of %.1f, %v each, busy %.2f", p.rate, p.cpu*1e6, batches, float64(members)/float64(batches), busy/time.Duration(batches), busy.Seconds()/(float64(members)/p.rate))
	}
	pprof.StopCPUProfile()
}
