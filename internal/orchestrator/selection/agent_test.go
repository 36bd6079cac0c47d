package selection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
)

func TestEffectiveLoad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inFlight, window, reported int
		want                       int
		saturated                  bool
	}{
		"nothing":                       {0, 4, 0, 0, false},
		"a quarter of the slots":        {1, 4, 10, 25, false},
		"the report is higher":          {1, 4, 26, 26, false},
		"rounded down":                  {2, 3, 0, 66, false},
		"all slots in use":              {4, 4, 0, 100, true},
		"more than full":                {9, 4, 0, 100, true},
		"no slots":                      {0, 0, 0, 100, true},
		"all is reported, but not full": {0, 4, 100, 100, false},
		"a report above 100":            {0, 4, 900, 100, false},
		"a report below 0":              {0, 4, -5, 0, false},
		"in flight below 0":             {-1, 4, 0, 0, false},
		"a large window, half of it":    {1 << 40, 1 << 41, 0, 50, false},
		"one of very many slots free":   {1<<41 - 1, 1 << 41, 0, 99, false},
		"negative concurrency":          {0, -1, 0, 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := with(onlineAgent("w1", "plan"), func(a *selection.Agent) {
				a.Worker.InFlight, a.Worker.Concurrency, a.Worker.Load = c.inFlight, c.window, c.reported
			})

			d := indexOf(a).Select(selection.Request{Capabilities: []string{"plan"}})
			if c.saturated {
				require.Equal(t, []string{"w1: saturated"}, reasons(d))
				require.Equal(t, c.want, d.Rejected[0].Load)
			} else {
				require.Equal(t, c.want, d.Candidates[0].Load)
			}
		})
	}
}

func TestBreakerExcludesAgentUntilClosed(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"))
	verdict := func() selection.Verdict { return x.Select(selection.Request{Capabilities: []string{"plan"}}).Verdict }
	require.Equal(t, selection.Chosen, verdict())
	require.True(t, update(x, "w1", func(a *selection.Agent) { a.Worker.BreakerUntil = minute(-1) }))
	require.Equal(t, selection.Unavailable, verdict(), "no task is the probe, so half-open is not closed")
	require.True(t, update(x, "w1", func(a *selection.Agent) { a.Worker.BreakerUntil = time.Time{} }))
	require.Equal(t, selection.Chosen, verdict())
}
