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
	"comet/internal/protocol/v5"
	wire "comet/internal/wire/v5"
	"comet/models"
	"comet/store/storetest"
)

// joinV4 has an agent come as a worker of V4.
func (h *house) joinV4(t testing.TB, id string, capabilities ...string) {
	t.Helper()
	h.agent(t, id, capabilities...)
	answer := h.says(t, id, "M0|W1>O1|J|T0|-|-|-|0|-|-|version=v4", 0)
	require.Contains(t, answer[0], ";version=V4;mode=compat")
	require.Equal(t, v5.VersionV4, h.work.CachedWorker(id).ProtocolVersion)
}

// asks submits as another door does.
func (h *house) asks(t *testing.T, capability, parameters string) models.Task {
	t.Helper()
	out, err := h.work.Submit(t.Context(), principal("user"), orchestrator.Submission{
		Capabilities: []string{capability}, Parameters: json.RawMessage(parameters), Priority: models.DefaultPriority,
	}, nil)
	require.NoError(t, err)
	return out.Task
}

// handOver writes what an agent is told now, if anything.
func (h *house) handOver(t testing.TB, id string) (out []string) {
	t.Helper()
	agent, err := h.db.Agent(t.Context(), id)
	require.NoError(t, err)
	all, err := h.work.Messages(t.Context(), id, 100)
	require.NoError(t, err)
	for _, m := range all {
		lines, err := h.Render(t.Context(), agent, m, 0)
		require.NoError(t, err)
		for _, line := range lines {
			out = append(out, string(line))
		}
		_, err = h.work.Acknowledge(t.Context(), id, []string{m.ID})
		require.NoError(t, err)
	}
	return out
}

// TestAWorkerOfV4IsGivenWhatItCanBeTold (PROTOCOL_V5 §14.2): all of the parameters, or
// nothing.
func TestAWorkerOfV4IsGivenWhatItCanBeTold(t *testing.T) {
	t.Parallel()
	rule(t, "parameters of another door are pairs", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "dump")
		h.asks(t, "dump", `{"text": "a b", "n": 12, "t": "12", "b": true, "e": ""}`)
		require.Equal(t, []string{`M*|O1>W1|R|T1|P1|N|-|call=dump;text=a b;n=12;t="12";b=true;e=""`}, unnumbered(h.told(t, "old")))
	})
	for name, parameters := range map[string]string{
		"what DATA cannot say goes to another worker":      `{"text": "a|b"}`,
		"what DATA has no room for goes to another worker": `{"text": "` + strings.Repeat("a", 190) + `"}`,
		"what is nested goes to another worker":            `{"all": {"a": 1}}`,
	} {
		rule(t, name, func(t *testing.T, h *house) {
			h.joinV4(t, "old", "dump")
			task := h.asks(t, "dump", parameters)
			require.Empty(t, h.handOver(t, "old"), "it is told nothing")
			h.agent(t, "young", "dump")
			h.says(t, "young", "M1|W2>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
			h.db.Clock.Advance(time.Second)
			require.Equal(t, []string{
				"M*|O1>W2|R|T1|P1|N|-|0|S1|-|call=dump;params=#REF:T1:params;retry=1;max=2;fallback_from=W1;reason=E32",
			}, unnumbered(h.told(t, "young")))
			require.Equal(t, 0, h.work.CachedWorker("old").InFlight)
			require.Equal(t, 0, h.work.CachedWorker("old").Failures, "its breaker does not count that")
			attempts, err := h.work.Attempts(t.Context(), task.ID)
			require.NoError(t, err)
			require.Equal(t, "W1 speaks V4, which cannot express the parameters", attempts[0].Error)
		})
	}
	rule(t, "where there is no other one the task fails and says why", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "summarize")
		h.says(t, "user", "M1|User>O1|R|T1|P1|N|-|0|-|-|call=summarize;keep", 0)
		h.told(t, "old")
		h.says(t, "old", `M1|W1>O1|S|T1|P1|D|-|`+strings.Repeat("a", 190), 0)
		h.says(t, "user", "M2|User>O1|R|T2|P1|N|-|0|S1|-|call=summarize;text=#REF:T1:raw", 0)
		for range 3 {
			require.Eventually(t, func() bool {
				all, err := h.work.Messages(t.Context(), "old", 1)
				require.NoError(t, err)
				return len(all) == 1
			}, time.Minute, time.Millisecond)
			require.Empty(t, h.handOver(t, "old"))
			h.db.Clock.Advance(2 * time.Second)
		}
		require.Equal(t, []string{
			"M*|O1>User|E|T2|P1|F|E31|0|S1|-|desc=worker busy;details=W1 speaks V4, which cannot express the parameters",
		}, unnumbered(h.says(t, "user", "M3|User>O1|Q|T2|-|-|-|0|S1|-|-", 0)))
	})
	rule(t, "what its DATA has room for once it has also the next time", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "summarize")
		text := strings.Repeat("a", 180)
		h.says(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=summarize;t="+text, 0)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|call=summarize;t=" + text}, unnumbered(h.told(t, "old")))
		h.says(t, "old", "M1|W1>O1|E|T1|P1|F|E21|desc=slow", 0)
		h.db.Clock.Advance(time.Second)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|call=summarize;t=" + text}, unnumbered(h.told(t, "old")), "without a word about the one before")
	})
}

