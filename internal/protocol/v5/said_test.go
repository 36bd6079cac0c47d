package v5_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/telemetry"
	"comet/models"
)

// spoken is a house whose journal and log can be read.
type spoken struct {
	*house
	messages *messagelog.Log
	log      *bytes.Buffer
}

// listened runs one case in such a house, with a log of a level.
func listened(t *testing.T, name, level string, fn func(t *testing.T, h *spoken)) {
	t.Helper()
	rule(t, name, func(t *testing.T, h *house) {
		s := &spoken{house: h, messages: messagelog.New(h.db.Store, nil), log: new(bytes.Buffer)}
		log, err := telemetry.NewLogger(s.log, &telemetry.LogOptions{Format: "v5", Level: level})
		require.NoError(t, err)
		s.Protocol = v5.New(h.work, &v5.Options{Keys: h.keys, MessageLog: s.messages, Logger: log, Clock: h.db.Now})
		fn(t, s)
	})
}

// lines are those about T1 in S1, each as "FROM>TO TYPE ERR DATA <- the same of its cause".
func (s *spoken) lines(t *testing.T, h models.ShortID) (out []string) {
	t.Helper()
	id, err := s.db.TaskByShortID(t.Context(), h)
	require.NoError(t, err)
	task, err := s.work.Task(t.Context(), id)
	require.NoError(t, err)
	all, err := s.messages.ByTask(t.Context(), task, "", 100)
	require.NoError(t, err)
	byID := map[string]string{"": ""}
	for _, l := range all {
		require.Equal(t, [2]any{h.Context, h.Task}, [2]any{l.Context, l.Task})
		byID[l.ID] = shortOf(l)
		line := byID[l.ID]
		if l.ParentID != "" {
			line += " <- " + byID[l.ParentID]
		}
		out = append(out, line)
	}
	return out
}

// shortOf is a line without its head.
func shortOf(l models.LoggedMessage) string {
	text := string(telemetry.V5Line{From: l.From, To: l.To, Type: l.Type, Code: l.Code, Data: l.Data}.Append(nil, l.At, 0))
	return text[strings.LastIndex(text, "] ")+2:]
}

func (s *spoken) join(t *testing.T, id, address string) {
	t.Helper()
	s.agent(t, id, "dig")
	s.says(t, id, "M1|"+address+">O1|J|T0|-|-|-|0|S0|-|token=0123456789;caps=dig", 0)
}

