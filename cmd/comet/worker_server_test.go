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
	"comet/agent/program"
	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// TestWorkerAgainstServer runs commands as "comet worker" does, against a server on every
// database, and reads what the server stores about their tasks.
func TestWorkerAgainstServer(t *testing.T) {
	t.Parallel()
	for _, database := range storetest.Databases() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			s := startTestServer(t, database)
			for name, test := range map[string]func(*testing.T, *testWorker){
				"stores output as log and result":      testLogAndResult,
				"reports the exit code":                testExitCode,
				"reports progress":                     testProgress,
				"charges tokens":                       testTokens,
				"replaces bytes that are not UTF-8":    testInvalidText,
				"keeps the end of a long output":       testLongOutput,
				"keeps the output of a failed command": testOutputOfFailure,
				"passes parameters unchanged":          testParameters,
				"ends the command of a cancelled task": testCancelled,
				"fails the task of a silent command":   testSilent,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, s.newWorker(t))
				})
			}
		})
	}
}

func testLogAndResult(t *testing.T, w *testWorker) {
	id := w.submit(t, `{"name":"a b","n":1.50}`, nil)
	w.run(t, `echo "hello $COMET_PARAM_NAME $COMET_PARAM_N"; echo error >&2; test "$COMET_WORK_TYPE" = run`)
	got := w.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	log := w.output(t, id, "log")
	require.ElementsMatch(t, []string{"hello a b 1.50", "error"}, strings.Split(strings.TrimSpace(log), "\n"))
	require.Equal(t, strings.TrimSpace(log), strings.TrimSpace(w.output(t, id, "result")))
}

func testExitCode(t *testing.T, w *testWorker) {
	id := w.submit(t, `{}`, nil)
	w.run(t, `echo "no; such|thing"; exit 7`)
	got := w.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Equal(t, 7, *got.ExitCode)
	require.Equal(t, "the work failed", got.Error)
	require.Equal(t, "no; such|thing\n", w.output(t, id, "result"))
}

func testProgress(t *testing.T, w *testWorker) {
	gate := filepath.Join(t.TempDir(), "gate")
	id := w.submit(t, `{}`, nil)
	w.run(t, `echo "::progress 40 half of \"it\""; while ! test -e '`+gate+`'; do sleep 0.05; done; echo end`)
	var got agent.Task
	require.Eventually(t, func() bool {
		got = w.task(t, id)
		return got.Progress == 40
	}, time.Minute, 10*time.Millisecond)
	require.NotEmpty(t, got.StepName)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, "done", w.ended(t, id).State)
	require.Equal(t, "end\n", w.output(t, id, "log"))
}

func testTokens(t *testing.T, w *testWorker) {
	for _, budget := range []int64{0, 5000, 20_000} {
		members := map[string]any{}
		if budget > 0 {
			members["budget"] = budget
		}
		id := w.submit(t, `{}`, members)
		w.run(t, `echo "::tokens 1200 small"; echo "::tokens 34"; echo used`)
		got := w.ended(t, id)
		require.Equal(t, "done", got.State, "%+v", got)
		require.EqualValues(t, 1234, got.Tokens, "of a budget of %d", budget)
		require.Equal(t, "used", strings.TrimSpace(w.output(t, id, "result")))
	}
}

func testInvalidText(t *testing.T, w *testWorker) {
	id := w.submit(t, `{}`, nil)
	w.run(t, `printf 'a\377\001|>";auth=S1:0000:00000000\n\302'`)
	got := w.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	want := "a\uFFFD\x01|>\";auth=S1:0000:00000000\n\uFFFD"
	require.Equal(t, want, w.output(t, id, "result"))
	require.Equal(t, want, w.output(t, id, "log"))
}

func testLongOutput(t *testing.T, w *testWorker) {
	id := w.submit(t, `{}`, nil)
	w.run(t, `i=0; while [ $i -lt 6 ]; do head -c 65535 /dev/zero | tr '\0' x; echo; i=$((i+1)); done`)
	got := w.ended(t, id)
	require.Equal(t, "done", got.State, "%+v", got)
	line := strings.Repeat("x", 65535) + "\n"
	same := strings.Repeat(line, 6) == w.output(t, id, "log") // require.Equal would print 400 KiB
	require.True(t, same)
	same = "[earlier output is omitted]\n"+strings.Repeat(line, 3) == w.output(t, id, "result")
	require.True(t, same)
}

func testOutputOfFailure(t *testing.T, w *testWorker) {
	id := w.submit(t, `{}`, nil)
	w.run(t, `i=0; while [ $i -lt 100 ]; do echo "line $i é"; i=$((i+1)); done; exit 3`)
	got := w.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Equal(t, 3, *got.ExitCode)
	require.Equal(t, 100, strings.Count(w.output(t, id, "result"), "é\n"))
	require.Equal(t, w.output(t, id, "log"), w.output(t, id, "result"))
}

