package v5_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/models"
)

// answeredLong has W1 ask what is answered with a text, and returns what W1 is told.
func (h *house) answeredLong(t *testing.T, joined, ask, text string) []string {
	t.Helper()
	h.agent(t, "coder", "analyze_code")
	h.says(t, "coder", joined, 0)
	h.says(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=analyze_code", 0)
	h.told(t, "coder")
	h.says(t, "coder", ask, 0)
	tasks, err := h.work.Tasks(t.Context(), models.TaskQuery{AgentID: "coder", Limit: 1})
	require.NoError(t, err)
	_, err = h.work.Reply(t.Context(), tasks[0].ID, text)
	require.NoError(t, err)
	return unnumbered(h.told(t, "coder"))
}

// TestAnAnswerIsNeitherCutNorChanged (§7.1): a worker acts upon it.
func TestAnAnswerIsNeitherCutNorChanged(t *testing.T) {
	t.Parallel()
	const joins, asks = "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", "M2|W1>O1|C|T1|P1|R|-|0|S1|-|question=where?"
	rule(t, "what DATA has no room for is read by pages", func(t *testing.T, h *house) {
		text := strings.Repeat("a", 250)
		require.Equal(t, []string{"M*|O1>W1|C|T1|P1|R|-|0|S1|-|answer=#REF:T1:answer;bytes=250"}, h.answeredLong(t, joins, asks, text))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|0|S1|-|page=1;of=2;text="` + text[:150] + `"`},
			unnumbered(h.says(t, "coder", "M3|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer", 0)))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|0|S1|-|page=2;of=2;text="` + text[150:] + `"`},
			unnumbered(h.says(t, "coder", "M4|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer;page=2", 0)))
	})
	rule(t, "what DATA cannot say is read in Base64", func(t *testing.T, h *house) {
		require.Equal(t, []string{"M*|O1>W1|C|T1|P1|R|-|0|S1|-|answer=#REF:T1:answer;bytes=3"}, h.answeredLong(t, joins, asks, "a|b"))
		require.Equal(t, []string{"M*|O1>W1|S|T1|-|D|-|0|S1|-|page=1;of=1;enc=base64;text=" + base64.StdEncoding.EncodeToString([]byte("a|b"))},
			unnumbered(h.says(t, "coder", "M3|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer", 0)))
	})
	rule(t, "but for a worker of V4, which cannot ask for it", func(t *testing.T, h *house) {
		got := h.answeredLong(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V4", "M2|W1>O1|C|T1|P1|R|-|question=where?", "a|b"+strings.Repeat("a", 250))
		require.Len(t, got, 1)
		require.Regexp(t, `^M\*\|O1>W1\|C\|T1\|P1\|R\|-\|answer=a¦ba+…$`, got[0])
	})
	rule(t, "to one of several who do the same, its own", func(t *testing.T, h *house) {
		h.transcript(t, `
agent one dig
agent two dig
one > M1|W1>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5
two > M1|W2>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W2|A|T0|-|D|-|0|S0|-|registered;id=W2;status=active;version=V5
user > M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;parallel=2
< M*|O1>User|A|T1|P1|R|-|0|S1|-|accepted;workers=W1,W2
two < M*|O1>W2|R|T1|P1|N|-|0|S1|-|call=dig
two > M2|W2>O1|C|T1|P1|R|-|0|S1|-|question=where?
< M*|O1>W2|A|T1|P1|R|-|0|S1|-|asked
user > M2|User>O1|C|T1|P1|R|-|0|S1|-|answer=there
< M*|O1>User|A|T1|P1|R|-|0|S1|-|accepted;workers=W1,W2
two < M*|O1>W2|C|T1|P1|R|-|0|S1|-|answer=there
two > M3|W2>O1|Q|T1|-|-|-|0|S1|-|ref=T1:answer
< M*|O1>W2|S|T1|-|D|-|0|S1|-|page=1;of=1;text="there"
`)
	})
}

