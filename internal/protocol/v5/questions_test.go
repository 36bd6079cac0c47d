package v5_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
)

// answerQuestion makes W1 ask a question that is answered with a text, and returns what W1
// receives.
func (f *fixture) answerQuestion(t *testing.T, join, question, text string) []string {
	t.Helper()
	f.agent(t, "coder", "analyze_code")
	f.send(t, "coder", join, 0)
	f.send(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=analyze_code", 0)
	f.receive(t, "coder")
	f.send(t, "coder", question, 0)
	tasks, err := f.work.Tasks(t.Context(), store.TaskQuery{AgentID: "coder", Limit: 1})
	require.NoError(t, err)
	_, err = f.work.Reply(t.Context(), tasks[0].ID, text)
	require.NoError(t, err)
	return withoutNumbers(f.receive(t, "coder"))
}

// TestLongAnswers (§7.1): an answer to a worker is neither truncated nor changed.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	const join, question = "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", "M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=where?"
	testOnDatabases(t, "a long answer is read in pages", func(t *testing.T, f *fixture) {
		text := strings.Repeat("a", 250)
		require.Equal(t, []string{"M*|O1>W1|C|T1|P1|R|-|0|S1|-|answer=#REF:T1:answer;bytes=250"}, f.answerQuestion(t, join, question, text))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|0|S1|-|page=1;of=2;text="` + text[:150] + `"`},
			withoutParents(f.send(t, "coder", "M3|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer", 0)))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|0|S1|-|page=2;of=2;text="` + text[150:] + `"`},
			withoutParents(f.send(t, "coder", "M4|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer;page=2", 0)))
	})
	testOnDatabases(t, "an answer that DATA cannot hold is read in Base64", func(t *testing.T, f *fixture) {
		require.Equal(t, []string{"M*|O1>W1|C|T1|P1|R|-|0|S1|-|answer=#REF:T1:answer;bytes=3"}, f.answerQuestion(t, join, question, "a|b"))
		require.Equal(t, []string{"M*|O1>W1|S|T1|-|D|-|0|S1|-|page=1;of=1;enc=base64;text=" + base64.StdEncoding.EncodeToString([]byte("a|b"))},
			withoutParents(f.send(t, "coder", "M3|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer", 0)))
	})
	testOnDatabases(t, "a V4 worker, which has no Q, receives a truncated answer", func(t *testing.T, f *fixture) {
		got := f.answerQuestion(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V4", "M2|W1>O1|C|T1|P1|R|-|question=where?", "a|b"+strings.Repeat("a", 250))
		require.Len(t, got, 1)
		require.Regexp(t, `^M\*\|O1>W1\|C\|T1\|P1\|R\|-\|answer=a¦ba+…$`, got[0])
	})
	testOnDatabases(t, "each of several workers reads its own answer", func(t *testing.T, f *fixture) {
		f.transcript(t, `
agent one dig
agent two dig
one > M1|W1>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
two > M1|W2>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W2|A|T0|-|D|-|0|S0|-|registered;id=W2;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;parallel=2
< M*|O1>User|A|T1|P1|R|-|0|S1|-|accepted;workers=W1,W2;pid=M1
two < M*|O1>W2|R|T1|P1|N|-|0|S1|-|call=dig
two > M2|W2>O1|C|T1|P1|R|-|0|S1|-|question=where?
< M*|O1>W2|A|T1|P1|R|-|0|S1|-|asked;pid=M2
user > M2|User>O1|C|T1|P1|R|-|0|S1|-|answer=there
< M*|O1>User|A|T1|P1|R|-|0|S1|-|accepted;workers=W1,W2;pid=M2
two < M*|O1>W2|C|T1|P1|R|-|0|S1|-|answer=there
two > M3|W2>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer
< M*|O1>W2|S|T1|-|D|-|0|S1|-|page=1;of=1;text="there";pid=M3
`)
	})
}

