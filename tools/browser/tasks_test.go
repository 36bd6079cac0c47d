package browser

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// in returns the server for a subtest.
func (s *server) in(t *testing.T) *server {
	part := *s
	part.t = t
	return &part
}

// output returns the stored output of a task.
func (s *server) output(task, stream string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/api/v1/tasks/"+task+"/output?stream="+stream, nil)
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.token)
	response, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	var text strings.Builder
	_, err = io.Copy(&text, response.Body)
	require.NoError(s.t, err)
	return text.String()
}

// shown is a JavaScript expression for the text of an output in the page.
func shown(name string) string {
	return `document.querySelector("pre[aria-label=` + name + `]")?.textContent`
}

// TestOutput follows the output of a task while the server is killed and restarted, and checks that nothing is lost or repeated.
func TestOutput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("writer")
	end := filepath.Join(t.TempDir(), "end")
	s.startWorker("writer", `if [ "$COMET_PARAM_NAME" = long ]; then exec seq 60000; fi
		i=0; until test -e '`+end+`'; do i=$((i+1)); echo "line $i ä€😀"; sleep 0.02; done; echo "the last line"`)
	task := s.submit(object{"name": "lines"})
	p := open(t, s, "Failed to load|ERR_|status of 5")
	p.logIn(s.token, "/ui/tasks/"+task)
	line := func(n int) string { return fmt.Sprintf("%s?.includes(%q)", shown("Log"), fmt.Sprintf("line %d ", n)) }
	p.until(line(30))

	box, atEnd := `document.querySelector("pre[aria-label=Log]")`, `((e) => e.scrollTop + e.clientHeight > e.scrollHeight - 24)(document.querySelector("pre[aria-label=Log]"))`
	p.until(atEnd)
	eval[chromedp.Void](p, box+".scrollTop = 40; for (const start = performance.now(); performance.now() < start + 300; );") // output arrives before the event
	p.until(`document.querySelector("[role=switch]").checked === false`)
	p.until(line(60))
	assert.InDelta(t, 40, eval[float64](p, box+".scrollTop"), 1, "the reader's place does not move")
	p.click("Follow")
	p.until(atEnd)
	p.accessible("output that is followed")
	p.screenshot("task-output", "light", 1440)

	for range 2 {
		s.kill()
		p.shows("The output continues when the server responds.")
		last := eval[int](p, shown("Log")+`.match(/line/g).length`)
		s.restart()
		p.until(line(last + 30))
		p.until(`!document.body.innerText.includes("The output continues")`)
	}
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	s.waitForTask(task, "done")
	whole := s.output(task, "log")
	require.True(t, strings.HasSuffix(whole, "the last line\n"))
	p.until(shown("Log") + "?.endsWith(" + quote("the last line\n") + ")")
	assert.Equal(t, whole, eval[string](p, shown("Log")))
	p.click("Result")
	p.until(shown("Result") + " === " + quote(s.output(task, "result")))

	long := s.submit(object{"name": "long"})
	s.waitForTask(long, "done")
	whole = s.output(long, "log")
	p.visit("/ui/tasks/" + long)
	p.click("Log")
	p.shows("The first 148,894 bytes are not shown.")
	p.until(shown("Log") + " === " + quote(whole[148894:]))
	assert.Equal(t, whole, eval[string](p, `fetch(document.querySelector("a[download]").href).then((r) => r.text())`))
	p.screenshot("task-output-long", "light", 1440)
}

// rows is a JavaScript expression for the ids in the list of tasks.
const rows = `[...document.querySelectorAll("table[aria-label=Tasks] tbody code")].map((e) => e.textContent)`

