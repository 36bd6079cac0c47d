package v5_test

import (
	"bytes"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/logformat"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/telemetry"
	"comet/models"
	"comet/store"
)

// logFixture is a fixture whose message log and program log can be read.
type logFixture struct {
	*fixture
	messages *messagelog.Log
	log      *bytes.Buffer
}

// testWithLog runs one subtest with such a fixture and a program log of a level.
func testWithLog(t *testing.T, name, level string, fn func(t *testing.T, f *logFixture)) {
	t.Helper()
	testOnDatabases(t, name, func(t *testing.T, inner *fixture) {
		f := &logFixture{fixture: inner, messages: messagelog.New(inner.db.Store, nil), log: new(bytes.Buffer)}
		log, err := telemetry.NewLogger(f.log, &telemetry.LogOptions{Format: "v5", Formats: map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{"v5": logformat.NewHandler}, Level: level})
		require.NoError(t, err)
		f.Protocol = v5.New(inner.work.Orchestrator, inner.db.Store, &v5.Options{Keys: inner.keys, MessageLog: f.messages, Logger: log, Clock: inner.db.Now})
		fn(t, f)
	})
}

// loggedMessages returns the stored messages about a task, each as "FROM>TO TYPE ERR DATA <- the
// same of its cause".
func (f *logFixture) loggedMessages(t *testing.T, name shortid.ID) (out []string) {
	t.Helper()
	id, err := shortid.NewCache(f.db.Store).TaskID(t.Context(), name)
	require.NoError(t, err)
	task, err := f.work.Task(t.Context(), id)
	require.NoError(t, err)
	all, err := f.messages.ByTask(t.Context(), task, "", 100)
	require.NoError(t, err)
	byID := map[string]string{"": ""}
	for _, m := range all {
		require.Equal(t, [2]any{name.Context, name.Task}, [2]any{m.Context, m.Task})
		byID[m.ID] = summary(m)
		text := byID[m.ID]
		if m.ParentID != "" {
			text += " <- " + byID[m.ParentID]
		}
		out = append(out, text)
	}
	return out
}

// summary returns a message without time, level, context and task.
func summary(m messagelog.Message) string {
	text := string(logformat.Line{From: m.From, To: m.To, Type: m.Type, Code: m.Code, Data: m.Data}.Append(nil, m.At, 0))
	return text[strings.LastIndex(text, "] ")+2:]
}

func (f *logFixture) join(t *testing.T, id, address string) {
	t.Helper()
	f.agent(t, id, "dig")
	f.send(t, id, "M1|"+address+">O1|J|T0|-|-|-|0|S0|-|token=0123456789;caps=dig", 0)
}