// TestResultOfAnotherProtocol: a long result of an agent that speaks another protocol is read as
// any other.
func TestResultOfAnotherProtocol(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "the worker that handed off reads it at the DEPTH of the subtask", func(t *testing.T, f *fixture) {
		f.agent(t, "coder", "analyze_code")
		f.agent(t, "digger", "dig")
		f.send(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
		_, err := f.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "poll"})
		require.NoError(t, err)
		number, err := shortid.AgentNumber(t.Context(), f.db.Store, "digger")
		require.NoError(t, err)
		require.Equal(t, int64(2), number)
		f.send(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=analyze_code", 0)
		f.receive(t, "coder")
		f.send(t, "coder", "M2|W1>W2|X|T1|P1|R|-|1|S1|-|call=dig", 0)
		var assigned []models.InboxMessage
		require.Eventually(t, func() bool {
			assigned, err = f.work.Messages(t.Context(), "digger", 1)
			return err == nil && len(assigned) == 1
		}, time.Minute, 5*time.Millisecond)
		text := strings.Repeat("b", 300)
		_, err = f.work.Complete(t.Context(), "digger", assigned[0].TaskID, orchestrator.Result{Output: []byte(text)})
		require.NoError(t, err)
		require.Equal(t, []string{"M*|W2>W1|S|T1|P1|D|-|1|S1|-|src=#REF:T1:raw;bytes=300"}, withoutNumbers(f.receive(t, "coder")))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|1|S1|-|page=2;of=2;text="` + text[150:] + `"`},
			withoutParents(f.send(t, "coder", "M3|W1>O1|Q|T1|-|-|-|1|S1|-|ref=T1:raw;page=2", 0)))
	})
}

// TestTextThatLooksLikeAReference: in other protocols it is text, and a V5 worker would resolve it
// to a task of its own.
func TestTextThatLooksLikeAReference(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "is sent by reference with the other parameters", func(t *testing.T, f *fixture) {
		f.agent(t, "coder", "dump")
		f.send(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
		f.submit(t, "dump", `{"text": "#REF:T1:raw"}`)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|call=dump;params=#REF:T1:params"}, withoutNumbers(f.receive(t, "coder")))
		page, err := parse(f.send(t, "coder", "M2|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:params", 0)[0])
		require.NoError(t, err)
		text, _ := page.Data.Get("text")
		parameters, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		require.JSONEq(t, `{"text":"#REF:T1:raw"}`, string(parameters))
	})
}

// TestRequestedAttempts (§8.2): a worker receives the actual attempts, not those of the request.
func TestRequestedAttempts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ request, first, retry string }{
		"are stated once": {"call=dump;retry=1;max=1;fallback=W1;fallback_from=W1;reason=why;n=1", "call=dump;reason=why;n=1", "call=dump;reason=why;n=1;retry=1;max=1"},
		"are sent beside a parameter max": {
			"call=dump;max=9", "call=dump;max=9", "call=dump;params=#REF:T1:params;retry=1;max=2",
		},
	} {
		testOnDatabases(t, name, func(t *testing.T, f *fixture) {
			f.agent(t, "coder", "dump")
			f.send(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
			f.send(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|"+c.request, 0)
			require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|" + c.first}, withoutNumbers(f.receive(t, "coder")))
			f.send(t, "coder", "M2|W1>O1|E|T1|P1|F|E21|0|S1|-|desc=slow", 0)
			f.db.Clock.Advance(time.Second)
			require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|" + c.retry}, withoutNumbers(f.receive(t, "coder")))
		})
	}
	testOnDatabases(t, "the actual reason replaces that of the request", func(t *testing.T, f *fixture) {
		f.transcript(t, strings.ReplaceAll(twoWorkers, "query=AI", "query=AI;reason=curiosity"))
		f.send(t, "left", "M2|W1>O1|E|T1|P1|F|E31|0|S1|B150|desc=full", 0)
		f.db.Clock.Advance(time.Second)
		require.Equal(t, []string{"M*|O1>W2|R|T1|P1|N|-|0|S1|B150|call=web_search;query=AI;retry=1;max=2;fallback_from=W1;reason=E31"},
			withoutNumbers(f.receive(t, "right")))
	})
}
