//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// TestWorkerInEveryDialect: a command and whoever follows its task do not notice what is
// spoken on the worker's line.
func TestWorkerInEveryDialect(t *testing.T) {
	t.Parallel()
	for _, database := range storetest.Databases() {
		for _, dialect := range []string{agent.DialectEnvelope, agent.DialectV5} {
			t.Run(dialect+"/"+database, func(t *testing.T) {
				t.Parallel()
				f := openFirm(t, database)
				for rule, behaves := range map[string]func(*testing.T, *desk){
					"what it prints is log and result":                      printsLogAndResult,
					"an exit code is the task's":                            failsWithACode,
					"progress is told, and is no output":                    tellsProgress,
					"tokens are charged":                                    usesTokens,
					"what is no text is replaced, controls stay":            printsNoText,
					"what is too long is in the log, its end is the result": printsTooMuch,
					"the end of a failure is its result":                    failsAtLength,
					"parameters come whole":                                 getsParameters,
					"a task that is taken back ends its command":            isTakenBack,
					"a silent task is taken for hung":                       isSilent,
				} {
					t.Run(rule, func(t *testing.T) {
						t.Parallel()
						behaves(t, f.hire(t, dialect))
					})
				}
			})
		}
	}
}

func printsLogAndResult(t *testing.T, d *desk) {
	id := d.submit(t, `{"name":"a b","n":1.50}`, nil)
	d.works(t, `echo "hello $COMET_PARAM_NAME $COMET_PARAM_N"; echo error >&2; test "$COMET_WORK_TYPE" = run`)
	got := d.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	log := d.output(t, id, "log")
	require.ElementsMatch(t, []string{"hello a b 1.50", "error"}, strings.Split(strings.TrimSpace(log), "\n"))
	require.Equal(t, strings.TrimSpace(log), strings.TrimSpace(d.output(t, id, "result")))
}

func failsWithACode(t *testing.T, d *desk) {
	id := d.submit(t, `{}`, nil)
	d.works(t, `echo "no; such|thing"; exit 7`)
	got := d.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Equal(t, 7, *got.ExitCode)
	require.Equal(t, "the work failed", got.Error)
	require.Equal(t, "no; such|thing\n", d.output(t, id, "result"))
}

func tellsProgress(t *testing.T, d *desk) {
	gate := filepath.Join(t.TempDir(), "gate")
	id := d.submit(t, `{}`, nil)
	d.works(t, `echo "::progress 40 half of \"it\""; while ! test -e '`+gate+`'; do sleep 0.05; done; echo end`)
	var got agent.Task
	require.Eventually(t, func() bool {
		got = d.task(t, id)
		return got.Progress == 40
	}, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, got.StepName)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, "done", d.ended(t, id).State)
	require.Equal(t, "end\n", d.output(t, id, "log"))
}

func usesTokens(t *testing.T, d *desk) {
	for _, budget := range []int64{0, 5000, 20_000} { // a line can say up to 9,999
		members := map[string]any{}
		if budget > 0 {
			members["budget"] = budget
		}
		id := d.submit(t, `{}`, members)
		d.works(t, `echo "::tokens 1200 small"; echo "::tokens 34"; echo used`)
		got := d.ended(t, id)
		require.Equal(t, "done", got.State, "%+v", got)
		require.EqualValues(t, 1234, got.Tokens, "of a budget of %d", budget)
		require.Equal(t, "used", strings.TrimSpace(d.output(t, id, "result")))
	}
}

func printsNoText(t *testing.T, d *desk) {
	id := d.submit(t, `{}`, nil)
	d.works(t, `printf 'a\377\001|>";auth=S1:0000:00000000\n\302'`)
	got := d.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	want := "a\uFFFD\x01|>\";auth=S1:0000:00000000\n\uFFFD"
	require.Equal(t, want, d.output(t, id, "result"))
	require.Equal(t, want, d.output(t, id, "log"))
}

func printsTooMuch(t *testing.T, d *desk) {
	id := d.submit(t, `{}`, nil)
	d.works(t, `i=0; while [ $i -lt 6 ]; do head -c 65535 /dev/zero | tr '\0' x; echo; i=$((i+1)); done`)
	got := d.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	line := strings.Repeat("x", 65535) + "\n"
	same := strings.Repeat(line, 6) == d.output(t, id, "log") // which nobody wants to see compared
	require.True(t, same)
	same = "[what came before was left out]\n"+strings.Repeat(line, 3) == d.output(t, id, "result")
	require.True(t, same)
}

func failsAtLength(t *testing.T, d *desk) {
	id := d.submit(t, `{}`, nil)
	d.works(t, `i=0; while [ $i -lt 100 ]; do echo "line $i é"; i=$((i+1)); done; exit 3`)
	got := d.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Equal(t, 3, *got.ExitCode)
	require.Equal(t, 100, strings.Count(d.output(t, id, "result"), "é\n"))
	require.Equal(t, d.output(t, id, "log"), d.output(t, id, "result"))
}

