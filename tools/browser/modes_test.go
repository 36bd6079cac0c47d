package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveGraph responds to the page's requests for the graph of tools with generated tools of ten servers. Each tool is
// used with three others.
func (p *tab) serveGraph(tools int) {
	p.t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same graph in every run
	id := func(i int) string { return fmt.Sprintf("server-%d:tool_%d", i%10, i) }
	nodes, edges := make([]object, tools), []object{}
	for i := range nodes {
		nodes[i] = object{"id": id(i), "server": fmt.Sprintf("server-%d", i%10), "name": fmt.Sprintf("tool_%d", i), "runs": 1 + random.IntN(500), "rank": 1 / float64(1+i), "community": i % 20}
		for range 3 {
			other := (i + 20*(1+random.IntN(max(tools/20-1, 1)))) % tools // most edges are within a community
			if random.IntN(10) == 0 {
				other = random.IntN(tools)
			}
			edges = append(edges, object{"from": id(i), "to": id(other), "runs": 1 + random.IntN(50), "confidence": random.Float64()})
		}
	}
	body, err := json.Marshal(object{"nodes": nodes, "edges": edges, "total_nodes": tools, "communities": 20, "density": 0.01, "computed_at": "2026-01-12T15:30:00Z"})
	require.NoError(p.t, err)
	require.NoError(p.t, chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*fetch.EventRequestPaused); ok {
			go func() {
				_, _ = chromedp.Call(p.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: http.StatusOK, ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "application/json"}}, Body: body})
			}()
		}
	}))
	_, err = chromedp.Call(p.ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*/api/v1/tools/graph*"}}})
	require.NoError(p.t, err)
}

// spyOnGraph records what the page draws on canvases: the view of the last frame, and the positions of the first node.
const spyOnGraph = `
	window.drawn = new Set();
	const {setTransform, arc, clearRect} = CanvasRenderingContext2D.prototype;
	let first = false;
	CanvasRenderingContext2D.prototype.clearRect = function (...a) { first = true; return clearRect.apply(this, a); };
	CanvasRenderingContext2D.prototype.setTransform = function (k, b, c, d, x, y) {
		if (x || y) window.view = {k: k / devicePixelRatio, x: x / devicePixelRatio, y: y / devicePixelRatio};
		return setTransform.call(this, k, b, c, d, x, y);
	};
	CanvasRenderingContext2D.prototype.arc = function (x, y, ...a) {
		if (first) window.drawn.add(x + " " + y);
		first = false;
		return arc.call(this, x, y, ...a);
	};`

// emulate sets media features, such as prefers-reduced-motion.
func (p *tab) emulate(features ...*emulation.MediaFeature) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(p.t, err)
}

// TestReducedMotion checks that the graph of tools moves while it is arranged, but not if the reader prefers reduced motion.
func TestReducedMotion(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools")
	p.serveGraph(600)
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: spyOnGraph})
	require.NoError(t, err)
	p.visit("/ui/tools?tab=graph&limit=2000")
	p.until(`document.querySelector("[data-drawn]")`)
	assert.Greater(t, eval[int](p, "window.drawn.size"), 1, "the graph moves")
	p.emulate(&emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	p.visit("/ui/tools?tab=graph&limit=2000")
	p.until(`document.querySelector("[data-drawn]")`)
	assert.Equal(t, 1, eval[int](p, "window.drawn.size"), "the graph is drawn at its final place only")
}

// fingers moves fingers on the page from their first to their last positions, which are pairs of x and y.
func (p *tab) fingers(from, to [][2]float64) {
	p.t.Helper()
	send := func(kind input.DispatchTouchEventType, at [][2]float64) {
		points := []*input.TouchPoint{}
		for i, xy := range at {
			id := float64(i)
			points = append(points, &input.TouchPoint{X: xy[0], Y: xy[1], ID: &id})
		}
		_, err := chromedp.Call(p.ctx, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points})
		require.NoError(p.t, err)
	}
	send(input.DispatchTouchEventTypeTouchStart, from)
	for step := 1.0; step <= 4; step++ {
		now := make([][2]float64, len(from))
		for i := range from {
			now[i] = [2]float64{from[i][0] + (to[i][0]-from[i][0])*step/4, from[i][1] + (to[i][1]-from[i][1])*step/4}
		}
		send(input.DispatchTouchEventTypeTouchMove, now)
	}
	send(input.DispatchTouchEventTypeTouchEnd, nil)
}

