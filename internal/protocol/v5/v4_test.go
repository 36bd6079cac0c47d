package v5_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	wire "comet/internal/wire/v5"
	"comet/models"
	"comet/store/storetest"
)

// joinV4 makes an agent join as a V4 worker.
func (f *fixture) joinV4(t testing.TB, id string, capabilities ...string) {
	t.Helper()
	f.agent(t, id, capabilities...)
	replies := f.send(t, id, "M0|W1>O1|J|T0|-|-|-|0|-|-|version=v4", 0)
	require.Contains(t, replies[0], ";version=V4;mode=compat")
	require.Equal(t, v5.VersionV4, f.work.CachedWorker(id).ProtocolVersion)
}

// submit submits a task as another protocol does.
func (f *fixture) submit(t *testing.T, capability, parameters string) models.Task {
	t.Helper()
	out, err := f.work.Submit(t.Context(), principal("user"), orchestrator.Submission{
		Capabilities: []string{capability}, Parameters: json.RawMessage(parameters), Priority: orchestrator.DefaultPriority,
	}, nil)
	require.NoError(t, err)
	return out.Task
}

// render returns the messages that an agent receives now, if any.
func (f *fixture) render(t testing.TB, id string) (out []string) {
	t.Helper()
	agent, err := f.db.Agents(t.Context()).Get(id)
	require.NoError(t, err)
	all, err := f.work.Messages(t.Context(), id, 100)
	require.NoError(t, err)
	for _, m := range all {
		lines, err := f.Render(t.Context(), protocol.Peer{Agent: agent}, m, 0)
		require.NoError(t, err)
		for _, line := range lines {
			out = append(out, string(line))
		}
		_, err = f.work.Acknowledge(t.Context(), id, []string{m.ID})
		require.NoError(t, err)
	}
	return out
}

// TestRequestsToV4 (PROTOCOL_V5 §14.2): a V4 worker receives all of the parameters, or the
// request goes to another worker.
func TestRequestsToV4(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "parameters from another protocol are pairs", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "dump")
		f.submit(t, "dump", `{"text": "a b", "n": 12, "t": "12", "b": true, "e": ""}`)
		require.Equal(t, []string{`M*|O1>W1|R|T1|P1|N|-|call=dump;text=a b;n=12;t="12";b=true;e=""`}, withoutNumbers(f.receive(t, "old")))
	})
	for name, parameters := range map[string]string{
		"parameters that DATA cannot hold go to another worker": `{"text": "a|b"}`,
		"parameters that are too long go to another worker":     `{"text": "` + strings.Repeat("a", 190) + `"}`,
		"nested parameters go to another worker":                `{"all": {"a": 1}}`,
	} {
		testOnDatabases(t, name, func(t *testing.T, f *fixture) {
			f.joinV4(t, "old", "dump")
			task := f.submit(t, "dump", parameters)
			require.Empty(t, f.render(t, "old"), "it receives nothing")
			f.agent(t, "young", "dump")
			f.send(t, "young", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
			f.db.Clock.Advance(time.Second)
			require.Equal(t, []string{
				"M*|O1>W2|R|T1|P1|N|-|0|S1|-|call=dump;params=#REF:T1:params;retry=1;max=2;fallback_from=W1;reason=E32",
			}, withoutNumbers(f.receive(t, "young")))
			require.Equal(t, 0, f.work.CachedWorker("old").InFlight)
			require.Equal(t, 0, f.work.CachedWorker("old").Failures, "its breaker does not count the attempt")
			attempts, err := f.work.Attempts(t.Context(), task.ID)
			require.NoError(t, err)
			require.Equal(t, "W1 speaks V4, which cannot express the parameters", attempts[0].Error)
		})
	}
	testOnDatabases(t, "without another worker the task fails with the reason", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "summarize")
		f.send(t, "user", "M1|User>O1|R|T1|P1|N|-|0|-|-|call=summarize;keep", 0)
		f.receive(t, "old")
		f.send(t, "old", `M1|W1>O1|S|T1|P1|D|-|`+strings.Repeat("a", 190), 0)
		f.send(t, "user", "M2|User>O1|R|T2|P1|N|-|0|S1|-|call=summarize;text=#REF:T1:raw", 0)
		for range 3 {
			require.Eventually(t, func() bool {
				all, err := f.work.Messages(t.Context(), "old", 1)
				require.NoError(t, err)
				return len(all) == 1
			}, time.Minute, 5*time.Millisecond)
			require.Empty(t, f.render(t, "old"))
			f.db.Clock.Advance(2 * time.Second)
		}
		require.Equal(t, []string{
			"M*|O1>User|E|T2|P1|F|E31|0|S1|-|desc=worker busy;details=W1 speaks V4, which cannot express the parameters",
		}, withoutParents(f.send(t, "user", "M3|User>O1|Q|T2|-|-|-|0|S1|-|-", 0)))
	})
	testOnDatabases(t, "a retry is sent without the retry pairs where they do not fit", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "summarize")
		text := strings.Repeat("a", 180)
		f.send(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=summarize;t="+text, 0)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|call=summarize;t=" + text}, withoutNumbers(f.receive(t, "old")))
		f.send(t, "old", "M1|W1>O1|E|T1|P1|F|E21|desc=slow", 0)
		f.db.Clock.Advance(time.Second)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|call=summarize;t=" + text}, withoutNumbers(f.receive(t, "old")), "without the retry pairs")
	})
}