func getsParameters(t *testing.T, d *desk) {
	into := filepath.Join(t.TempDir(), "parameters")
	for _, parameters := range []string{
		`{}`, `{"a":1.50,"b":"2","c":true,"d":"","e":"x|y \"z\"\n","nil":null,"o":{"p":[1,{}]}}`, `{"text":"short"}`,
		`{"long":"` + strings.Repeat(`ab\u00e9\n`, 8<<10) + `"}`,
	} {
		id := d.submit(t, parameters, nil)
		d.works(t, `cat >'`+into+`'`)
		got := d.ended(t, id)
		require.Equal(t, "done", got.State, "%+v", got)
		text, err := os.ReadFile(into)
		require.NoError(t, err)
		require.JSONEq(t, parameters, string(text))
	}
}

func isTakenBack(t *testing.T, d *desk) {
	begun, ended := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "ended")
	id := d.submit(t, `{}`, nil)
	d.works(t, `trap 'echo x >"`+ended+`"; exit 3' TERM; echo x >'`+begun+`'; while :; do sleep 0.05; done`)
	require.Eventually(t, func() bool { return exists(begun) }, time.Minute, 10*time.Millisecond)
	d.do(t, http.MethodPost, "/api/v1/tasks/"+id+"/cancel", map[string]any{"reason": "enough"})
	require.Eventually(t, func() bool { return exists(ended) }, time.Minute, 10*time.Millisecond, "the command is asked to end")
	require.Equal(t, "cancelled", d.ended(t, id).State)
}

func isSilent(t *testing.T, d *desk) {
	id := d.submit(t, `{}`, map[string]any{"timeout_ms": 1000, "retries": 0})
	d.keepAlive = -1
	d.works(t, `trap 'exit 3' TERM; while :; do sleep 0.05; done`)
	got := d.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Nil(t, got.ExitCode)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// firm is a server.
type firm struct {
	url, token string
	http       *http.Client
}

func openFirm(t *testing.T, database string) *firm {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", t.TempDir()
	if database == "postgres" {
		cfg.DatabaseURL = storetest.EmptyPostgres(t)
	}
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	token, err := os.ReadFile(filepath.Join(cfg.Data, "admin.token"))
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &firm{a.URL(), strings.TrimSpace(string(token)), &http.Client{Transport: transport, Timeout: time.Minute}}
}

// do sends a request that must succeed.
func (f *firm) do(t *testing.T, method, path string, body any) []byte {
	t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, reader)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, text)
	return text
}

// desk is an agent of the firm, and the directory of its worker.
type desk struct {
	*firm
	id, own, dialect, state string
	keepAlive               time.Duration
	stop                    func() // the worker
}

func (f *firm) hire(t *testing.T, dialect string) *desk {
	t.Helper()
	d := &desk{firm: f, id: fmt.Sprintf("desk-%x", time.Now().UnixNano()), dialect: dialect, state: filepath.Join(t.TempDir(), "state"), stop: func() {}}
	f.do(t, http.MethodPost, "/api/v1/agents", map[string]any{
		"id": d.id, "name": d.id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:run"}, "type": "infra", "token_budget": 100_000,
	})
	var made struct{ Token string }
	require.NoError(t, json.Unmarshal(f.do(t, http.MethodPost, "/api/v1/tokens", map[string]any{
		"name": d.id, "agent_id": d.id, "scopes": []string{"messages:send"},
	}), &made))
	d.own = made.Token
	return d
}

// works runs a worker with a script, in the place of the one before, until the test ends.
func (d *desk) works(t *testing.T, script string) {
	t.Helper()
	d.stop()
	kept, err := openState(d.state)
	require.NoError(t, err)
	r := newRunner([]string{"/bin/sh", "-c", script}, workerFlags{grace: time.Minute, maxOutput: 256 << 10}, io.Discard)
	transport := &http.Transport{}
	a, err := agent.New(d.url, d.own, &agent.Options{
		Dialect: d.dialect, Cache: kept.cache, Drain: -1, Grace: time.Minute, KeepAlive: d.keepAlive, Client: &http.Client{Transport: transport},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(t, err)
	a.Handle("run", r.run)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	d.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
		kept.unlock()
	})
	t.Cleanup(d.stop)
}

// submit asks the agent for work and returns the task's id.
func (d *desk) submit(t *testing.T, parameters string, members map[string]any) string {
	t.Helper()
	body := map[string]any{"agent_id": d.id, "capabilities": []string{"run"}, "parameters": json.RawMessage(parameters)}
	for name, value := range members {
		body[name] = value
	}
	var made agent.Task
	require.NoError(t, json.Unmarshal(d.do(t, http.MethodPost, "/api/v1/tasks", body), &made))
	return made.ID
}

func (d *desk) task(t *testing.T, id string) (out agent.Task) {
	t.Helper()
	require.NoError(t, json.Unmarshal(d.do(t, http.MethodGet, "/api/v1/tasks/"+id, nil), &out))
	return out
}

func (d *desk) ended(t *testing.T, id string) (out agent.Task) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = d.task(t, id)
		return out.Ended()
	}, 3*time.Minute, 20*time.Millisecond, "the task ends")
	return out
}

func (d *desk) output(t *testing.T, id, stream string) string {
	t.Helper()
	return string(d.do(t, http.MethodGet, "/api/v1/tasks/"+id+"/output?stream="+stream, nil))
}
