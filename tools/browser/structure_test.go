package browser

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named are the roles whose elements need a name.
const named = " alertdialog button checkbox columnheader combobox dialog DisclosureTriangle heading image img link listbox meter navigation option radio region rowheader searchbox slider spinbutton tab table textbox treegrid "

// outline is what the accessibility tree of a page contains.
type outline struct {
	p      *tab
	nodes  map[accessibility.NodeID]*accessibility.Node
	count  map[string]int // by role
	live   int            // elements whose changes are announced
	level  int            // of the last heading
	titles int            // headings of level 1
	faults []string
}

// structure returns the faults of the page's accessibility tree, which a screen reader reads: controls without a name, missing
// or repeated landmarks, headings that skip a level, or no element that announces changes.
func (p *tab) structure() []string {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(p.t, err)
	o := &outline{p: p, nodes: map[accessibility.NodeID]*accessibility.Node{}, count: map[string]int{}}
	for _, n := range tree.Nodes {
		o.nodes[n.NodeID] = n
	}
	o.read(tree.Nodes[0])
	for what, n := range map[string]int{"main landmark": o.count["main"], "heading of level 1": o.titles} {
		if n != 1 {
			o.faults = append(o.faults, fmt.Sprintf("%d elements are a %s", n, what))
		}
	}
	if o.count["status"] == 0 || o.live < 2 {
		o.faults = append(o.faults, "the page has no element that announces changes of its state, or none for messages")
	}
	return o.faults
}

// read reads an element and its descendants, in the order of the page.
func (o *outline) read(n *accessibility.Node) {
	if n == nil {
		return
	}
	if role := textOf(n.Role); !n.Ignored {
		o.count[role]++
		if strings.Contains(named, " "+role+" ") && strings.TrimSpace(textOf(n.Name)) == "" {
			html, _ := chromedp.Call(o.p.ctx, dom.GetOuterHTML, dom.GetOuterHTMLParams{BackendNodeID: n.BackendDOMNodeID})
			o.faults = append(o.faults, fmt.Sprintf("a %s has no name: %.200s", role, html.OuterHTML))
		}
		for _, property := range n.Properties {
			o.readProperty(n, role, property)
		}
	}
	for _, id := range n.ChildIDs {
		o.read(o.nodes[id])
	}
}

func (o *outline) readProperty(n *accessibility.Node, role string, property *accessibility.Property) {
	switch property.Name {
	case accessibility.PropertyNameLive:
		if value := textOf(property.Value); value == "polite" || value == "assertive" {
			o.live++
		}
	case accessibility.PropertyNameLevel:
		level := 0
		if role != "heading" || json.Unmarshal(property.Value.Value, &level) != nil {
			return
		}
		if level == 1 {
			o.titles++
		}
		if level > o.level+1 {
			o.faults = append(o.faults, fmt.Sprintf("the heading %q of level %d follows one of level %d", textOf(n.Name), level, o.level))
		}
		o.level = level
	}
}

// textOf returns the text of a value, or "" if it is not a text.
func textOf(v *accessibility.Value) (text string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &text)
	}
	return text
}

// movement is a JavaScript expression for the animations and transitions that take longer than 10 ms.
const movement = `document.getAnimations().filter((a) => a.effect.getComputedTiming().duration > 10).map((a) => (a.animationName ?? a.transitionProperty) + " of " + a.effect.target.outerHTML.slice(0, 100))`

// unreachable is a JavaScript expression for the controls that cannot be scrolled into view, or are covered by other elements.
const unreachable = `[...document.querySelectorAll("a[href]:not(.skip), button, input, select, textarea, summary")].filter((e) => {
	if (!e.isConnected || !e.checkVisibility() || e.disabled) return false;
	e.scrollIntoView({block: "center", inline: "center"});
	const r = e.getClientRects()[0];
	const [left, right] = [Math.max(r.left, 0), Math.min(r.right, innerWidth)];
	const [top, bottom] = [Math.max(r.top, 0), Math.min(r.bottom, innerHeight)];
	const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
	return left >= right || top >= bottom || !(e.contains(hit) || hit?.closest("label")?.control === e);
}).map((e) => e.outerHTML.slice(0, 200))`

// zoomed shows the page in a window of 1280 to 1440 pixels that is zoomed by 200 or 400 percent (WCAG 1.4.4 and 1.4.10): it must
// not scroll sideways, except inside tables and graphs, and every control can be reached.
func (p *tab) zoomed(where string, percent int) {
	p.t.Helper()
	width, height := int64(720), int64(450)
	if percent == 400 {
		width, height = 320, 256
	}
	p.do(chromedp.EmulateViewport(width, height))
	p.until(fmt.Sprintf("innerWidth === %d", width))
	assert.LessOrEqual(p.t, eval[int64](p, "document.documentElement.scrollWidth"), width, "%s is too wide at %d %%", where, percent)
	assert.Empty(p.t, eval[[]string](p, unreachable), "controls of %s that cannot be reached at %d %%", where, percent)
}
