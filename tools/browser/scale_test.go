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

// importTeams imports rosters of 10,000 agents, the maximum. Each has some teams; a team is an agent with helpers below it.
func (s *server) importTeams(rosters, teams int) {
	s.t.Helper()
	for roster := range rosters {
		var agents []object
		for team := range teams {
			parent := fmt.Sprintf("team-%d-%d", roster, team)
			agents = append(agents, newEntry(parent, "orch-my-team", 2))
			for helper := range 10_000/teams - 1 {
				agents = append(agents, newEntry(fmt.Sprintf("helper-%d-%d-%d", roster, team, helper), parent, 3))
			}
		}
		s.importRoster(agents)
	}
}

// rename renames agents below an orchestrator, which it creates first.
func (s *server) rename(agents, round int) (changes int) {
	s.t.Helper()
	batch := make([]object, agents)
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

// TestManyAgents opens the tree of 10,000 agents with 1,000 teams, and checks that only the rows on the screen are drawn, the
// last one can be reached, and the search finds an agent. BenchmarkAgents has 100,000 agents, whose import takes too long here.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.importTeams(1, 1000)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents")
	p.shows("Hierarchy of 10,010 agents")
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
	p.enter("Find agents by id, name or description", "helper-0-742-3")
	p.until(`document.querySelector("table[aria-label='Matching agents'] a[href='/ui/agents/helper-0-742-3']")`)
}

// countPaints counts the frames of the page in which the document changed.
const countPaints = `(() => {
	window.paints = {count: 0, began: performance.now()};
	let queued = false;
	new MutationObserver(() => {
		if (queued) return;
		queued = true;
		requestAnimationFrame(() => { queued = false; paints.count++; });
	}).observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true});
})()`

// TestFlood changes agents as fast as the server can while the page shows the events, and checks that the page paints at most
// ten times a second, does not grow, stays responsive, and shows the last event.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.rename(100, 0)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/events")
	p.until(`document.body.dataset.live === "on"`)
	eval[chromedp.Void](p, countPaints)
	began, changes := time.Now(), 0
	for round := range 30 {
		changes += s.rename(100, round+1)
		if round == 15 { // the page responds to input
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