// TestWhoWaitsInV4 gets the end in V4.
func TestWhoWaitsInV4(t *testing.T) {
	t.Parallel()
	// ask has a worker do what a user asks for, and returns what the user gets.
	ask := func(t *testing.T, h *house, request string, work ...string) protocol.Reply {
		t.Helper()
		h.agent(t, "writer", "generate_report")
		h.says(t, "writer", "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5", 0)
		got := make(chan protocol.Reply, 1)
		go func() { got <- h.Receive(t.Context(), principal("user"), []byte(request), time.Minute) }()
		require.Len(t, h.told(t, "writer"), 1)
		for _, line := range work {
			h.says(t, "writer", line, 0)
		}
		return <-got
	}
	const asks = "M1|User>O1|R|-|P1|N|-|call=generate_report"
	const accepted = "M*|O1>User|A|T1|P1|N|-|accepted;worker=W1"
	rule(t, "the result", func(t *testing.T, h *house) {
		a := ask(t, h, asks, "M2|W1>O1|S|T1|P1|D|-|0|S1|-|report=done")
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, []string{accepted, "M*|O1>User|S|T1|P1|D|-|report=done"}, unnumbered(strings.Split(string(a.Body), "\n")))
		s, err := h.work.Session(t.Context(), "S1")
		require.NoError(t, err)
		require.Equal(t, models.SessionClosed, s.State, "its session ends with it")
	})
	rule(t, "a question, which is C", func(t *testing.T, h *house) {
		a := ask(t, h, asks, `M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=which format?;options=short,"long, with figures"`)
		require.Equal(t, []string{accepted, `M*|O1>User|C|T1|P1|R|-|question=which format?;options=short,"long, with figures"`},
			unnumbered(strings.Split(string(a.Body), "\n")))
	})
	rule(t, "a question without options", func(t *testing.T, h *house) {
		a := ask(t, h, asks, `M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=which format?`)
		require.Equal(t, []string{accepted, `M*|O1>User|C|T1|P1|R|-|question=which format?`}, unnumbered(strings.Split(string(a.Body), "\n")))
	})
	rule(t, "a failure, with a code that V4 knows", func(t *testing.T, h *house) {
		a := ask(t, h, asks, "M2|W1>O1|E|T1|P1|F|E19|0|S1|-|desc=not this one")
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, "as in V5")
		require.Equal(t, []string{accepted, "M*|O1>User|E|T1|P1|F|E99|desc=not this one"}, unnumbered(strings.Split(string(a.Body), "\n")))
	})
	rule(t, "where a result is that DATA cannot hold", func(t *testing.T, h *house) {
		h.agent(t, "digger", "dig")
		_, err := h.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "poll"})
		require.NoError(t, err)
		h.joinV4(t, "old", "plan")
		// dug has the result put out that the digger was asked for last, and returns where.
		dug := func() string {
			var all []models.InboxMessage
			require.Eventually(t, func() bool {
				all, err = h.work.Messages(t.Context(), "digger", 1)
				return err == nil && len(all) == 1
			}, time.Minute, time.Millisecond)
			_, err := h.work.Complete(t.Context(), "digger", all[0].TaskID, orchestrator.Result{Output: []byte("a|b\nc>d\n")})
			require.NoError(t, err)
			_, err = h.work.Acknowledge(t.Context(), "digger", []string{all[0].ID})
			require.NoError(t, err)
			return "bytes=8;output=/api/v1/tasks/" + all[0].TaskID + "/output"
		}
		got := make(chan protocol.Reply, 1)
		go func() {
			got <- h.Receive(t.Context(), principal("user"), []byte("M1|User>O1|R|-|P1|N|-|call=dig"), time.Minute)
		}()
		at := dug()
		require.Contains(t, string((<-got).Body), "|S|T1|P1|D|-|"+at)
		h.says(t, "old", "M1|W1>O1|R|-|P1|N|-|call=dig", 0)
		at = dug()
		require.Equal(t, []string{"M*|O1>W1|S|T2|P1|D|-|" + at}, unnumbered(h.told(t, "old")), "an agent that asked, on its line")
	})
	rule(t, "a result that speaks of references, as text", func(t *testing.T, h *house) {
		a := ask(t, h, asks, "M2|W1>O1|S|T1|P1|D|-|0|S1|-|results=5;src=#REF:T1:raw")
		require.Contains(t, string(a.Body), "|S|T1|P1|D|-|results=5;src=＃REF:T1:raw")
	})
}

