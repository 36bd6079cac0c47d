package sandbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// BenchmarkRun runs 2 + 2 alternately in a child that is ready, in one that is started for it, and
// without the cache of compiled code. It reports the medians and the ratio of cold to warm.
func BenchmarkRun(b *testing.B) {
	warm := started(b, &sandbox.Options{Warm: 1})
	cold := started(b, nil)
	compiling := started(b, &sandbox.Options{Warm: 1, CacheSize: -1})
	var took [3][]time.Duration
	for b.Loop() {
		for i, s := range []*sandbox.Sandbox{warm, cold, compiling} {
			for {
				begin := time.Now()
				got, err := s.Run(b.Context(), sandbox.Request{Code: "2 + 2"})
				require.NoError(b, err)
				if took[i] = append(took[i], time.Since(begin)); got.Metrics.Warm == (s != cold) {
					break
				}
				took[i] = took[i][:len(took[i])-1] // no child was ready yet
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	median := func(i int) float64 { return float64(took[i][len(took[i])/2]) / float64(time.Millisecond) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(0), "ms_warm")
	b.ReportMetric(median(2), "ms_warm_compiling")
	b.ReportMetric(median(1), "ms_cold")
	b.ReportMetric(median(1)/median(0), "cold/warm")
}
