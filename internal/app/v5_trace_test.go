package app_test

import (
	"bufio"
	"bytes"
	"context"
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

// postLines posts lines and returns the replies and the id of the created task.
func (c *client) postLines(t *testing.T, lines string) (answer string, task string) {
	t.Helper()
	resp := c.Do(t, http.MethodPost, "/api/v5/messages", lines, "Content-Type", "text/plain")
	return string(resp.Body), strings.TrimPrefix(resp.Header.Get("Location"), "/api/v1/tasks/")
}

// TestV5MessageLog (PROTOCOL_V5 §10): messages over TCP and HTTP are in the message log of the
// task, can be referenced at once, and survive a restart. They are also in the server's log and in
// the event stream.
func TestV5MessageLog(t *testing.T) {
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
	log, err := telemetry.NewLogger(&text, &telemetry.LogOptions{Format: "v5", Formats: app.LogFormats()})
	require.NoError(t, err)
	func() {
		a := startWithV5(t, cfg, &app.Options{Logger: log})
		defer func() { require.NoError(t, a.Stop(context.Background())) }()
		c := newClient(t, a.URL(), adminToken(t, cfg.Data))
		worker := dialTCP(t, a.V5Addr())
		require.Equal(t, "W1", worker.join(";name=digger;caps=custom:dig"))
		eventually(t, func() bool { return c.online(t, "v5-digger") }, "the agent is online")
		accepted, _ := c.postLines(t, "M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;keep")
		require.Contains(t, accepted, "|A|T1|P1|N|-|0|S1|-|accepted")
		require.Contains(t, worker.next(), "|O1>W1|R|T1|")
		for range 20 { // even immediately after it was sent
			worker.send("M3|W1>O1|U|T1|P1|R|-|0|S1|-|progress=1%;pid=M2")
			worker.send("M4|W1>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3")
			require.Contains(t, worker.next(), `|S|-|-|D|-|0|S1|-|page=1;of=1;text="progress=1%;pid=M2"`)
		}
		worker.send("M5|W1>O1|E|T1|P1|F|E33|0|S1|-|desc=no spade;pid=M3")
		require.Contains(t, worker.next(), "|A|")

		stream := c.events(t, "/api/v1/events?last_event_id=0&format=v5&types=task.created,task.failed")
		require.Regexp(t, `^\[\d{13}\] \[INFO\] \[S1\] \[T1\] User>O1 R - call=dig$`, <-stream)
		require.Regexp(t, `^\[\d{13}\] \[INFO\] \[S1\] \[T1\] O1>W1 R - call=dig$`, <-stream)
		require.Regexp(t, `^\[\d{13}\] \[WARN\] \[S1\] \[T1\] W1>O1 E E33 desc=no spade;pid=M3$`, <-stream)
	}()
	require.Regexp(t, `(?m)^\[\d{13}\] \[WARN\] \[S1\] \[T1\] W1>O1 E E33 desc=no spade;pid=M3$`, text.String())

	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	tasks := get[struct{ Tasks []struct{ ID string } }](t, c, "/api/v1/tasks").Tasks
	require.Len(t, tasks, 1)
	type loggedMessage struct {
		ID, From, To, Type, Data string
		PID                      *int
		ParentID                 *string `json:"parent_id"`
	}
	all := get[struct{ Messages []loggedMessage }](t, c, "/api/v1/tasks/"+tasks[0].ID+"/messages").Messages
	require.Len(t, all, 25, "R, A, R, 20 U, E, A")
	require.Equal(t, "call=dig;keep", all[0].Data)
	accepted := slices.IndexFunc(all, func(m loggedMessage) bool { return m.Type == "A" }) // the request may have reached the worker before
	require.Equal(t, all[0].ID, *all[accepted].ParentID)
	require.Equal(t, 2, *all[3].PID)
	require.Nil(t, all[3].ParentID)
	failed := all[23]
	require.Equal(t, "E", failed.Type)
	require.Equal(t, all[22].ID, *failed.ParentID, "the newest message with the number")
	answer, _ := c.postLines(t, "M2|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1")
	require.Contains(t, answer, `text="call=dig;keep"`)
}

// events returns the data of an event stream until the test ends.
func (c *client) events(t *testing.T, path string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.Open(ctx, http.MethodGet, path, "")
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

// TestV5Traceparent (Trace Context §3.2): a task submitted by a line belongs to the trace of the
// HTTP request.
func TestV5Traceparent(t *testing.T) {
	t.Parallel()
	cfg := configured(t, storetest.Databases()[0])
	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	worker := dialTCP(t, a.V5Addr())
	require.Equal(t, "W1", worker.join(";name=digger;caps=custom:dig"))
	eventually(t, func() bool { return c.online(t, "v5-digger") }, "the agent is online")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	resp := c.Do(t, http.MethodPost, "/api/v5/messages", "M1|User>O1|R|-|P1|N|-|0|-|-|call=dig", "Content-Type", "text/plain", "Traceparent", parent)
	require.Equal(t, http.StatusAccepted, resp.Status)
	shown := get[struct{ Request struct{ Traceparent string } }](t, c, resp.Header.Get("Location"))
	require.Equal(t, parent, shown.Request.Traceparent)
}
