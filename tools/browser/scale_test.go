package browser

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

// newEntry returns an agent of a roster.
func newEntry(id, parent string, level int) object {
	return object{"id": id, "name": "Agent " + id, "level": level, "parent_id": parent, "sphere_id": 8, "frequency_hz": map[int]int{2: 555, 3: 444}[level], "token_budget": 5000}
}

func (s *server) importRoster(agents []object) {
	s.t.Helper()
	s.do(http.MethodPost, "/api/v1/roster", object{"version": 1, "agents": agents}, nil)
}

// importTeams imports rosters of 10,000 agents, the maximum: each has 100 teams of an agent and 99 helpers.
func (s *server) importTeams(rosters int) {
	s.t.Helper()
	for roster := range rosters {
		var agents []object
		for team := range 100 {
			parent := fmt.Sprintf("team-%d-%d", roster, team)
			agents = append(agents, newEntry(parent, "orch-my-team", 2))
			for helper := range 99 {
				agents = append(agents, newEntry(fmt.Sprintf("helper-%d-%d-%d", roster, team, helper), parent, 3))
			}
		}
		s.importRoster(agents)
	}
}

// rename changes 500 agents below an orchestrator, which creates them at first.
func (s *server) rename(round int) (changes int) {
	s.t.Helper()
	batch := make([]object, 500)
	for i := range batch {
		batch[i] = newEntry(fmt.Sprintf("team-%d", i), "orch-my-team", 2)
		batch[i]["name"] = fmt.Sprintf("Team %d in round %d", i, round)
	}
	s.importRoster(batch)
	return len(batch)
}

const (
	treeRows = `document.querySelectorAll("[role=treegrid] [role=row][aria-level]").length`
	treeEnd  = `(document.querySelector(".treebox").scrollTop = 1e9, document.querySelector("[role=treegrid] [aria-rowindex='" + document.querySelector("[role=treegrid]").ariaRowCount + "']"))`
)

// TestManyAgents opens the tree of 100,000 agents: only the rows on the screen are drawn, the last one can be reached, and the
// search finds an agent.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	began := time.Now()
	s.importTeams(10)
	t.Logf("100,000 agents were imported in %v", time.Since(began).Round(time.Millisecond))
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents")
	p.shows("Hierarchy of 100,010 agents")
	p.click("Open orch-my-team")
	for pages := range 5 { // of 200 teams
		p.until(fmt.Sprintf(`document.querySelector("[role=treegrid]").ariaRowCount >= %d`, 200*(pages+1)))
		assert.Less(t, eval[int](p, treeRows), 60, "only rows on the screen are drawn")
		p.until(treeEnd)
		if pages < 4 {
			p.until(`(` + treeEnd + `, ` + find("Show more") + `)`)
			p.click("Show more")
		}
	}
	p.until(treeEnd)
	eval[chromedp.Void](p, `document.querySelector("[role=treegrid] [role=row][tabindex='0'], [role=treegrid] [role=row][aria-level]").focus()`)
	p.press(kb.End)
	p.until(`document.activeElement.ariaRowIndex === document.querySelector("[role=treegrid]").ariaRowCount`)
	p.press(kb.Home)
	p.until(`document.activeElement.ariaRowIndex === "2"`)
	assert.Less(t, eval[int](p, treeRows), 60, "only rows on the screen are drawn")
	p.enter("Find agents by id, name or description", "helper-7-42-13")
	p.until(`document.querySelector("table[aria-label='Matching agents'] a[href='/ui/agents/helper-7-42-13']")`)
}

// countPaints counts the pictures of the page in which the document changed.
const countPaints = `(() => {
	window.paints = {count: 0, began: performance.now()};
	let queued = false;
	new MutationObserver(() => {
		if (queued) return;
		queued = true;
		requestAnimationFrame(() => { queued = false; paints.count++; });
	}).observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true});
})()`

// TestFlood changes more than 1,000 agents a second while the page shows the events: it paints at most ten times a second, does
// not grow, reacts to the reader, and shows the last event.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.rename(0)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/events")
	p.until(`document.body.dataset.live === "on"`)
	eval[chromedp.Void](p, countPaints)
	began, changes := time.Now(), 0
	for round := range 10 {
		changes += s.rename(round + 1)
		if round == 4 { // the page reacts
			p.click("Pause")
			p.shows("Events, paused")
			p.click("Continue")
			p.shows("Events, live")
		}
	}
	t.Logf("%.0f events/s", float64(changes)/time.Since(began).Seconds())
	s.createAgent("last-of-the-flood")
	p.until(`document.querySelector(".log li")?.innerText.includes("last-of-the-flood")`)
	assert.LessOrEqual(t, eval[int](p, `document.querySelectorAll(".log li").length`), 500)
	paints := eval[struct{ Count, Seconds float64 }](p, `({count: paints.count, seconds: (performance.now() - paints.began) / 1000})`)
	t.Logf("%.0f paints in %.1f s", paints.Count, paints.Seconds)
	assert.Positive(t, paints.Count)
	assert.LessOrEqual(t, paints.Count, 10*paints.Seconds+10, "at most ten paints a second, and those of the clicks")
}