// TestTaskList filters the list of tasks, and receives new and changed tasks.
func TestTaskList(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	s.startWorker("greeter", `until test -e '`+filepath.Join(t.TempDir(), "end")+`'; do sleep 0.1; done`) // the tasks are queued
	_, other := s.createToken("other requester", "", "messages:send")
	var first struct{ ID string }
	require.Equal(t, http.StatusAccepted, s.call(other, http.MethodPost, "/api/v1/tasks", object{"capabilities": []string{"custom:greet"}}, &first))
	for range 70 {
		s.submit(object{})
	}

	t.Run("filters", func(t *testing.T) {
		t.Parallel()
		p := open(t, s.in(t), "")
		p.logIn(s.token, "/ui/tasks?time=15m")
		p.until(rows + ".length === 50")
		p.choose("Requested by", "other requester")
		p.until(rows + ".join() === " + quote(first.ID))
		p.until(`new URLSearchParams(location.search).get("owner")`)
		p.choose("Requested by", "My token")
		p.until(rows + ".length === 50")
		p.click("Show more")
		p.until(rows + ".length >= 70 && new Set(" + rows + ").size === " + rows + ".length")
		p.choose("Created", "Between …")
		p.change("Until", `"2020-01-01T00:00"`)
		p.shows("No task matches")
		p.choose("Created", "At any time")
		p.choose("Requested by", "Any token")
		p.choose("State", "Cancelled")
		p.shows("No task matches")
		p.accessible("filters of tasks")
	})

	t.Run("new tasks", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		p := open(t, s, "")
		p.logIn(s.token, "/ui/tasks")
		p.until(rows + ".length === 50")
		p.until(`document.body.dataset.live === "on"`)
		atTop := s.submit(object{})
		p.until(rows + "[0] === " + quote(atTop))
		eval[chromedp.Void](p, "scrollTo(0, 400)")
		p.until("scrollY > 300")
		before := eval[[]string](p, rows)
		added := []string{s.submit(object{}), s.submit(object{}), s.submit(object{})}
		p.until(find("3 new tasks"))
		assert.Equal(t, before, eval[[]string](p, rows))
		p.screenshot("tasks-new", "light", 1440)
		p.accessible("new tasks")

		s.do(http.MethodPost, "/api/v1/tasks/"+atTop+"/cancel", object{}, nil)
		p.until(`[...document.querySelectorAll("tbody tr")].some((r) => r.innerText.includes(` + quote(atTop) + `) && r.innerText.includes("cancelled"))`)
		assert.True(t, eval[bool](p, find("3 new tasks")+" && scrollY > 300"))
		p.click("3 new tasks")
		p.until(rows + "[0] === " + quote(added[2]) + " && " + rows + "[3] === " + quote(atTop) + " && scrollY === 0")
		p.until("!" + find("3 new tasks"))
	})
}

// field is a JavaScript expression for the field in a label that begins with a text.
func field(label string) string {
	return `[...document.querySelectorAll("select, input")].find((e) => e.labels?.[0]?.firstChild.textContent.trim() === ` + quote(label) + `)`
}

// change sets the value of a field.
func (p *tab) change(label, value string) {
	p.t.Helper()
	p.until(field(label))
	eval[chromedp.Void](p, `((e) => { e.value = `+value+`; e.dispatchEvent(new Event("change", {bubbles: true})); })(`+field(label)+`)`)
}

// choose selects an option of a field by its text.
func (p *tab) choose(label, option string) {
	p.t.Helper()
	found := `[...` + field(label) + `.options].find((o) => o.text === ` + quote(option) + `)`
	p.until(field(label) + " && " + found)
	p.change(label, found+".value")
}

// freeAddress returns an address of this machine with a free port.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// TestTaskActions replies to the question of a task, cancels another one, and finds tasks and workflows with the palette.
func TestTaskActions(t *testing.T) {
	t.Parallel()
	v5 := freeAddress(t)
	s := startServer(t, "--v5-listen", v5)
	s.createAgent("greeter")
	_, secret := s.createToken("worker greeter", "greeter", "messages:send")
	worker := exec.Command("node", "../../examples/v5/worker.mjs", v5) // it asks for the language
	worker.Env = append(os.Environ(), "COMET_TOKEN="+secret)
	require.NoError(t, worker.Start())
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	eventually(t, "the worker is connected", func() bool {
		var w struct{ State string }
		return s.call(s.token, http.MethodGet, "/api/v1/workers/greeter", nil, &w) == http.StatusOK && w.State == "online"
	})
	task, workflow := s.submit(object{"lang": "de"}), s.startWorkflow()

	t.Run("reply", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		p := open(t, s, "")
		p.logIn(s.token, "/ui/")
		asked := "/ui/tasks/" + s.submit(object{"name": "Ada"}) // a question waits for only a minute
		p.until(`document.querySelector(".needs a[href=" + JSON.stringify(` + quote(asked) + `) + "]")?.closest("li").innerText.includes("question")`)
		p.visit(asked)
		p.shows("In which language?")
		p.click("fr")
		p.until(shown("Result") + `?.includes("Bonjour Ada")`)
		p.shows("done")
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		p := open(t, s, "")
		p.logIn(s.token, "/ui/tasks")
		cancelled := s.submit(object{"name": "Bob"})
		p.visit("/ui/tasks/" + cancelled)
		p.shows("In which language?")
		p.click("Cancel task")
		p.shows("its result is discarded")
		p.click("Cancel task")
		s.waitForTask(cancelled, "cancelled")
		p.until(`document.querySelector(".head .badge").innerText.includes("cancelled")`)
		assert.True(t, eval[bool](p, "!"+find("Cancel task")))
	})
	t.Run("palette", func(t *testing.T) {
		t.Parallel()
		p := open(t, s.in(t), "status of 404") // parts of an id
		p.logIn(s.token, "/ui/")
		for path, id := range map[string]string{"/ui/tasks/": task, "/ui/workflows/": workflow} {
			p.press("k", chromedp.KeyModifiers(kb.ModifierCtrl))
			p.until(`document.querySelector("dialog[data-palette] input") === document.activeElement`)
			p.press(id)
			p.until(`document.querySelector("[role=option][aria-selected=true]")?.innerText.includes(` + quote(id) + `)`)
			p.press(kb.Enter)
			p.until("location.pathname === " + quote(path+id))
			p.ready()
		}
	})
}