func TestMessageLog(t *testing.T) {
	t.Parallel()

	testWithLog(t, "has the messages in their order with their causes", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;deep=3", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M5|W1>O1|H|T1|-|-|-|0|S1|-|load=3%", 0)
		f.send(t, "digger", "M6|W1>O1|U|T1|-|R|-|0|S1|-|TOKEN=open-sesame;progress=50%", 0)
		f.send(t, "digger", "M7|W1>O1|C|T1|-|R|-|0|S1|-|options=3,4", 0)
		f.issueKey(t, "digger", false)
		f.send(t, "digger", sign(t, "M8|W1>O1|U|T1|-|R|-|0|S1|-|progress=60%", sharedKey, "00aa"), 0)
		f.send(t, "digger", "M12|W1>O1|S|T1|-|D|-|0|S1|-|pid=M6;result=42", 0)
		require.Equal(t, []string{
			"User>O1 R - call=dig;deep=3",
			"O1>User A - accepted;worker=W1;pid=M1 <- User>O1 R - call=dig;deep=3",
			"O1>W1 R - call=dig;deep=3",
			"W1>O1 U - progress=50%",
			"W1>O1 U - progress=60%",
			"W1>O1 S - pid=M6;result=42 <- W1>O1 U - progress=50%",
			"O1>W1 A - noted;pid=M12 <- W1>O1 S - pid=M6;result=42",
		}, f.loggedMessages(t, shortid.ID{Context: 1, Task: 1}))
		require.Contains(t, f.log.String(), "[S1] [T1] W1>O1 U - -\n", "a signed message")
		require.NotContains(t, f.log.String(), "auth=")
		require.NotContains(t, f.log.String(), "0123456789")
		require.NotContains(t, f.log.String(), "sesame")
	})

	testWithLog(t, "has neither queries nor pieces of a result", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M2|W1>O1|U|T1|-|R|-|0|S1|-|part=1;text=a", 0)
		f.send(t, "digger", "M4|W1>O1|Q|T1|-|R|-|0|S1|-|ref=T1:params", 0)
		f.send(t, "user", "M2|User>O1|Q|T1|-|-|-|0|S1|-|pid=M77", 0)
		f.send(t, "digger", "M5|W1>O1|U|T1|-|R|-|0|S1|-|wood=oak;step=3", 0)
		require.Equal(t, []string{
			"User>O1 R - call=dig;keep",
			"O1>User A - accepted;worker=W1;pid=M1 <- User>O1 R - call=dig;keep",
			"O1>W1 R - call=dig",
			"W1>O1 U - wood=oak;step=3",
		}, f.loggedMessages(t, shortid.ID{Context: 1, Task: 1}))
	})

	testWithLog(t, "has a request while its requester waits", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		ended := make(chan []byte)
		go func() {
			ended <- f.Receive(t.Context(), peer("user"), []byte("M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep"), time.Minute).Body
		}()
		f.receive(t, "digger")
		const accepted = "O1>User A - accepted;worker=W1;pid=M1 <- User>O1 R - call=dig;keep"
		var all []string
		require.Eventually(t, func() bool { // the request and its first reply are stored when it is accepted
			all = f.loggedMessages(t, shortid.ID{Context: 1, Task: 1})
			return len(all) == 3
		}, time.Minute, 5*time.Millisecond)
		require.ElementsMatch(t, []string{"User>O1 R - call=dig;keep", accepted, "O1>W1 R - call=dig"}, all)
		f.send(t, "digger", "M2|W1>O1|S|T1|-|D|-|0|S1|-|42", 0)
		require.Equal(t, 1, bytes.Count(<-ended, []byte("\n")))
		all = f.loggedMessages(t, shortid.ID{Context: 1, Task: 1})
		require.Contains(t, all, "O1>User S - 42 <- User>O1 R - call=dig;keep")
		require.Less(t, slices.Index(all, accepted), slices.Index(all, "W1>O1 S - 42"), "it comes before the result")
		require.Equal(t, 1, strings.Count(strings.Join(all, "\n"), "accepted;"), "and is there once")
		require.Equal(t, 1, strings.Count(f.log.String(), "accepted;"))
	})

	testWithLog(t, "has the subtasks of a task", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.join(t, "helper", "W2")
		f.send(t, "user", "M1|User>W1|R|-|-|N|-|0|-|B900|call=dig", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M2|W1>W2|X|T1|-|R|-|1|S1|B100|call=dig;reason=specialized", 0)
		handoff := f.receive(t, "helper")[0]
		number, _, _ := strings.Cut(handoff, "|")
		f.send(t, "helper", "M1|W2>O1|S|T1|-|D|-|1|S1|-|pid="+number+";7", 0)
		all := f.loggedMessages(t, shortid.ID{Context: 1, Task: 1})
		require.Contains(t, all, "W1>W2 X - call=dig;reason=specialized")
		require.Contains(t, all, "W2>O1 S - pid="+number+";7 <- W1>W2 X - call=dig;reason=specialized", "a forwarded message is stored with its receiver W2")
		id, err := shortid.NewCache(f.db.Store).TaskID(t.Context(), shortid.ID{Context: 1, Task: 1})
		require.NoError(t, err)
		subtasks, err := f.work.Tasks(t.Context(), store.TaskQuery{ParentID: id, Limit: 10})
		require.NoError(t, err)
		require.Len(t, subtasks, 1)
		stored, err := f.messages.ByTask(t.Context(), subtasks[0].Task, "", 100)
		require.NoError(t, err)
		require.Len(t, stored, 5, "the X twice, the S, and the replies")
		for _, m := range stored {
			require.Equal(t, 1, m.Depth)
		}
	})
}

