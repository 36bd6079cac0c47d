package app_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
	"comet/store/storetest"
)

// postLines sends lines to the door for them and returns what it answers.
func (c *client) postLines(t *testing.T, lines string) (answer string, task string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/api/v5/messages", strings.NewReader(lines))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text), strings.TrimPrefix(resp.Header.Get("Location"), "/api/v1/tasks/")
}

// TestTheTraceOfLines (PROTOCOL_V5 §10): what is said over TCP and HTTP is in the task's
// trace, can be referred to at once, is there after a restart, in the log, and in the
// stream of events as lines.
func TestTheTraceOfLines(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testV5Messages(t, configured(t, name))
		})
	}
}

func testV5Messages(t *testing.T, cfg config.Config) {
	t.Helper()
	var text bytes.Buffer
	log, err := telemetry.NewLogger(&text, &telemetry.LogOptions{Format: "v5"})
	require.NoError(t, err)
	func() {
		a := startWithV5(t, cfg, &app.Options{Logger: log})
		defer func() { require.NoError(t, a.Stop(context.Background())) }()
		c := newClient(t, a.URL(), adminToken(t, cfg.Data))
		worker := dialTCP(t, a.V5Addr())
		require.Equal(t, "W1", worker.join(";name=digger;caps=custom:dig"))
		eventually(t, func() bool { return c.online(t, "v5-digger") }, "it is there")
		accepted, _ := c.postLines(t, "M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;keep")
		require.Contains(t, accepted, "|A|T1|P1|N|-|0|S1|-|accepted")
		require.Contains(t, worker.next(), "|O1>W1|R|T1|")
		for range 20 { // however soon after it was said
			worker.send("M3|W1>O1|U|T1|P1|R|-|0|S1|-|progress=1%;pid=M2")
			worker.send("M4|W1>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3")
			require.Contains(t, worker.next(), `|S|-|-|D|-|0|S1|-|page=1;of=1;text="progress=1%;pid=M2"`)
		}
		worker.send("M5|W1>O1|E|T1|P1|F|E33|0|S1|-|desc=no spade;pid=M3")
		require.Contains(t, worker.next(), "|A|")

		stream := c.events(t, "/api/v1/events?last_event_id=0&format=v5&types=task.created,task.failed")
		require.Regexp(t, `^\[\d{13}\] \[INFO\] \[S1\] \[T1\] User>O1 R - call=dig$`, <-stream)
		require.Regexp(t, `^\[\d{13}\] \[WARN\] \[S1\] \[T1\] W1>O1 E E33 desc=no spade;pid=M3$`, <-stream)
	}()
	require.Regexp(t, `(?m)^\[\d{13}\] \[WARN\] \[S1\] \[T1\] W1>O1 E E33 desc=no spade;pid=M3$`, text.String())

	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	tasks := get[struct{ Tasks []struct{ ID string } }](t, c, "/api/v1/tasks").Tasks
	require.Len(t, tasks, 1)
	type line struct {
		ID, From, To, Type, Data string
		PID                      *int
		ParentID                 *string `json:"parent_id"`
	}
	all := get[struct{ Messages []line }](t, c, "/api/v1/tasks/"+tasks[0].ID+"/messages").Messages
	require.Len(t, all, 25, "R, A, R, 20 U, E, A")
	require.Equal(t, "call=dig;keep", all[0].Data)
	accepted := slices.IndexFunc(all, func(l line) bool { return l.Type == "A" }) // its worker may have been told before
	require.Equal(t, all[0].ID, *all[accepted].ParentID)
	require.Equal(t, 2, *all[3].PID)
	require.Nil(t, all[3].ParentID)
	failed := all[23]
	require.Equal(t, "E", failed.Type)
	require.Equal(t, all[22].ID, *failed.ParentID, "the newest of those so numbered")
	answer, _ := c.postLines(t, "M2|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1")
	require.Contains(t, answer, `text="call=dig;keep"`)
}

// events are the data of a stream, until the test ends.
func (c *client) events(t *testing.T, path string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	out, read := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(read)
		defer close(out)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				out <- data
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
		<-read
	})
	return out
}