// TestDecision checks that a task shows the agents that were considered for it, and the alternatives of routing.
func TestDecision(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("offline")
	s.createAgent("greeter")
	s.startWorker("greeter", "echo done")
	task := s.submit(object{})
	s.waitForTask(task, "done")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tasks")
	eval[chromedp.Void](p, `window.fetch = ((get) => async (...request) => { // tasks of Genesis have a routing
		const response = await get(...request);
		if (request[0] !== "/api/v1/tasks/`+task+`") return response;
		const detail = await response.json(), agent = (agent_id, score) => ({agent_id, score, similarity: 1});
		detail.decision.routing = {reason: "the best three", confidence: 0.9, similarity: 1, selected: [agent("greeter", 0.9)], alternatives: [agent("offline", 0.25)]};
		return new Response(JSON.stringify(detail), response);
	})(fetch)`)
	p.until(rows + ".length === 1")
	eval[chromedp.Void](p, `document.querySelector("table[aria-label=Tasks] tbody a").click()`)
	p.click("Decision")
	row := func(table, agent string) string {
		return `[...document.querySelectorAll("table[aria-label=` + table + `] tbody tr")].find((r) => r.innerText.startsWith(` + quote(agent) + `))?.innerText`
	}
	p.until(row("Routing", "greeter") + `?.includes("selected")`)
	p.until(row("Routing", "offline") + `?.match(/0.250.*alternative, not selected/s)`)
	p.until(row("Candidates", "greeter") + `?.includes("selected")`)
	p.until(row("Candidates", "offline") + `?.includes("not eligible: ")`)
	p.accessible("decision")
	p.screenshot("task-decision-routing", "light", 1440)
}

// observeDownloads stores the content of the files that the page makes in "files".
func (p *tab) observeDownloads() {
	p.t.Helper()
	eval[chromedp.Void](p, `window.files = [], URL.createObjectURL = ((create) => (blob) => { blob.text().then((text) => files.push(text)); return create.call(URL, blob); })(URL.createObjectURL)`)
}

// TestCSV downloads the statistics of the overview and of a chart.
func TestCSV(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	s.startWorker("greeter", `echo "::tokens 120"`)
	s.waitForTask(s.submit(object{}), "done")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/")
	p.observeDownloads()
	p.until(`document.body.innerText.includes("120")`)
	p.click("Statistics as CSV")
	p.until("files.length === 1")
	lines := strings.Split(eval[string](p, "files[0]"), "\r\n")
	assert.True(t, strings.HasPrefix(lines[0], "time,tasks_created,tasks_completed,"), lines[0])
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:00\.000Z,`, lines[1])
	assert.Len(t, lines, 62, "a header, 60 minutes, and the end of the last line")
	eval[chromedp.Void](p, `document.querySelectorAll("main details").forEach((d) => (d.open = true))`)
	p.click("Tokens over time as CSV")
	p.until(`files[1]?.startsWith("time,tokens\r\n") && files[1].includes(",120\r\n")`)
	p.accessible("charts with their tables")
}