// TestWaitingInV4: a requester that waits receives the outcome in V4.
func TestWaitingInV4(t *testing.T) {
	t.Parallel()
	// ask has a worker execute a user's request, and returns the reply to the user.
	ask := func(t *testing.T, f *fixture, request string, work ...string) protocol.Reply {
		t.Helper()
		f.agent(t, "writer", "generate_report")
		f.send(t, "writer", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		got := make(chan protocol.Reply, 1)
		go func() { got <- f.Receive(t.Context(), peer("user"), []byte(request), time.Minute) }()
		require.Len(t, f.receive(t, "writer"), 1)
		for _, line := range work {
			f.send(t, "writer", line, 0)
		}
		return <-got
	}
	const request = "M1|User>O1|R|-|P1|N|-|call=generate_report"
	const accepted = "M*|O1>User|A|T1|P1|N|-|accepted;worker=W1"
	testOnDatabases(t, "a result", func(t *testing.T, f *fixture) {
		a := ask(t, f, request, "M2|W1>O1|S|T1|P1|D|-|0|S1|-|report=done")
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, []string{accepted, "M*|O1>User|S|T1|P1|D|-|report=done"}, withoutParents(strings.Split(string(a.Body), "\n")))
		s, err := f.work.Session(t.Context(), "S1")
		require.NoError(t, err)
		require.Equal(t, models.SessionClosed, s.State, "its session is closed with it")
	})
	testOnDatabases(t, "a question is C", func(t *testing.T, f *fixture) {
		a := ask(t, f, request, `M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=which format?;options=short,"long, with figures"`)
		require.Equal(t, []string{accepted, `M*|O1>User|C|T1|P1|R|-|question=which format?;options=short,"long, with figures"`},
			withoutParents(strings.Split(string(a.Body), "\n")))
	})
	testOnDatabases(t, "a question without options", func(t *testing.T, f *fixture) {
		a := ask(t, f, request, `M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=which format?`)
		require.Equal(t, []string{accepted, `M*|O1>User|C|T1|P1|R|-|question=which format?`}, withoutParents(strings.Split(string(a.Body), "\n")))
	})
	testOnDatabases(t, "a failure has a code of V4", func(t *testing.T, f *fixture) {
		a := ask(t, f, request, "M2|W1>O1|E|T1|P1|F|E19|0|S1|-|desc=not this one")
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, "as in V5")
		require.Equal(t, []string{accepted, "M*|O1>User|E|T1|P1|F|E99|desc=not this one"}, withoutParents(strings.Split(string(a.Body), "\n")))
	})
	testOnDatabases(t, "a result that DATA cannot hold has its URL", func(t *testing.T, f *fixture) {
		f.agent(t, "digger", "dig")
		_, err := f.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "poll"})
		require.NoError(t, err)
		f.joinV4(t, "old", "plan")
		// complete completes the digger's last task with the result, and returns its URL.
		complete := func() string {
			var all []models.InboxMessage
			require.Eventually(t, func() bool {
				all, err = f.work.Messages(t.Context(), "digger", 1)
				return err == nil && len(all) == 1
			}, time.Minute, 5*time.Millisecond)
			_, err := f.work.Complete(t.Context(), "digger", all[0].TaskID, orchestrator.Result{Output: []byte("a|b\nc>d\n")})
			require.NoError(t, err)
			_, err = f.work.Acknowledge(t.Context(), "digger", []string{all[0].ID})
			require.NoError(t, err)
			return "bytes=8;output=/api/v1/tasks/" + all[0].TaskID + "/output"
		}
		got := make(chan protocol.Reply, 1)
		go func() {
			got <- f.Receive(t.Context(), peer("user"), []byte("M1|User>O1|R|-|P1|N|-|call=dig"), time.Minute)
		}()
		at := complete()
		require.Contains(t, string((<-got).Body), "|S|T1|P1|D|-|"+at)
		f.send(t, "old", "M1|W1>O1|R|-|P1|N|-|call=dig", 0)
		at = complete()
		require.Equal(t, []string{"M*|O1>W1|S|T2|P1|D|-|" + at}, withoutNumbers(f.receive(t, "old")), "a requesting agent receives it on its connection")
	})
	testOnDatabases(t, "a result with text that looks like a reference has similar characters", func(t *testing.T, f *fixture) {
		a := ask(t, f, request, "M2|W1>O1|S|T1|P1|D|-|0|S1|-|results=5;src=#REF:T1:raw")
		require.Contains(t, string(a.Body), "|S|T1|P1|D|-|results=5;src=＃REF:T1:raw")
	})
}