func TestTheJournal(t *testing.T) {
	t.Parallel()

	listened(t, "KeepsWhatWasSaidInOrderWithItsCause", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.says(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;deep=3", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M5|W1>O1|H|T1|-|-|-|0|S1|-|load=3%", 0)
		h.says(t, "digger", "M6|W1>O1|U|T1|-|R|-|0|S1|-|TOKEN=open-sesame;progress=50%", 0)
		h.says(t, "digger", "M7|W1>O1|C|T1|-|R|-|0|S1|-|options=3,4", 0)
		h.signs(t, "digger", false)
		h.says(t, "digger", sign(t, "M8|W1>O1|U|T1|-|R|-|0|S1|-|progress=60%", theKey, "00aa"), 0)
		h.says(t, "digger", "M12|W1>O1|S|T1|-|D|-|0|S1|-|pid=M6;result=42", 0)
		require.Equal(t, []string{
			"User>O1 R - call=dig;deep=3",
			"O1>User A - accepted;worker=W1 <- User>O1 R - call=dig;deep=3",
			"O1>W1 R - call=dig;deep=3",
			"W1>O1 U - progress=50%",
			"W1>O1 U - progress=60%",
			"W1>O1 S - pid=M6;result=42 <- W1>O1 U - progress=50%",
			"O1>W1 A - noted <- W1>O1 S - pid=M6;result=42",
		}, h.lines(t, models.ShortID{Context: 1, Task: 1}))
		require.Contains(t, h.log.String(), "W1>O1 U - progress=60%\n", "that was signed")
		require.NotContains(t, h.log.String(), "auth=")
		require.NotContains(t, h.log.String(), "0123456789")
		require.NotContains(t, h.log.String(), "sesame")
	})

	listened(t, "HasNeitherQuestionsNorPieces", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.says(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M2|W1>O1|U|T1|-|R|-|0|S1|-|part=1;text=a", 0)
		h.says(t, "digger", "M4|W1>O1|Q|T1|-|R|-|0|S1|-|ref=T1:params", 0)
		h.says(t, "user", "M2|User>O1|Q|T1|-|-|-|0|S1|-|pid=M77", 0)
		h.says(t, "digger", "M5|W1>O1|U|T1|-|R|-|0|S1|-|wood=oak;step=3", 0)
		require.Equal(t, []string{
			"User>O1 R - call=dig;keep",
			"O1>User A - accepted;worker=W1 <- User>O1 R - call=dig;keep",
			"O1>W1 R - call=dig",
			"W1>O1 U - wood=oak;step=3",
		}, h.lines(t, models.ShortID{Context: 1, Task: 1}))
	})

	listened(t, "HasARequestAlsoWhileItsAskerWaits", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		ended := make(chan []byte)
		go func() {
			ended <- h.Receive(t.Context(), principal("user"), []byte("M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep"), time.Minute).Body
		}()
		h.told(t, "digger")
		const accepted = "O1>User A - accepted;worker=W1 <- User>O1 R - call=dig;keep"
		var all []string
		require.Eventually(t, func() bool { // its asker's line, and what answers it, are kept when it is taken on
			all = h.lines(t, models.ShortID{Context: 1, Task: 1})
			return len(all) == 3
		}, time.Minute, time.Millisecond)
		require.ElementsMatch(t, []string{"User>O1 R - call=dig;keep", accepted, "O1>W1 R - call=dig"}, all)
		h.says(t, "digger", "M2|W1>O1|S|T1|-|D|-|0|S1|-|42", 0)
		require.Equal(t, 1, bytes.Count(<-ended, []byte("\n")))
		all = h.lines(t, models.ShortID{Context: 1, Task: 1})
		require.Contains(t, all, "O1>User S - 42 <- User>O1 R - call=dig;keep")
		require.Less(t, slices.Index(all, accepted), slices.Index(all, "W1>O1 S - 42"), "it was said before the result")
		require.Equal(t, 1, strings.Count(strings.Join(all, "\n"), "accepted;"), "and once")
		require.Equal(t, 1, strings.Count(h.log.String(), "accepted;"))
	})

	listened(t, "HasThePartsOfATask", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.join(t, "helper", "W2")
		h.says(t, "user", "M1|User>W1|R|-|-|N|-|0|-|B900|call=dig", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M2|W1>W2|X|T1|-|R|-|1|S1|B100|call=dig;reason=specialized", 0)
		given := h.told(t, "helper")[0]
		number, _, _ := strings.Cut(given, "|")
		h.says(t, "helper", "M1|W2>O1|S|T1|-|D|-|1|S1|-|pid="+number+";7", 0)
		whole := h.lines(t, models.ShortID{Context: 1, Task: 1})
		require.Contains(t, whole, "W1>W2 X - call=dig;reason=specialized")
		require.Contains(t, whole, "W2>O1 S - pid="+number+";7 <- W1>W2 X - call=dig;reason=specialized", "what O1 passes on was said to W2, whoever it is from")
		id, err := h.db.TaskByShortID(t.Context(), models.ShortID{Context: 1, Task: 1})
		require.NoError(t, err)
		parts, err := h.work.Tasks(t.Context(), models.TaskQuery{ParentID: id, Limit: 10})
		require.NoError(t, err)
		require.Len(t, parts, 1)
		lines, err := h.messages.ByTask(t.Context(), parts[0], "", 100)
		require.NoError(t, err)
		require.Len(t, lines, 5, "the X twice, the S, and what they were answered")
		for _, l := range lines {
			require.Equal(t, 1, l.Depth)
		}
	})
}