func TestProgramLog(t *testing.T) {
	t.Parallel()
	converse := func(t *testing.T, f *logFixture) {
		t.Helper()
		f.join(t, "digger", "W1")
		f.send(t, "digger", "M5|W1>O1|H|T0|-|-|-|0|S0|-|load=3%", 0)
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M6|W1>O1|E|T1|-|F|E33|0|S1|-|desc=no spade", 0)
		f.send(t, "user", "nonsense", 0)
	}
	// logLines returns the lines of the program log without their time.
	logLines := func(f *logFixture) (out []string) {
		for l := range strings.Lines(f.log.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(l), "] ")
			out = append(out, rest)
		}
		return out
	}

	testWithLog(t, "has every message in the format of the document", "debug", func(t *testing.T, f *logFixture) {
		converse(t, f)
		require.Equal(t, []string{
			"[INFO] [S0] [T0] W1>O1 J - caps=dig",
			"[INFO] [S0] [T0] O1>W1 A - registered;id=W1;status=active;version=V5;pid=M1",
			"[DEBUG] [S0] [T0] W1>O1 H - load=3%",
			"[INFO] [-] [-] User>O1 R - call=dig",
			"[INFO] [S1] [T1] O1>User A - accepted;worker=W1;pid=M1",
			"[INFO] [S1] [T1] O1>W1 R - call=dig",
			"[WARN] [S1] [T1] W1>O1 E E33 desc=no spade",
			"[INFO] [S1] [T1] O1>W1 A - noted;pid=M6",
			"[WARN] [-] [-] O1>User E E10 desc=invalid message format;details=the message has 1 segment, not 11, or 8 in …",
		}, logLines(f))
	})
	testWithLog(t, "names the authenticated sender of a rejected message", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.issueKey(t, "digger", false)
		f.send(t, "digger", "M2|W9>O1|U|T1|-|R|-|0|S1|-|note=first", 0)
		f.send(t, "user", "M2|W1>O1|U|T1|-|R|-|0|S1|-|note=second", 0)
		remote := protocol.Peer{Principal: principal("digger"), Remote: true}
		f.Receive(t.Context(), remote, []byte(sign(t, "M2|W1>O1|U|T1|-|R|-|0|S1|-|note=third", "another", "00aa")), 0)
		require.Equal(t, []string{
			"[INFO] [S1] [T1] W1>O1 U - -",
			"[WARN] [S1] [T1] O1>W1 E E13 reason=from;desc=FROM must be W1, the address of the sender, not W9;pid=M2",
			"[INFO] [S1] [T1] User>O1 U - -",
			"[WARN] [S1] [T1] O1>User E E13 reason=from;desc=the token belongs to no agent: FROM must be User, not W1;pid=M2",
			"[INFO] [S1] [T1] - U - -",
		}, logLines(f)[2:7])
	})
	testWithLog(t, "has neither parameters nor results at the level info", "info", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.send(t, "user", `M1|User>O1|R|-|-|N|-|0|-|-|call=dig;params=a:secret-1,b:2;c="secret-2";secret-3;retry=1;max=2`, 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M2|W1>O1|C|T1|-|R|-|0|S1|-|question=secret-4;options=a,b", 0)
		f.send(t, "user", "M3|User>O1|C|T1|-|R|-|0|S1|-|answer=secret-5", 0)
		f.send(t, "digger", "M4|W1>O1|U|T1|-|R|-|0|S1|-|step=secret-6", 0)
		f.send(t, "digger", "M5|W1>O1|S|T1|-|D|-|0|S1|-|secret-7", 0)
		f.send(t, "user", "M6|User>O1|Q|T1|-|-|-|0|S1|-|ref=T1:raw", 0)
		require.NotContains(t, f.log.String(), "secret")
		require.Contains(t, f.log.String(), "User>O1 R - call=dig\n")
	})
	testWithLog(t, "has heartbeats at the level debug only", "info", func(t *testing.T, f *logFixture) {
		converse(t, f)
		require.NotContains(t, f.log.String(), " H - ")
	})
	testWithLog(t, "has only errors at the level warn", "warn", func(t *testing.T, f *logFixture) {
		converse(t, f)
		require.Len(t, logLines(f), 2)
		require.NotContains(t, f.log.String(), "INFO")
	})
}