// TestVersionIsStored: every replica knows the version of a worker.
func TestVersionIsStored(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "a replica that has started since knows it", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "dump")
		replica := open(t, f.db)
		require.Eventually(t, func() bool { return replica.work.CachedWorker("old").ProtocolVersion == v5.VersionV4 }, time.Minute, 5*time.Millisecond)
		require.Equal(t, []string{"M*|O1>W1|A|T0|-|-|-|alive"}, withoutParents(replica.send(t, "old", "M2|W1>O1|H|T0|-|-|-|0|S0|-|load=1%", 0)))
		f.send(t, "old", "M0|W1>O1|J|T0|-|-|-|0|-|-|version=V5", 0)
		require.Eventually(t, func() bool { return replica.work.CachedWorker("old").ProtocolVersion == "" }, time.Minute, 5*time.Millisecond)
		require.Equal(t, []string{"M*|O1>W1|A|T0|-|-|-|0|S0|-|alive"}, withoutParents(replica.send(t, "old", "M3|W1>O1|H|T0|-|-|-|0|S0|-|load=1%", 0)))
	})
}

// TestRefuseInV4: Refuse, which does not know the sender, replies to V4 in V4.
func TestRefuseInV4(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "the first line decides", func(t *testing.T, f *fixture) {
		err := errs.New(errs.Unauthenticated, "unknown client")
		a := f.Refuse(err, []byte("M1|User>O1|R|T4|P1|N|-|call=a\nM2|User>O1|R|T4|P1|N|-|0|-|-|call=a"))
		require.Equal(t, http.StatusUnauthorized, a.Status)
		require.Equal(t, []string{"M*|O1>User|E|T4|P1|F|E90|reason=token;desc=the token is not accepted"}, withoutParents([]string{string(a.Body)}))
		a = f.Refuse(err, []byte("M2|User>O1|R|T4|P1|N|-|0|-|-|call=a\nM1|User>O1|R|T4|P1|N|-|call=a"))
		require.Equal(t, []string{"M*|O1>User|E|T4|P1|F|E90|0|-|-|reason=token;desc=the token is not accepted"}, withoutParents([]string{string(a.Body)}))
	})
}

