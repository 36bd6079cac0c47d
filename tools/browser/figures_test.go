package browser

import (
	"context"
	"fmt"
	"io"
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
func cpuOf(t testing.TB, pid int) time.Duration {
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
	return object{"id": id, "name": "Agent " + id, "level": level, "parent_id": parent, "sphere_id": 8, "frequency_hz": map[int]int{2: 555, 3: 444}[level], "token_budget": 5000}
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

	measureLoad(t)
}

// measureLoad measures what a page and the streams of ten pages cost while 1,000 agents change each second.
func measureLoad(t *testing.T) {
	s := startServer(t)
	alone, rate := s.load(nil)
	t.Logf("%.0f events/s without a page: the server works %.1f %% of a core, for the changes", rate, alone)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/")
	_, err := chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{})
	require.NoError(t, err)
	p.until(`document.body.dataset.live === "on"`)
	one, rate := s.load(p)
	t.Logf("%.0f events/s with one page: the server works %.1f %% of a core", rate, one)
	for range 9 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/events", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+s.token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		go func() {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}()
	}
	ten, rate := s.load(p)
	t.Logf("%.0f events/s with ten pages: the server works %.1f %% of a core, %.1f %% more than without a page", rate, ten, ten-alone)
}

// load changes 1,000 agents a second for some seconds, and returns the part of a core that the server works, in percent, and
// the events per second. It logs what the page works.
func (s *server) load(p *tab) (percent, rate float64) {
	ctx, stop := context.WithTimeout(s.t.Context(), 8*time.Second)
	defer stop()
	served, began, events, busy := cpuOf(s.t, s.process.Process.Pid), time.Now(), 0, time.Duration(0)
	if p != nil {
		busy = p.busy()
	}
	for tick := time.NewTicker(500 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		batch := make([]object, 500)
		for i := range batch {
			batch[i] = newEntry(fmt.Sprintf("team-%d", i), "orch-my-team", 2)
			batch[i]["name"] = fmt.Sprintf("Team %d at %d", i, events)
		}
		s.importRoster(batch)
		events += len(batch)
	}
	took := time.Since(began).Seconds()
	if p != nil {
		s.t.Logf("the page works %.1f %% of a core", 100*(p.busy()-busy).Seconds()/took)
	}
	return 100 * (cpuOf(s.t, s.process.Process.Pid) - served).Seconds() / took, float64(events) / took
}
