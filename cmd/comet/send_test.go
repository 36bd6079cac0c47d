package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
)

func TestSendParameters(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"b": 1e2, "a": {"x": 1}}`), 0o600))
	s := &session{in: func() ([]byte, error) { return []byte(`{"in": true}`), nil }}
	for name, c := range map[string]struct {
		file  string
		pairs []string
		want  string
	}{
		"none are an empty object":                    {"", nil, `{}`},
		"text is text, also where it looks like JSON": {"", []string{"n=1", "e=", "eq=a=b"}, `{"e":"","eq":"a=b","n":"1"}`},
		"JSON is as it was written":                   {"", []string{`v:={"a":[1.50]}`, "n:=null"}, `{"n":null,"v":{"a":[1.50]}}`},
		"a file's come first and may be replaced":     {file, []string{"a=new", "c:=2"}, `{"a":"new","b":1e2,"c":2}`},
		"the last one counts":                         {"", []string{"a=1", "a=2"}, `{"a":"2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := s.parameters(c.file, c.pairs)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	for _, bad := range []string{"name", "=x", ":=1", "a:={", "a:=text"} {
		_, err := s.parameters("", []string{bad})
		require.Error(t, err, bad)
		require.Equal(t, exitUsage, exitCode(err))
	}
	got, err := s.parameters("-", nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"in":true}`, string(got))
}

func TestSendHints(t *testing.T) {
	t.Parallel()
	got, err := parseHints([]string{"max_duration_seconds=60", "max_memory_mb=512", "max_tokens=1000", "region=eu", "shards=3"})
	require.NoError(t, err)
	require.Equal(t, agent.Hints{
		MaxDuration: time.Minute, MaxMemoryMB: 512, MaxTokens: 1000,
		Other: map[string]json.RawMessage{"region": json.RawMessage(`"eu"`), "shards": json.RawMessage("3")},
	}, got)
	for _, bad := range []string{"max_memory_mb=0", "max_tokens=1.5", "max_duration_seconds=1m", "x"} {
		_, err := parseHints([]string{bad})
		require.Equal(t, exitUsage, exitCode(err), bad)
	}
}

func TestSendThroughARestart(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, envelopeOf("error", `{"error_code":5002,"error_message":"Agent unavailable","error_context":{"agent_id":"orchestrator","last_heartbeat":null},"retryable":true}`))
			return
		}
		_, _ = io.WriteString(w, envelopeOf("work_result", `{"task_id":"550e8400-e29b-41d4-a716-446655440004","status":"success","exit_code":0,"output":"hello"}`))
	}))
	t.Cleanup(server.Close)
	c, err := agent.NewClient(server.URL, "secret", server.Client())
	require.NoError(t, err)
	var out, notes bytes.Buffer
	s := &session{out: output{w: &out, format: formatTable}, messages: &notes}
	require.NoError(t, s.sendRequest(t.Context(), c, &agent.Request{WorkType: "echo"}, 0, false))
	require.Equal(t, "hello\n", out.String())
	require.Equal(t, 2, asked)
}

func TestSendKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const log = "fetching\nbuilding\nlinking\n"
	type report struct {
		attempt, progress, log int
		state, step            string
	}
	reports := []report{
		{0, 0, 0, "new", ""}, {1, 10, 9, "running", "fetch"}, {1, 40, 18, "running", "build"}, {1, 60, 18, "running", "test"}, {1, 60, 26, "done", "test"},
	}
	version, ended := 0, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/output"): // the whole log has arrived already
			_, _ = io.WriteString(w, log)
		case r.Method == http.MethodGet:
			now := reports[version]
			_, _ = fmt.Fprintf(w, `{"id":"x","state":%q,"attempt":%d,"progress":%d,"step_name":%q,"log":{"bytes":%d},"version":%d}`,
				now.state, now.attempt, now.progress, now.step, now.log, version)
			if version++; version == len(reports) {
				close(ended)
			}
		case r.Header.Get("Prefer") == "":
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, envelopeOf("work_status", `{"task_id":"550e8400-e29b-41d4-a716-446655440004","status":"running","progress_percent":0}`))
		default:
			<-ended
			_, _ = io.WriteString(w, envelopeOf("work_result", `{"task_id":"550e8400-e29b-41d4-a716-446655440004","status":"success","exit_code":0,"output":"all done"}`))
		}
	}))
	t.Cleanup(server.Close)
	c, err := agent.NewClient(server.URL, "secret", server.Client())
	require.NoError(t, err)
	var both bytes.Buffer
	s := &session{out: output{w: &both, format: formatTable}, messages: &both}
	r := &agent.Request{WorkType: "build", TaskID: uuid.New()}
	require.NoError(t, s.sendRequest(t.Context(), c, r, 0, false))
	require.Equal(t, "task "+r.TaskID.String()+"\n 10%  fetch\nfetching\n 40%  build\nbuilding\n 60%  test\nlinking\nall done\n", both.String())
}

// envelopeOf is a response of the server.
func envelopeOf(kind, payload string) string {
	return `{"protocol_version":"1.0","message_id":"550e8400-e29b-41d4-a716-446655440001","from_agent":"orchestrator","to_agent":"infra",
		"timestamp":"2026-01-19T04:21:04Z","trace_id":"550e8400-e29b-41d4-a716-446655440002","request_id":"550e8400-e29b-41d4-a716-446655440003",
		"type":"` + kind + `","payload":` + payload + `}`
}

func TestSendEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reply agent.Response
		want  int
	}{
		{"success", agent.Response{Ended: true, Succeeded: true}, 0},
		{"a failure has the work's exit code", agent.Response{Ended: true, ExitCode: 7}, 7},
		{"one that no exit code can be is 99", agent.Response{Ended: true, ExitCode: 3000}, 99},
		{"a code of this command is 99", agent.Response{Ended: true, ExitCode: 103}, 99},
		{"the worker's time limit is 124", agent.Response{Ended: true, ExitCode: 124}, 124},
		{"a killed command's, which shells use themselves, too", agent.Response{Ended: true, ExitCode: 137}, 99},
		{"5001 is a timeout", agent.Response{Ended: true, Code: 5001}, 124},
		{"5002 is an unavailable agent", agent.Response{Ended: true, Code: 5002}, 107},
		{"5003 is not valid", agent.Response{Ended: true, Code: 5003}, 106},
		{"5004 is not allowed", agent.Response{Ended: true, Code: 5004}, 103},
		{"5005 is a limit", agent.Response{Ended: true, Code: 5005}, 107},
		{"5006 is unsupported work", agent.Response{Ended: true, Code: 5006}, 106},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, exitCode(errorOf(&agent.Request{}, c.reply)))
		})
	}
}

func TestSendCountsTheOfferedWorkTypes(t *testing.T) {
	t.Parallel()
	offered := make([]string, 23)
	for i := range offered {
		offered[i] = fmt.Sprintf("work-%02d", i)
	}
	details, err := json.Marshal(map[string]any{"supported_types": offered})
	require.NoError(t, err)
	text := failureText(&agent.Request{WorkType: "wrk-21"}, agent.Response{Code: unsupportedWork, Context: details})
	require.Contains(t, text, ", work-19 and 3 more; did you mean work-21?")
}

func TestDisplay(t *testing.T) {
	t.Parallel()
	setup := func() (d *display, out, notes *bytes.Buffer) {
		out, notes = &bytes.Buffer{}, &bytes.Buffer{}
		return newDisplay(out, notes, true), out, notes
	}

	t.Run("prints a repeated result once", func(t *testing.T) {
		t.Parallel()
		d, out, _ := setup()
		_, err := d.Write([]byte("one\ntwo"))
		require.NoError(t, err)
		require.NoError(t, d.result("one\ntwo"))
		require.NoError(t, d.result("two\n"))
		require.Equal(t, "one\ntwo", out.String())
		require.NoError(t, d.result("one\ntwo\nand why"))
		require.Equal(t, "one\ntwo\nand why\n", out.String())
		require.NoError(t, d.result("something else"))
		require.Equal(t, "one\ntwo\nand why\nsomething else\n", out.String())
	})

	t.Run("prints each step once without a terminal", func(t *testing.T) {
		t.Parallel()
		d, _, notes := setup()
		for _, task := range []agent.Task{
			{State: "new", WaitingFor: "worker"}, {State: "running", Progress: 10, StepName: "a"}, {State: "running", Progress: 10, StepName: "a"},
			{State: "running", Progress: 50, StepName: "\x1b[2J"}, {State: "done", Progress: 100, StepName: "a"},
		} {
			require.NoError(t, d.task(task))
		}
		require.Equal(t, "  0%  waiting for a worker\n 10%  a\n 50%  \\u001b[2J\n", notes.String())
	})

	t.Run("says once that no worker is connected, and how to start one", func(t *testing.T) {
		t.Parallel()
		for _, shown := range []bool{true, false} { // also with -o json, which shows no progress
			var notes bytes.Buffer
			d := newDisplay(io.Discard, &notes, shown)
			d.missing = workerCommand(&agent.Request{To: "infra", WorkType: "run"})
			for range 2 {
				require.NoError(t, d.task(agent.Task{State: "new", WaitingFor: "retry"}))
			}
			const note = "No worker for the task is connected; the task fails if none connects while it is retried. Start one: comet worker --type infra --capability run -- COMMAND\n"
			require.True(t, strings.HasPrefix(notes.String(), note), notes.String())
			require.Equal(t, 1, strings.Count(notes.String(), "No worker"))
		}
	})

	t.Run("does not say so while the workers are busy or after a failed attempt", func(t *testing.T) {
		t.Parallel()
		d, _, notes := setup()
		d.missing = "no worker"
		require.NoError(t, d.task(agent.Task{State: "new", WaitingFor: "worker"}))
		require.NoError(t, d.task(agent.Task{State: "new", WaitingFor: "retry", AgentID: "a"}))
		require.NotContains(t, notes.String(), "No worker")
	})

	t.Run("clears the bar before output on a terminal", func(t *testing.T) {
		t.Parallel()
		d, out, notes := setup()
		d.drawing, d.out = true, &plainWriter{to: out}
		require.NoError(t, d.task(agent.Task{State: "running", Progress: 50, StepName: "a"}))
		_, err := d.Write([]byte("line\tof \x1b[2Joutput\n"))
		require.NoError(t, err)
		d.end()
		const wipe, bar = "\r\x1b[K", "[############------------]  50%  a"
		require.Equal(t, wipe+bar+wipe+wipe+bar+wipe, notes.String())
		require.Equal(t, "line\tof \\u001b[2Joutput\n", out.String())
	})
}
