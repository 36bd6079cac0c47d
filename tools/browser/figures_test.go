package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// repetitions is the number of measurements of a figure, of which the median is reported.
const repetitions = 5

// median measures a figure several times and returns the median.
func median(measure func() float64) float64 {
	var all []float64
	for range repetitions {
		all = append(all, measure())
	}
	slices.Sort(all)
	return all[repetitions/2]
}

// reportFigure reports a figure of docs/dashboard.md and its ratio to the target, which must be at most 1.
func reportFigure(b *testing.B, value float64, unit string, target float64) {
	b.ReportMetric(0, "ns/op") // the time of the whole benchmark is meaningless
	b.ReportMetric(value, unit)
	b.ReportMetric(value/target, "of-target-"+unit)
}

// BenchmarkFirstLoad measures the first paint and the size of the first load, each time in a browser with an empty cache.
func BenchmarkFirstLoad(b *testing.B) {
	s := startServer(b)
	var kilobytes float64
	reportFigure(b, median(func() float64 {
		p := open(b, s, "status of 404")
		p.logIn(s.token, "/ui/")
		p.until(`performance.getEntriesByName("first-contentful-paint")[0] && document.querySelector(".uplot")`) // with the charts
		kilobytes = eval[float64](p, `performance.getEntriesByType("resource").filter((r) => r.name.includes("/ui/assets/")).reduce((sum, r) => sum + r.encodedBodySize, performance.getEntriesByType("navigation")[0].encodedBodySize)`) / 1000
		defer func() { _ = chromedp.Cancel(p.ctx) }() // a page that stays open uses processor time
		return eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	}), "ms", 300)
	reportFigure(b, kilobytes, "KB", 90)
}

// timeUntil returns the milliseconds from a click on a link until the first frame in which an expression is true.
func (p *tab) timeUntil(link, done string) float64 {
	p.t.Helper()
	p.until(link)
	return eval[float64](p, `new Promise((resolve) => {
		const began = performance.now();
		const check = () => {
			if (!(`+done+`)) return;
			observer.disconnect();
			requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
		};
		const observer = new MutationObserver(check);
		observer.observe(document.body, {childList: true, subtree: true, attributes: true});
		`+link+`.click();
	})`)
}

// BenchmarkAgents measures the time from a click on Agents to the first rows of the tree of 100,000 agents.
func BenchmarkAgents(b *testing.B) {
	s := startServer(b)
	began := time.Now()
	s.importTeams(10, 100)
	b.ReportMetric(time.Since(began).Seconds(), "s-import")
	p := open(b, s, "")
	p.logIn(s.token, "/ui/events")
	reportFigure(b, median(func() float64 {
		p.visit("/ui/events")
		return p.timeUntil(`document.querySelector('nav a[href="/ui/agents"]')`, `document.querySelectorAll("[role=row][aria-level='2']").length >= 9`)
	}), "ms", 300)
}

// BenchmarkToolGraph measures the time from a click on Graph until the graph is arranged and drawn. The browser responds to
// the request for the graph with generated data, so that the time of the server is not included.
func BenchmarkToolGraph(b *testing.B) {
	s := startServer(b)
	for _, size := range []struct {
		tools  int
		target float64
	}{{200, 500}, {2000, 2000}} {
		b.Run(strconv.Itoa(size.tools), func(b *testing.B) {
			p := open(b, s, "status of 404")
			p.logIn(s.token, "/ui/tools")
			p.serveGraph(size.tools)
			reportFigure(b, median(func() float64 {
				p.visit("/ui/tools?limit=2000")
				return p.timeUntil(`document.querySelector('.tabs a[href*="tab=graph"]')`, `document.querySelector("[data-drawn]")`)
			}), "ms", size.target)
		})
	}
}

// BenchmarkProgramSize measures how much the files of the page add to the size of the program.
func BenchmarkProgramSize(b *testing.B) {
	root, err := filepath.Abs("../..")
	require.NoError(b, err)
	folder := b.TempDir()
	empty, overlay := filepath.Join(folder, "empty"), filepath.Join(folder, "overlay.json")
	require.NoError(b, os.WriteFile(empty, nil, 0o600))
	files, err := filepath.Glob(filepath.Join(root, "internal/dashboard/dist/*"))
	require.NoError(b, err)
	replace := map[string]string{}
	for _, name := range files {
		replace[name] = empty
	}
	text, err := json.Marshal(object{"Replace": replace})
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(overlay, text, 0o600))
	size := func(name string, arguments ...string) float64 {
		program := filepath.Join(folder, name)
		build := exec.CommandContext(b.Context(), "go", append(append([]string{"build"}, arguments...), "-o", program, "./cmd/comet")...)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(b, err, "%s", out)
		info, err := os.Stat(program)
		require.NoError(b, err)
		return float64(info.Size()) / 1e6
	}
	with := size("with")
	b.ReportMetric(with, "MB-program")
	reportFigure(b, with-size("without", "-overlay", overlay), "MB", 1)
}

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

// busy returns the processor time that the main thread of the page has used.
func (p *tab) busy() time.Duration {
	metrics, err := chromedp.Call(p.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(p.t, err)
	for _, m := range metrics.Metrics {
		if m.Name == "ThreadTime" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	require.Fail(p.t, "the browser has no ThreadTime")
	return 0
}

// BenchmarkEvents measures the processor time of a page, and of the server for ten streams including that of the page, while
// 1,000 agents change each second.
func BenchmarkEvents(b *testing.B) {
	s := startServer(b)
	var alone float64
	b.Run("no-page", func(b *testing.B) {
		alone, _ = s.load(b, nil)
		reportFigure(b, alone, "%-of-a-core-server", 100)
	})
	p := open(b, s, "")
	p.logIn(s.token, "/ui/")
	_, err := chromedp.Call(p.ctx, performance.Enable, performance.EnableParams{})
	require.NoError(b, err)
	p.until(`document.body.dataset.live === "on"`)
	b.Run("one-page", func(b *testing.B) {
		_, page := s.load(b, p)
		reportFigure(b, page, "%-of-a-core-page", 25)
	})
	for range 9 {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/api/v1/events", nil)
		require.NoError(b, err)
		r.Header.Set("Authorization", "Bearer "+s.token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(b, err)
		go func() {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}()
	}
	b.Run("ten-streams", func(b *testing.B) {
		server, _ := s.load(b, p)
		reportFigure(b, max(server-alone, 0), "%-of-a-core-server-more", 5)
	})
}

// load changes 1,000 agents a second for some seconds, and returns the processor time that the server and the page use for 1,000
// changes, in percent of a second. It reports the changes per second, because a busy machine makes fewer.
func (s *server) load(b *testing.B, p *tab) (server, page float64) {
	ctx, stop := context.WithTimeout(b.Context(), 8*time.Second)
	defer stop()
	pageTime := func() time.Duration {
		if p == nil {
			return 0
		}
		return p.busy()
	}
	served, worked, began, events := cpuOf(b, s.process.Process.Pid), pageTime(), time.Now(), 0
	for tick := time.NewTicker(500 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		events += s.rename(500, events)
	}
	b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
	percent := func(used time.Duration) float64 { return 100 * used.Seconds() * 1000 / float64(events) }
	return percent(cpuOf(b, s.process.Process.Pid) - served), percent(pageTime() - worked)
}
