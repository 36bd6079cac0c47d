package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/store/storetest"
)

// TestDocumentedMetrics runs a server through many operations. Every documented metric must be
// exposed with values.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Transport.RedeliverAfter = time.Millisecond
			cfg.Transport.Heartbeat = 10 * time.Minute // the agent stays online
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			c := newClient(t, a.URL(), adminToken(t, cfg.Data))
			someWork(t, c)
			failOverMCP(t, c)

			for _, d := range documented(t) {
				eventually(t, func() bool { // the counters follow the commits
					_, is := d.among(exposed(t, a.URL()))
					return is
				}, d.name+" is shown")
			}
			requireMonitored(t, exposed(t, a.URL()))
			text := eventuallyShows(t, a.URL(),
				`comet_tasks_submitted_total{class="default"} 3`,
				`comet_tasks_ended_total{class="default",failure="",state="done"} 1`,
				`comet_tasks_ended_total{class="default",failure="",state="cancelled"} 1`,
				`comet_attempt_duration_seconds_count{result="succeeded"} 1`,
				`comet_tasks_open{waiting_for="result"} 1`, `comet_tasks_open{waiting_for="worker"} 0`,
				`comet_workers{state="online"} 1`, `comet_worker_slots{use="taken"} 1`, `comet_worker_breakers{state="closed"} 1`,
				`comet_failures_total{api="rest",code="not-found"} 1`,
				`comet_failures_total{api="mcp",code="-32602"} 1`, `comet_failures_total{api="mcp",code="TOOL_NOT_FOUND"} 1`,
				`comet_workflows_started_total{source="rest"} 2`, `comet_workflows_ended_total{status="error"} 1`,
				`comet_workflow_step_duration_seconds_count{outcome="error",type="agent_task"} 1`,
				`comet_workflows_open{status="running"} 0`, `comet_workflows_open{status="paused"} 1`,
				`comet_workflow_checkpoints_open{pause="approval"} 1`, `comet_workflow_checkpoints_open{pause="layer"} 0`,
				`comet_ledger_facts_total 1`, `comet_ledger_tokens_total 70`, `comet_ledger_reservations_total{result="granted"} 3`,
			)
			require.Regexp(t, `(?m)^comet_transport_redeliveries_total\{transport="poll"\} [1-9]`, text)
		})
	}
}

