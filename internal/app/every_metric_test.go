package app_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
)

// TestEveryMetricIsDocumented requires every metric, with its labels, in docs/observability.md or
// docs/transports.md.
func TestEveryMetricIsDocumented(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	cfg.Transport.RedeliverAfter = time.Millisecond
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	someWork(t, newClient(t, a.URL(), adminToken(t, cfg.Data)))
	eventuallyShows(t, a.URL(), `comet_tasks_ended_total{class="default",failure="",state="cancelled"} 1`)
	shown, wrong := exposed(t, a.URL()), []string{}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		is := false
		for _, d := range documented(t) {
			_, means := d.among(map[string][]string{name: nil})
			is = is || means
			slices.Sort(d.labels)
			if labels := slices.Sorted(slices.Values(shown[name])); d.name == name && !slices.Equal(d.labels, labels) {
				wrong = append(wrong, name+" has other labels")
			}
		}
		if !is {
			wrong = append(wrong, name+" is not documented")
		}
	}
	require.Empty(t, wrong)
}
