package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestAMajority is of the workers that were wanted: where fewer were free, two that agree
// are not what most of five say.
func TestAMajority(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted int
		parts  []string
		want   string // "goes on", "takes a" or the failure
	}{
		"of all that were wanted":              {3, []string{"x", "x"}, "takes a"},
		"is waited for where it can be had":    {3, []string{"x", "open"}, "goes on"},
		"cannot be had of half":                {4, []string{"x", "x"}, "no majority: 2 of 4 workers agree at most"},
		"cannot be had of one":                 {2, []string{"x"}, "no majority: 1 of 2 workers agree at most"},
		"that cannot be had is not waited for": {5, []string{"x", "open"}, "no majority: 2 of 5 workers agree at most"},
		"is not needed for a failure of all":   {5, []string{"failed", "failed"}, "it broke (the last 2 workers: b)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts []share
			for i, how := range c.parts {
				parts = append(parts, stands(i, how))
			}
			got := "goes on"
			switch out := judge(models.AggregateMajority, c.wanted, parts); {
			case out.taken != nil:
				got = "takes " + out.taken.AgentID
			case out.over:
				got = out.text
			}
			require.Equal(t, c.want, got)
		})
	}
}