func TestTheLog(t *testing.T) {
	t.Parallel()
	talk := func(t *testing.T, h *spoken) {
		t.Helper()
		h.join(t, "digger", "W1")
		h.says(t, "digger", "M5|W1>O1|H|T0|-|-|-|0|S0|-|load=3%", 0)
		h.says(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M6|W1>O1|E|T1|-|F|E33|0|S1|-|desc=no spade", 0)
		h.says(t, "user", "nonsense", 0)
	}
	// said are the lines of the log without their time.
	said := func(h *spoken) (out []string) {
		for l := range strings.Lines(h.log.String()) {
			_, rest, _ := strings.Cut(strings.TrimSpace(l), "] ")
			out = append(out, rest)
		}
		return out
	}

	listened(t, "HasEveryLineInTheFormOfTheDocument", "debug", func(t *testing.T, h *spoken) {
		talk(t, h)
		require.Equal(t, []string{
			"[INFO] [S0] [T0] W1>O1 J - caps=dig",
			"[INFO] [S0] [T0] O1>W1 A - registered;id=W1;status=active;version=V5",
			"[DEBUG] [S0] [T0] W1>O1 H - load=3%",
			"[INFO] [-] [-] User>O1 R - call=dig",
			"[INFO] [S1] [T1] O1>User A - accepted;worker=W1",
			"[INFO] [S1] [T1] O1>W1 R - call=dig",
			"[WARN] [S1] [T1] W1>O1 E E33 desc=no spade",
			"[INFO] [S1] [T1] O1>W1 A - noted",
			"[WARN] [-] [-] O1>User E E10 desc=invalid message format;details=the message has 1 segment, not 11, or 8 in …",
		}, said(h))
	})
	listened(t, "NamesWhoReallySpokeWhereALineIsRefused", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.signs(t, "digger", false)
		h.says(t, "digger", "M2|W9>O1|U|T1|-|R|-|0|S1|-|note=first", 0)
		h.says(t, "user", "M2|W1>O1|U|T1|-|R|-|0|S1|-|note=second", 0)
		far := protocol.WithConnection(t.Context(), protocol.Connection{Remote: true})
		h.Receive(far, principal("digger"), []byte(sign(t, "M2|W1>O1|U|T1|-|R|-|0|S1|-|note=third", "another", "00aa")), 0)
		require.Equal(t, []string{
			"[INFO] [S1] [T1] W1>O1 U - note=first",
			"[WARN] [S1] [T1] O1>W1 E E13 reason=from;desc=FROM must be W1, the address of the sender, not W9",
			"[INFO] [S1] [T1] User>O1 U - note=second",
			"[WARN] [S1] [T1] O1>User E E13 reason=from;desc=the token belongs to no agent: FROM must be User, not W1",
			"[INFO] [S1] [T1] - U - note=third",
		}, said(h)[2:7])
	})
	listened(t, "HasNoHeartbeatsUnlessItIsForDebugging", "info", func(t *testing.T, h *spoken) {
		talk(t, h)
		require.NotContains(t, h.log.String(), " H - ")
	})
	listened(t, "HasTheErrorsAloneWhereItIsForWarnings", "warn", func(t *testing.T, h *spoken) {
		talk(t, h)
		require.Len(t, said(h), 2)
		require.NotContains(t, h.log.String(), "INFO")
	})
}