// TestAPartThatSpeaksAnotherProtocol: its long result is read like any other's.
func TestAPartThatSpeaksAnotherProtocol(t *testing.T) {
	t.Parallel()
	rule(t, "by who handed it off, at its DEPTH", func(t *testing.T, h *house) {
		h.agent(t, "coder", "analyze_code")
		h.agent(t, "digger", "dig")
		h.says(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
		_, err := h.work.Join(t.Context(), "digger", orchestrator.JoinRequest{Protocol: "envelope", Transport: "poll"})
		require.NoError(t, err)
		number, err := h.work.AgentNumber(t.Context(), "digger")
		require.NoError(t, err)
		require.Equal(t, int64(2), number)
		h.says(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|call=analyze_code", 0)
		h.told(t, "coder")
		h.says(t, "coder", "M2|W1>W2|X|T1|P1|R|-|1|S1|-|call=dig", 0)
		var given []models.InboxMessage
		require.Eventually(t, func() bool {
			given, err = h.work.Messages(t.Context(), "digger", 1)
			return err == nil && len(given) == 1
		}, time.Minute, time.Millisecond)
		text := strings.Repeat("b", 300)
		_, err = h.work.Complete(t.Context(), "digger", given[0].TaskID, orchestrator.Result{Output: []byte(text)})
		require.NoError(t, err)
		require.Equal(t, []string{"M*|W2>W1|S|T1|P1|D|-|1|S1|-|src=#REF:T1:raw;bytes=300"}, unnumbered(h.told(t, "coder")))
		require.Equal(t, []string{`M*|O1>W1|S|T1|-|D|-|1|S1|-|page=2;of=2;text="` + text[150:] + `"`},
			unnumbered(h.says(t, "coder", "M3|W1>O1|Q|T1|-|-|-|1|S1|-|ref=T1:raw;page=2", 0)))
	})
}

// TestTextThatLooksLikeAReference comes from doors where it is text: to a worker of this
// one it would mean its own task.
func TestTextThatLooksLikeAReference(t *testing.T) {
	t.Parallel()
	rule(t, "is among the parameters that a reference stands for", func(t *testing.T, h *house) {
		h.agent(t, "coder", "dump")
		h.says(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
		h.asks(t, "dump", `{"text": "#REF:T1:raw"}`)
		require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|call=dump;params=#REF:T1:params"}, unnumbered(h.told(t, "coder")))
		page, err := parse(h.says(t, "coder", "M2|W1>O1|Q|T1|-|-|-|0|S1|-|ref=T1:params", 0)[0])
		require.NoError(t, err)
		text, _ := page.Data.Get("text")
		parameters, err := base64.StdEncoding.DecodeString(text)
		require.NoError(t, err)
		require.JSONEq(t, `{"text":"#REF:T1:raw"}`, string(parameters))
	})
}

// TestWhatTheAskerSaysOfAttempts (§8.2) is not said to the worker beside what there were.
func TestWhatTheAskerSaysOfAttempts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ asks, first, again string }{
		"each of it once": {"call=dump;retry=1;max=1;fallback=W1;fallback_from=W1;reason=why;n=1", "call=dump;reason=why;n=1", "call=dump;reason=why;n=1;retry=1;max=1"},
		"max without retry is a parameter, which the protocol's would hide": {
			"call=dump;max=9", "call=dump;max=9", "call=dump;params=#REF:T1:params;retry=1;max=2",
		},
	} {
		rule(t, name, func(t *testing.T, h *house) {
			h.agent(t, "coder", "dump")
			h.says(t, "coder", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
			h.says(t, "user", "M1|User>O1|R|-|P1|N|-|0|-|-|"+c.asks, 0)
			require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|" + c.first}, unnumbered(h.told(t, "coder")))
			h.says(t, "coder", "M2|W1>O1|E|T1|P1|F|E21|0|S1|-|desc=slow", 0)
			h.db.Clock.Advance(time.Second)
			require.Equal(t, []string{"M*|O1>W1|R|T1|P1|N|-|0|S1|-|" + c.again}, unnumbered(h.told(t, "coder")))
		})
	}
	rule(t, "nor is the reason, where there is another one", func(t *testing.T, h *house) {
		h.transcript(t, strings.ReplaceAll(both, "query=AI", "query=AI;reason=curiosity"))
		h.says(t, "left", "M2|W1>O1|E|T1|P1|F|E31|0|S1|B150|desc=full", 0)
		h.db.Clock.Advance(time.Second)
		require.Equal(t, []string{"M*|O1>W2|R|T1|P1|N|-|0|S1|B150|call=web_search;query=AI;retry=1;max=2;fallback_from=W1;reason=E31"},
			unnumbered(h.told(t, "right")))
	})
}