// TestEvents: the events of a task become V5 messages, whichever protocol its agents speak.
func TestEvents(t *testing.T) {
	t.Parallel()
	// eventLines returns all events of tasks, without their time.
	eventLines := func(t *testing.T, f *logFixture) (out []string) {
		t.Helper()
		tasks, err := f.work.Tasks(t.Context(), store.TaskQuery{Limit: 100})
		require.NoError(t, err)
		for i := len(tasks) - 1; i >= 0; i-- {
			all, err := f.db.Events(t.Context()).Timeline(tasks[i].ID, 100)
			require.NoError(t, err)
			for _, e := range all {
				line, err := f.Event(t.Context(), e)
				require.NoError(t, err)
				for each := range strings.Lines(line) {
					_, rest, _ := strings.Cut(strings.TrimSuffix(each, "\n"), "] ")
					out = append(out, rest)
				}
			}
		}
		return out
	}

	testWithLog(t, "equal the messages of V5 agents", "debug", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;deep=3", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M2|W1>O1|A|T1|-|R|-|0|S1|-|-", 0)
		f.send(t, "digger", "M3|W1>O1|U|T1|-|R|-|0|S1|-|progress=50%", 0)
		f.send(t, "digger", "M4|W1>O1|C|T1|-|R|-|0|S1|-|question=how deep?;options=3,4", 0)
		f.send(t, "user", "M2|User>O1|C|T1|-|R|-|0|S1|-|choice=opt2", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M5|W1>O1|E|T1|-|F|E33|0|S1|-|desc=no spade;path=shed", 0)
		events := eventLines(t, f)
		require.Equal(t, []string{
			"[INFO] [S1] [T1] User>O1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] O1>W1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] W1>O1 A - -",
			"[INFO] [S1] [T1] W1>O1 U - progress=50%",
			"[INFO] [S1] [T1] W1>O1 C - question=how deep?;options=3,4",
			"[INFO] [S1] [T1] O1>W1 C - answer=4",
			"[WARN] [S1] [T1] W1>O1 E E33 desc=no spade;path=shed",
		}, events)
		for _, line := range events[1:] {
			require.Contains(t, f.log.String(), line+"\n")
		}
	})

	testWithLog(t, "have V5 names and codes for other protocols", "warn", func(t *testing.T, f *logFixture) {
		f.agent(t, "digger", "dig")
		_, err := f.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "websocket", Concurrency: 5})
		require.NoError(t, err)
		submit := func(parameters string) string {
			submitted, err := f.work.Submit(t.Context(), principal("user"), orchestrator.Submission{
				Capabilities: []string{"dig"}, Parameters: []byte(parameters), Override: orchestrator.Override{Retries: new(0)},
			}, nil)
			require.NoError(t, err)
			return submitted.Task.ID
		}
		done, saturated, cancelled := submit(`{"deep":3}`), submit(`{"deep":{"at":4}}`), submit(`{}`)
		_, err = f.work.Complete(t.Context(), "digger", done, orchestrator.Result{Output: []byte("a|hole\n")})
		require.NoError(t, err)
		_, err = f.work.Complete(t.Context(), "digger", saturated, orchestrator.Result{Failure: orchestrator.FailureSaturated, Text: "too much"})
		require.NoError(t, err)
		_, err = f.work.Cancel(t.Context(), cancelled, "no need", nil)
		require.NoError(t, err)
		require.Equal(t, []string{
			"[INFO] [S1] [T1] User>O1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] O1>W1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] W1>O1 S - src=#REF:T1:raw;bytes=7",
			"[INFO] [S2] [T1] User>O1 R - call=dig;params=#REF:T1:params",
			"[INFO] [S2] [T1] O1>W1 R - call=dig;params=#REF:T1:params",
			"[WARN] [S2] [T1] O1>User E E31 desc=worker busy;details=too much",
			"[INFO] [S3] [T1] User>O1 R - call=dig",
			"[INFO] [S3] [T1] O1>W1 R - call=dig",
			"[INFO] [S3] [T1] O1>W1 U - reason=no need",
		}, eventLines(t, f))
	})

	testWithLog(t, "include hand-offs and retries", "warn", func(t *testing.T, f *logFixture) {
		f.join(t, "digger", "W1")
		f.join(t, "helper", "W2")
		f.send(t, "user", "M1|User>W1|R|-|-|N|-|0|-|-|call=dig", 0)
		f.receive(t, "digger")
		f.send(t, "digger", "M2|W1>W2|X|T1|-|R|-|1|S1|-|call=dig;reason=specialized", 0)
		f.receive(t, "helper")
		f.send(t, "helper", "M1|W2>W1|E|T1|-|F|E32|1|S1|-|desc=no space", 0)
		events := strings.Join(eventLines(t, f), "\n")
		require.Contains(t, events, "[INFO] [S1] [T1] W1>O1 U - handoff=W2\n")
		require.Contains(t, events, "[INFO] [S1] [T1] W1>W2 X - call=dig;reason=specialized\n")
		require.Contains(t, events, "[WARN] [S1] [T1] W2>O1 E E32 desc=")
	})

	testWithLog(t, "have their type where the task was purged", "warn", func(t *testing.T, f *logFixture) {
		at := time.UnixMilli(14523)
		line, err := f.Event(t.Context(), models.Event{Type: events.TaskFailed, Key: "gone", At: at, Data: []byte(`{"task_id":"gone"}`)})
		require.NoError(t, err)
		require.Equal(t, "[14523] [INFO] [-] [-] - - - task.failed gone", line)
		line, err = f.Event(t.Context(), models.Event{Type: events.WorkerChanged, Key: "digger", At: at, Data: []byte(`{}`)})
		require.NoError(t, err)
		require.Equal(t, "[14523] [INFO] [-] [-] - - - worker.changed digger", line)
	})
}
