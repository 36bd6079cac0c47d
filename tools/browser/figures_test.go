package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// cpuOf returns the processor time that a process has used.
func cpuOf(t *testing.T, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	ticks := 0
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(fields[i])
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// busy returns the time that the main thread of the page has worked.
func (p *tab) busy() time.Duration {
	metrics, err := chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(p.t, err)
	for _, m := range metrics.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	require.Fail(p.t, "the browser has no TaskDuration")
	return 0
}

// newEntry returns an agent of a roster.
func newEntry(id, parent string, level int) object {
	return object{"id": id, "name": "Agent " + id, "level": level, "parent_id": parent, "frequency_hz": map[int]int{2: 555, 3: 444}[level]}
}

func (s *server) importRoster(agents []object) {
	s.do(http.MethodPost, "/api/v1/roster", object{"version": 1, "agents": agents}, nil)
}

// TestFigures measures what docs/dashboard.md says, with FIGURES=1.
func TestFigures(t *testing.T) {
	if os.Getenv("FIGURES") == "" {
		t.Log("FIGURES=1 measures the figures of docs/dashboard.md")
		return
	}
	s := startServer(t)
	p := open(t, s, "status of 404")
	p.logIn(s.token, "/ui/")
	p.visit("/ui/")
	t.Logf("first paint after %.0f ms", eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`))

	for round := range 10 { // a roster has at most 10,000 agents
		var agents []object
		for team := range 100 {
			parent := fmt.Sprintf("team-%d-%d", round, team)
			agents = append(agents, newEntry(parent, "orch-my-team", 2))
			for helper := range 99 {
				agents = append(agents, newEntry(fmt.Sprintf("helper-%d-%d-%d", round, team, helper), parent, 3))
			}
		}
		s.importRoster(agents)
	}
	p.visit("/ui/events")
	eval[chromedp.Void](p, `window.began = performance.now(), document.querySelector('nav a[href="/ui/agents"]').click()`)
	p.until(`document.querySelectorAll("[role=row][aria-level='2']").length >= 9 && (window.took ??= performance.now() - window.began)`)
	t.Logf("100,000 agents: first rows after %.0f ms, as seen by a look every %v", eval[float64](p, "window.took"), pause)

	p.visit("/ui/")
	_, err := chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{})
	require.NoError(t, err)
	p.until(`document.body.dataset.live === "on"`)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	before, served, began := p.busy(), cpuOf(t, s.process.Process.Pid), time.Now()
	events := 0
	for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C { // agents change 100 at a time
		batch := make([]object, 100)
		for i := range batch {
			batch[i] = newEntry(fmt.Sprintf("team-0-%d", i), "orch-my-team", 2)
			batch[i]["name"] = fmt.Sprintf("Team %d at %d", i, events)
		}
		s.importRoster(batch)
		events += len(batch)
	}
	took := time.Since(began)
	t.Logf("%.0f events/s: the page works %.0f %% of a core; the server %.0f %%, with the changes themselves", float64(events)/took.Seconds(),
		100*(p.busy()-before).Seconds()/took.Seconds(), 100*(cpuOf(t, s.process.Process.Pid)-served).Seconds()/took.Seconds())
}