// place is the scale and the position of the graph.
type place struct{ K, X, Y float64 }

// TestTouch moves the graph of tools with one finger and zooms it with two.
func TestTouch(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools")
	p.serveGraph(40)
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: spyOnGraph})
	require.NoError(t, err)
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateTouch, chromedp.EmulateMobile))
	p.visit("/ui/tools?tab=graph")
	p.until(`document.querySelector("[data-drawn] canvas")`)
	box := eval[[2]float64](p, `(() => { const c = document.querySelector("canvas"); c.scrollIntoView({block: "center"}); const r = c.getBoundingClientRect(); return [r.left, r.top]; })()`)
	at := func(x, y float64) [2]float64 { return [2]float64{box[0] + x, box[1] + y} }
	scrolled := eval[int](p, "Math.round(scrollY)")
	before := eval[place](p, "window.view")

	p.fingers([][2]float64{at(100, 100)}, [][2]float64{at(160, 180)})
	p.until(fmt.Sprintf("Math.abs(window.view.x - %g) > 50 && Math.abs(window.view.y - %g) > 70", before.X, before.Y))
	moved := eval[place](p, "window.view")
	assert.InDelta(t, before.K, moved.K, 1e-9, "one finger does not zoom")

	p.fingers([][2]float64{at(140, 150), at(180, 150)}, [][2]float64{at(110, 150), at(210, 150)})
	p.until(fmt.Sprintf("Math.abs(window.view.k / %g - 2.5) < 0.1", moved.K))
	zoomed := eval[place](p, "window.view")
	assert.InDelta(t, (160-moved.X)/moved.K, (160-zoomed.X)/zoomed.K, 2/zoomed.K, "what is between the fingers stays there")
	assert.Equal(t, scrolled, eval[int](p, "Math.round(scrollY)"), "the page does not scroll")
	assert.NotContains(t, eval[string](p, "location.search"), "tool=", "a movement selects nothing")
	p.screenshot("tools-graph-pinched", "light", 390)
}

// TestForcedColours opens views with forced colours, and checks that elements drawn only with a colour are still visible.
func TestForcedColours(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	s.startWorker("greeter", `echo "::tokens 4500"`)
	s.waitForTask(s.submit(object{"name": "Ada"}), "done")
	wf := s.startWorkflow()
	p := open(t, s, "")
	p.logIn(s.token, "/ui/")
	p.serveGraph(40)
	p.emulate(&emulation.MediaFeature{Name: "forced-colors", Value: "active"}, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	for _, v := range []struct{ name, path, selectors string }{
		{"overview", "/ui/", ".meter .used|.swatch|.live::before|.side nav [aria-current]"},
		{"agents", "/ui/agents?q=greeter", ".meter .used"},
		{"workflow", "/ui/workflows/" + wf, ".segments [aria-pressed=true]"},
		{"timeline", "/ui/workflows/" + wf + "?view=timeline", ".timeline .track i"},
		{"tools-graph", "/ui/tools?tab=graph", ".swatch|.tabs [aria-current]|.side nav [aria-current]"},
	} {
		p.visit(v.path)
		p.until(`matchMedia("(forced-colors: active)").matches && (!document.querySelector(".drawing") || document.querySelector("[data-drawn]"))`)
		assert.Empty(t, eval[[]string](p, quote(v.selectors)+`.split("|").filter(Boolean).filter((selector) => {
			const [name, part] = selector.split("::");
			const element = document.querySelector(name);
			const colour = element && getComputedStyle(element, part && "::" + part).backgroundColor;
			return !element || colour === "rgba(0, 0, 0, 0)" || colour === getComputedStyle(document.body).backgroundColor;
		})`), "what cannot be seen in %s", v.name)
		p.screenshot(v.name+"-forced", "light", 1440)
	}
}
