package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store/storetest"
)

// TestResponseSizeIsBounded sends requests whose responses once exceeded a hundred
// megabytes.
func TestResponseSizeIsBounded(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{})
	strict := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{strictCapabilities: true})
	const roster, agents = "/api/v1/roster?dry_run=true", "/api/v1/agents"
	list := func(entry string, times int) string { return strings.Repeat(entry+", ", times) + entry }
	entries := func(format string, times int) string {
		all := make([]string, times)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return `{"version": 1, "agents": [` + strings.Join(all, ",") + "]}"
	}
	capabilities := make([]string, 200)
	for i := range capabilities {
		capabilities[i] = fmt.Sprintf("c%d", i)
	}
	for name, c := range map[string]struct {
		h                         *fixture
		target, contentType, body string
		status                    int
	}{
		"repeated keys below a long one": {h, roster, "application/json", `{"` + strings.Repeat("k", 50<<10) + `": {` + list(`"a": 1`, 2000) + "}}", 200},
		"anchors below a long key":       {h, roster, "application/yaml", "? " + strings.Repeat("k", 200<<10) + "\n: [" + list("&a 1", 3000) + "]\n", 400},
		"NUL below a long key":           {h, agents, "application/json", `{"` + strings.Repeat("k", 1<<20-4096) + `": [` + list(`"\u0000"`, 100) + "]}", 400},
		"mistakes of the tree":           {h, roster, "application/json", entries(`{"id":"a%d","name":"A","level":2,"sphere_id":1,"frequency_hz":555,"parent_id":"unknown"}`, 9000), 200},
		"capabilities that want a prefix": {h, roster, "application/json", entries(`{"id":"a%d","name":"A","level":1,"sphere_id":1,"frequency_hz":852,"capabilities":["`+
			strings.Join(capabilities, `","`)+`"]}`, 500), 200},
		"capabilities that are refused, too many of them": {strict, agents, "application/json", `{"id":"a","name":"A","level":3,"frequency_hz":444,"capabilities":[` +
			list(`"x"`, 150_000) + "]}", 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.h.do(t, "POST", c.target, c.body, "Content-Type", c.contentType)
			require.Less(t, len(got.body), 2<<20+100*9000, "%d bytes were sent", len(c.body))
			require.Equal(t, c.status, got.status, "%.500s", got.body)
			if c.status != http.StatusOK {
				got.anyProblem(t)
				return
			}
			var report struct{ Violations, Warnings []errs.Field }
			got.decode(t, http.StatusOK, &report)
			require.LessOrEqual(t, len(report.Violations), 1000)
			require.LessOrEqual(t, len(report.Warnings), 1000)
			require.NotEmpty(t, append(report.Violations, report.Warnings...))
		})
	}
}