// TestEveryReplicaKnowsAWorkerOfV4: the version is kept with the worker.
func TestEveryReplicaKnowsAWorkerOfV4(t *testing.T) {
	t.Parallel()
	rule(t, "also one that has started since", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "dump")
		there := open(t, h.db)
		require.Eventually(t, func() bool { return there.work.CachedWorker("old").ProtocolVersion == v5.VersionV4 }, time.Minute, time.Millisecond)
		require.Equal(t, []string{"M*|O1>W1|A|T0|-|-|-|alive"}, unnumbered(there.says(t, "old", "M2|W1>O1|H|T0|-|-|-|0|S0|-|load=1%", 0)))
		h.says(t, "old", "M0|W1>O1|J|T0|-|-|-|0|-|-|version=V5", 0)
		require.Eventually(t, func() bool { return there.work.CachedWorker("old").ProtocolVersion == "" }, time.Minute, time.Millisecond)
		require.Equal(t, []string{"M*|O1>W1|A|T0|-|-|-|0|S0|-|alive"}, unnumbered(there.says(t, "old", "M3|W1>O1|H|T0|-|-|-|0|S0|-|load=1%", 0)))
	})
}

// TestALineOfV4IsRefusedInV4 where the door does it, which does not know who speaks.
func TestALineOfV4IsRefusedInV4(t *testing.T) {
	t.Parallel()
	rule(t, "by its first line", func(t *testing.T, h *house) {
		err := errs.New(errs.Unauthenticated, "who are you")
		a := h.Refuse(err, []byte("M1|User>O1|R|T4|P1|N|-|call=a\nM2|User>O1|R|T4|P1|N|-|0|-|-|call=a"))
		require.Equal(t, http.StatusUnauthorized, a.Status)
		require.Equal(t, []string{"M*|O1>User|E|T4|P1|F|E90|reason=token;desc=the token is not accepted"}, unnumbered([]string{string(a.Body)}))
		a = h.Refuse(err, []byte("M2|User>O1|R|T4|P1|N|-|0|-|-|call=a\nM1|User>O1|R|T4|P1|N|-|call=a"))
		require.Equal(t, []string{"M*|O1>User|E|T4|P1|F|E90|0|-|-|reason=token;desc=the token is not accepted"}, unnumbered([]string{string(a.Body)}))
	})
}