// FuzzReceiveV4: the reply to any message of V4, from any sender, is a valid message of
// V4.
func FuzzReceiveV4(f *testing.F) {
	for _, line := range []string{
		"M1|User>O1|R|-|P1|N|-|call=dump;a=b", "M1|W1>O1|S|T1|P1|D|-|x", "M1|W2>O1|S|T1|P1|D|-|x", "M1|W1>O1|U|T1|P1|R|-|progress=5%",
		"M1|User>O1|U|T1|-|X|-|-", "M1|User>O1|C|T1|-|-|-|answer=x", "M1|W1>O1|J|T0|-|-|-|version=V5", "M1|W2>O1|C|T1|-|-|-|question=x;options=a,b",
		"M1|O1>O1|H|T0|-|-|-|load=5%", "|||||||", "M1|User>W1|R|T1|P1|N|-|call=dump;keep;ctx.a=b", "M1|W2>O1|R|T999|P9|N|E17|call=a;auth=S1:00aa:01234567",
	} {
		f.Add(line)
	}
	db := storetest.Open(f, "sqlite")
	h := open(f, db)
	h.joinV4(f, "old", "dump")
	h.agent(f, "young", "dump")
	h.send(f, "young", "M1|W2>O1|J|T0|-|-|-|0|S0|-|concurrency=1000", 0)
	f.Fuzz(func(t *testing.T, line string) {
		if line, _, _ = strings.Cut(line, "\n"); strings.Count(line, "|") != wire.SegmentsV4-1 {
			return
		}
		for _, who := range []string{"user", "old", "young", "admin"} {
			a := h.Receive(t.Context(), peer(who), []byte(line), 0)
			for reply := range strings.SplitSeq(string(a.Body), "\n") {
				m, err := wire.ParseV4(reply)
				require.NoError(t, err, "%s: %s", line, reply)
				require.Equal(t, wire.SegmentsV4-1, strings.Count(reply, "|"))
				require.Zero(t, m.Warnings)
			}
			require.NotEqual(t, http.StatusInternalServerError, a.Status, "%s: %s", line, a.Body)
		}
		for _, who := range []string{"old", "young"} {
			for _, message := range h.render(t, who) {
				_, err := parse(message)
				require.NoError(t, err)
				require.Equal(t, who == "old", strings.Count(message, "|") == wire.SegmentsV4-1, message)
			}
		}
	})
}

// TestLateResultInV4: a late result belongs to its task, never to the worker's current one.
func TestLateResultInV4(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "it counts when its attempt has timed out", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "dump")
		task := f.submit(t, "dump", `{"n": 1}`)
		require.Len(t, f.receive(t, "old"), 1)
		f.db.Clock.Advance(31 * time.Second)
		require.Eventually(t, func() bool {
			attempts, err := f.work.Attempts(t.Context(), task.ID)
			require.NoError(t, err)
			return attempts[0].State == models.AttemptTimedOut
		}, time.Minute, 5*time.Millisecond)
		f.send(t, "old", "M1|W1>O1|S|T1|P1|D|-|late=true", 0)
		now, err := f.work.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, now.State)
	})
	testOnDatabases(t, "it is charged when its task was cancelled", func(t *testing.T, f *fixture) {
		f.joinV4(t, "old", "dump")
		first := f.submit(t, "dump", `{"n": 1}`)
		require.Len(t, f.receive(t, "old"), 1)
		_, err := f.work.Cancel(t.Context(), first.ID, "enough", nil)
		require.NoError(t, err)
		second := f.submit(t, "dump", `{"n": 2}`)
		received := withoutNumbers(f.receive(t, "old"))
		require.Contains(t, received, "M*|O1>W1|U|T1|P1|X|-|reason=enough")
		if len(received) == 1 {
			received = withoutNumbers(f.receive(t, "old"))
		}
		require.Contains(t, received, "M*|O1>W1|R|T2|P1|N|-|call=dump;n=2")
		require.Equal(t, []string{"M*|O1>W1|A|T1|P1|D|-|noted"}, withoutParents(f.send(t, "old", "M1|W1>O1|S|T1|P1|D|-|late=true;tokens=7", 0)))
		now, err := f.work.Task(t.Context(), first.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.TaskCancelled, int64(7)}, []any{now.State, now.Tokens})
		now, err = f.work.Task(t.Context(), second.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.TaskNew, int64(0)}, []any{now.State, now.Tokens})
	})
}