// TestEventsAsLines: what happens to a task is told as this door would say it, whatever its
// agents speak.
func TestEventsAsLines(t *testing.T) {
	t.Parallel()
	// told is all that has happened, as lines without their time.
	told := func(t *testing.T, h *spoken) (out []string) {
		t.Helper()
		tasks, err := h.work.Tasks(t.Context(), models.TaskQuery{Limit: 100})
		require.NoError(t, err)
		for i := len(tasks) - 1; i >= 0; i-- {
			all, err := h.db.Timeline(t.Context(), tasks[i].ID, 100)
			require.NoError(t, err)
			for _, e := range all {
				line, err := h.Event(t.Context(), e)
				require.NoError(t, err)
				_, rest, _ := strings.Cut(line, "] ")
				out = append(out, rest)
			}
		}
		return out
	}

	listened(t, "AgreeWithWhatWasSaidInThisProtocol", "info", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.says(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;deep=3", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M2|W1>O1|A|T1|-|R|-|0|S1|-|-", 0)
		h.says(t, "digger", "M3|W1>O1|U|T1|-|R|-|0|S1|-|progress=50%", 0)
		h.says(t, "digger", "M4|W1>O1|C|T1|-|R|-|0|S1|-|question=how deep?;options=3,4", 0)
		h.says(t, "user", "M2|User>O1|C|T1|-|R|-|0|S1|-|choice=opt2", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M5|W1>O1|E|T1|-|F|E33|0|S1|-|desc=no spade;path=shed", 0)
		events := told(t, h)
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
			require.Contains(t, h.log.String(), line+"\n")
		}
	})

	listened(t, "HaveTheNamesAndCodesOfThisDoorForOthers", "warn", func(t *testing.T, h *spoken) {
		h.agent(t, "digger", "dig")
		_, err := h.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "websocket", Concurrency: 5})
		require.NoError(t, err)
		submit := func(parameters string) string {
			done, err := h.work.Submit(t.Context(), principal("user"), orchestrator.Submission{
				Capabilities: []string{"dig"}, Parameters: []byte(parameters), Override: orchestrator.Override{Retries: new(0)},
			}, nil)
			require.NoError(t, err)
			return done.Task.ID
		}
		ok, full, off := submit(`{"deep":3}`), submit(`{"deep":{"at":4}}`), submit(`{}`)
		_, err = h.work.Complete(t.Context(), "digger", ok, orchestrator.Result{Output: []byte("a|hole\n")})
		require.NoError(t, err)
		_, err = h.work.Complete(t.Context(), "digger", full, orchestrator.Result{Failure: orchestrator.FailureSaturated, Text: "too much"})
		require.NoError(t, err)
		_, err = h.work.Cancel(t.Context(), off, "no need", nil)
		require.NoError(t, err)
		require.Equal(t, []string{
			"[INFO] [S1] [T1] User>O1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] O1>W1 R - call=dig;deep=3",
			"[INFO] [S1] [T1] W1>O1 A - -",
			"[INFO] [S1] [T1] W1>O1 S - src=#REF:T1:raw;bytes=7",
			"[INFO] [S2] [T1] User>O1 R - call=dig;params=#REF:T1:params",
			"[INFO] [S2] [T1] O1>W1 R - call=dig;params=#REF:T1:params",
			"[INFO] [S2] [T1] W1>O1 A - -",
			"[WARN] [S2] [T1] O1>User E E31 desc=worker busy;details=too much",
			"[INFO] [S3] [T1] User>O1 R - call=dig",
			"[INFO] [S3] [T1] O1>W1 R - call=dig",
			"[INFO] [S3] [T1] O1>W1 U - reason=no need",
		}, told(t, h))
	})

	listened(t, "TellOfHandOffsAndOfFurtherAttempts", "warn", func(t *testing.T, h *spoken) {
		h.join(t, "digger", "W1")
		h.join(t, "helper", "W2")
		h.says(t, "user", "M1|User>W1|R|-|-|N|-|0|-|-|call=dig", 0)
		h.told(t, "digger")
		h.says(t, "digger", "M2|W1>W2|X|T1|-|R|-|1|S1|-|call=dig;reason=specialized", 0)
		h.told(t, "helper")
		h.says(t, "helper", "M1|W2>W1|E|T1|-|F|E32|1|S1|-|desc=no room", 0)
		events := strings.Join(told(t, h), "\n")
		require.Contains(t, events, "[INFO] [S1] [T1] W1>O1 U - handoff=W2\n")
		require.Contains(t, events, "[INFO] [S1] [T1] W1>W2 X - call=dig;reason=specialized\n")
		require.Contains(t, events, "[WARN] [S1] [T1] W2>O1 E E32 desc=")
	})

	listened(t, "AreNamedWhereThereIsNoTaskAnyMore", "warn", func(t *testing.T, h *spoken) {
		at := time.UnixMilli(14523)
		line, err := h.Event(t.Context(), models.Event{Type: models.EventTaskFailed, Key: "gone", At: at, Data: []byte(`{"task_id":"gone"}`)})
		require.NoError(t, err)
		require.Equal(t, "[14523] [INFO] [-] [-] - - - task.failed gone", line)
		line, err = h.Event(t.Context(), models.Event{Type: models.EventWorkerChanged, Key: "digger", At: at, Data: []byte(`{}`)})
		require.NoError(t, err)
		require.Equal(t, "[14523] [INFO] [-] [-] - - - worker.changed digger", line)
	})
}