// FuzzALineOfV4: whoever says it, and whatever, what comes back has the segments of V4
// and can be read as such.
func FuzzALineOfV4(f *testing.F) {
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
	h.says(f, "young", "M1|W2>O1|J|T0|-|-|-|0|S0|-|concurrency=1000", 0)
	f.Fuzz(func(t *testing.T, line string) {
		if line, _, _ = strings.Cut(line, "\n"); strings.Count(line, "|") != wire.SegmentsV4-1 {
			return
		}
		for _, who := range []string{"user", "old", "young", "admin"} {
			a := h.Receive(t.Context(), principal(who), []byte(line), 0)
			for answer := range strings.SplitSeq(string(a.Body), "\n") {
				m, err := wire.ParseV4(answer)
				require.NoError(t, err, "%s: %s", line, answer)
				require.Equal(t, wire.SegmentsV4-1, strings.Count(answer, "|"))
				require.Zero(t, m.Warnings)
			}
			require.NotEqual(t, http.StatusInternalServerError, a.Status, "%s: %s", line, a.Body)
		}
		for _, who := range []string{"old", "young"} {
			for _, told := range h.handOver(t, who) {
				_, err := parse(told)
				require.NoError(t, err)
				require.Equal(t, who == "old", strings.Count(told, "|") == wire.SegmentsV4-1, told)
			}
		}
	})
}

// TestALateResultInV4 is that of its task, and never of the one that its worker has now.
func TestALateResultInV4(t *testing.T) {
	t.Parallel()
	rule(t, "when its attempt was given up it counts", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "dump")
		task := h.asks(t, "dump", `{"n": 1}`)
		require.Len(t, h.told(t, "old"), 1)
		h.db.Clock.Advance(31 * time.Second)
		require.Eventually(t, func() bool {
			attempts, err := h.work.Attempts(t.Context(), task.ID)
			require.NoError(t, err)
			return attempts[0].State == models.AttemptTimedOut
		}, time.Minute, time.Millisecond)
		h.says(t, "old", "M1|W1>O1|S|T1|P1|D|-|late=true", 0)
		now, err := h.work.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, now.State)
	})
	rule(t, "when its task was cancelled it is charged", func(t *testing.T, h *house) {
		h.joinV4(t, "old", "dump")
		first := h.asks(t, "dump", `{"n": 1}`)
		require.Len(t, h.told(t, "old"), 1)
		_, err := h.work.Cancel(t.Context(), first.ID, "enough", nil)
		require.NoError(t, err)
		second := h.asks(t, "dump", `{"n": 2}`)
		told := unnumbered(h.told(t, "old"))
		require.Contains(t, told, "M*|O1>W1|U|T1|P1|X|-|reason=enough")
		if len(told) == 1 {
			told = unnumbered(h.told(t, "old"))
		}
		require.Contains(t, told, "M*|O1>W1|R|T2|P1|N|-|call=dump;n=2")
		require.Equal(t, []string{"M*|O1>W1|A|T1|P1|D|-|noted"}, unnumbered(h.says(t, "old", "M1|W1>O1|S|T1|P1|D|-|late=true;tokens=7", 0)))
		now, err := h.work.Task(t.Context(), first.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.TaskCancelled, int64(7)}, []any{now.State, now.Tokens})
		now, err = h.work.Task(t.Context(), second.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.TaskNew, int64(0)}, []any{now.State, now.Tokens})
	})
}