// requireMonitored requires that the dashboard and the alerts use exposed metrics, and select by
// labels that these have.
func requireMonitored(t *testing.T, shown map[string][]string) {
	t.Helper()
	for _, file := range []string{"grafana/comet.json", "prometheus/alerts.yaml"} {
		text, err := os.ReadFile("../../deploy/" + file)
		require.NoError(t, err)
		used := regexp.MustCompile(`\b(comet_[a-z0-9_]+?)(?:_bucket|_count|_sum)?\b(?:\{([^}]*)\})?`).FindAllStringSubmatch(strings.ReplaceAll(string(text), `\"`, `"`), -1)
		require.NotEmpty(t, used, file)
		for _, m := range used {
			labels, is := shown[m[1]]
			require.True(t, is, "%s uses the unknown metric %s", file, m[1])
			for _, l := range regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`).FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, append(labels, "job"), l[1], "%s selects %s", file, m[0])
			}
		}
	}
}

// someWork submits three tasks: one is done within a budget, one is cancelled and one stays open.
// The agent polls its inbox and gets a redelivery of what it does not acknowledge.
func someWork(t *testing.T, c *client) {
	t.Helper()
	agent := newClient(t, c.URL, registerAgent(t, c, "digger"))
	told := func() (messages []envelopeFrame) {
		t.Helper()
		status, body, err := agent.do(t.Context(), http.MethodGet, "/api/agent/inbox?concurrency=2", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", body)
		var got struct{ Messages []envelopeFrame }
		require.NoError(t, json.Unmarshal(body, &got))
		return got.Messages
	}
	require.Empty(t, told())
	var ids []string
	for range 3 {
		status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"custom:dig"}, "budget": 100, "timeout_ms": 3_600_000})
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status, "%s", body)
		var made struct{ ID string }
		require.NoError(t, json.Unmarshal(body, &made))
		ids = append(ids, made.ID)
	}
	require.NotEmpty(t, told())
	eventually(t, func() bool { return len(told()) > 0 }, "what is not acknowledged comes again")
	status, body, err := agent.do(t.Context(), http.MethodPost, "/api/agent/message", newEnvelope("infra", "orchestrator", "work_result", map[string]any{
		"task_id": ids[0], "status": "success", "exit_code": 0, "output": "a hole",
		"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1, "tokens": 70},
	}))
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, status, "%s", body)
	status, body, err = c.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+ids[1]+"/cancel", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", body)
	for _, tasks := range []string{`{"id":"a","type":"agent_task","capability":"custom:none"}`, `{"id":"a","tool":"agentcards:search_tools","approve":true}`} {
		status, body, err = c.do(t.Context(), http.MethodPost, "/api/v1/workflows", map[string]any{"workflow": map[string]any{"tasks": []any{json.RawMessage(tasks)}}})
		require.NoError(t, err)
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, status, "%s", body)
	}
	status, body, err = c.do(t.Context(), http.MethodGet, "/api/v1/agents/no-such-agent", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status, "%s", body)
}

// failOverMCP sends an invalid request and a call of an unknown tool.
func failOverMCP(t *testing.T, c *client) {
	t.Helper()
	s := c.speak(t, sessions, nil)
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{})
	require.Error(t, err)
	requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "none:none", nil))
}

// eventuallyShows waits until the metrics have all of the lines and returns them.
func eventuallyShows(t *testing.T, url string, lines ...string) (text string) {
	t.Helper()
	eventually(t, func() bool {
		_, text = read(t, url+"/metrics")
		return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") })
	}, strings.Join(lines, "\n"))
	return text
}

// exposed returns the exposed metrics with their label names.
func exposed(t *testing.T, url string) map[string][]string {
	t.Helper()
	_, text := read(t, url+"/metrics")
	out := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (comet_\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		suffix := map[string]string{"histogram": "_count"}[m[2]]
		series := regexp.MustCompile(`(?m)^` + m[1] + suffix + `(?:\{(.*)\})? `).FindStringSubmatch(text)
		require.NotNil(t, series, m[1])
		out[m[1]] = []string{}
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[1], -1) {
			out[m[1]] = append(out[m[1]], l[1])
		}
	}
	require.NotEmpty(t, out)
	return out
}

// metric is a documented metric: a name or a prefix of several.
type metric struct {
	name   string // may end in "*"
	labels []string
}

// among returns an exposed metric that the document describes.
func (m metric) among(shown map[string][]string) (name string, is bool) {
	prefix, many := strings.CutSuffix(m.name, "*")
	for name := range shown {
		if name == m.name || many && strings.HasPrefix(name, prefix) {
			return name, true
		}
	}
	return "", false
}

// documented returns the metrics in the tables of the documents.
func documented(t *testing.T) (all []metric) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| (`comet_[^|]*) \\|([^|]*)\\|")
	for _, file := range []string{"observability.md", "transports.md"} {
		text, err := os.ReadFile("../../docs/" + file)
		require.NoError(t, err)
		rows := row.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, rows, file)
		for _, r := range rows {
			labels := []string{}
			for l := range strings.SplitSeq(regexp.MustCompile(`\(.*?\)`).ReplaceAllString(r[2], ""), ",") {
				if l = strings.Trim(l, " `"); l != "" {
					labels = append(labels, l)
				}
			}
			for _, name := range regexp.MustCompile(`comet_[a-z0-9_]+\*?`).FindAllString(r[1], -1) {
				all = append(all, metric{name, labels})
			}
		}
	}
	return all
}