func testParameters(t *testing.T, w *testWorker) {
	into := filepath.Join(t.TempDir(), "parameters")
	for _, parameters := range []string{
		`{}`, `{"a":1.50,"b":"2","c":true,"d":"","e":"x|y \"z\"\n","nil":null,"o":{"p":[1,{}]}}`, `{"text":"short"}`,
		`{"long":"` + strings.Repeat(`ab\u00e9\n`, 8<<10) + `"}`,
	} {
		id := w.submit(t, parameters, nil)
		w.run(t, `cat >'`+into+`'`)
		got := w.ended(t, id)
		require.Equal(t, "done", got.State, "%+v", got)
		text, err := os.ReadFile(into)
		require.NoError(t, err)
		require.JSONEq(t, parameters, string(text))
	}
}

func testCancelled(t *testing.T, w *testWorker) {
	begun, ended := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "ended")
	id := w.submit(t, `{}`, nil)
	w.run(t, `trap 'echo x >"`+ended+`"; exit 3' TERM; echo x >'`+begun+`'; while :; do sleep 0.05; done`)
	require.Eventually(t, func() bool { return exists(begun) }, time.Minute, 10*time.Millisecond)
	w.do(t, http.MethodPost, "/api/v1/tasks/"+id+"/cancel", map[string]any{"reason": "enough"})
	require.Eventually(t, func() bool { return exists(ended) }, time.Minute, 10*time.Millisecond, "the command is asked to end")
	require.Equal(t, "cancelled", w.ended(t, id).State)
}

func testSilent(t *testing.T, w *testWorker) {
	id := w.submit(t, `{}`, map[string]any{"timeout_ms": 1000, "retries": 0})
	w.keepAlive = -1
	w.run(t, `trap 'exit 3' TERM; while :; do sleep 0.05; done`)
	got := w.ended(t, id)
	require.Equal(t, "failed", got.State, "%+v", got)
	require.Nil(t, got.ExitCode)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// testServer is a server of the test.
type testServer struct {
	url, token string
	http       *http.Client
}

func startTestServer(t *testing.T, database string) *testServer {
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
	return &testServer{a.URL(), strings.TrimSpace(string(token)), &http.Client{Transport: transport, Timeout: time.Minute}}
}

// do sends a request that must succeed.
func (f *testServer) do(t *testing.T, method, path string, body any) []byte {
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

// testWorker is an agent of a testServer, and the directory of its worker.
type testWorker struct {
	*testServer
	id, own, state string
	keepAlive      time.Duration
	stop           func() // stops the worker that runs
}

func (f *testServer) newWorker(t *testing.T) *testWorker {
	t.Helper()
	w := &testWorker{testServer: f, id: fmt.Sprintf("worker-%x", time.Now().UnixNano()), state: filepath.Join(t.TempDir(), "state"), stop: func() {}}
	f.do(t, http.MethodPost, "/api/v1/agents", map[string]any{
		"id": w.id, "name": w.id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:run"}, "type": "infra", "token_budget": 100_000,
	})
	var made struct{ Token string }
	require.NoError(t, json.Unmarshal(f.do(t, http.MethodPost, "/api/v1/tokens", map[string]any{
		"name": w.id, "agent_id": w.id, "scopes": []string{"messages:send"},
	}), &made))
	w.own = made.Token
	return w
}

// run replaces the worker that runs by one with this script, until the test ends.
func (w *testWorker) run(t *testing.T, script string) {
	t.Helper()
	w.stop()
	cache, unlock, err := openState(w.state)
	require.NoError(t, err)
	r := program.New([]string{"/bin/sh", "-c", script}, &program.Options{Grace: time.Minute, MaxOutput: 256 << 10})
	transport := &http.Transport{}
	a, err := agent.New(w.url, w.own, &agent.Options{
		Cache: cache, Drain: -1, Grace: time.Minute, KeepAlive: w.keepAlive, Client: &http.Client{Transport: transport},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(t, err)
	a.Handle("run", r.Run)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
		unlock()
	})
	t.Cleanup(w.stop)
}

// submit submits a task for the agent and returns its id.
func (w *testWorker) submit(t *testing.T, parameters string, members map[string]any) string {
	t.Helper()
	body := map[string]any{"agent_id": w.id, "capabilities": []string{"run"}, "parameters": json.RawMessage(parameters)}
	for name, value := range members {
		body[name] = value
	}
	var made agent.Task
	require.NoError(t, json.Unmarshal(w.do(t, http.MethodPost, "/api/v1/tasks", body), &made))
	return made.ID
}

func (w *testWorker) task(t *testing.T, id string) (out agent.Task) {
	t.Helper()
	require.NoError(t, json.Unmarshal(w.do(t, http.MethodGet, "/api/v1/tasks/"+id, nil), &out))
	return out
}

func (w *testWorker) ended(t *testing.T, id string) (out agent.Task) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = w.task(t, id)
		return out.Ended()
	}, 3*time.Minute, 20*time.Millisecond, "the task ends")
	return out
}

func (w *testWorker) output(t *testing.T, id, stream string) string {
	t.Helper()
	return string(w.do(t, http.MethodGet, "/api/v1/tasks/"+id+"/output?stream="+stream, nil))
}
