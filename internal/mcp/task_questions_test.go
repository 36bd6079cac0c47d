package mcp

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestTaskQuestions(t *testing.T) {
	t.Parallel()
	ask := func(names ...string) (question, chan struct{}) {
		withdrawn := make(chan struct{})
		q := question{mcp.InputRequestMap{}, make(chan mcp.InputResponseMap, 1), withdrawn}
		for _, name := range names {
			q.requests[name] = &mcp.ElicitParams{Message: name}
		}
		return q, withdrawn
	}
	// keyOf returns the key of the open question with a message.
	keyOf := func(t *testing.T, a *taskQuestions, message string) string {
		t.Helper()
		for key, q := range a.requestsOf("wf") {
			if q.(*mcp.ElicitParams).Message == message {
				return key
			}
		}
		require.Fail(t, "the question is not open", message)
		return ""
	}
	accept := json.RawMessage(`{"action":"accept"}`)
	setup := func() *taskQuestions { return &taskQuestions{rounds: map[string][]*questionRound{}} }

	t.Run("are answered one by one", func(t *testing.T) {
		t.Parallel()
		a := setup()
		q, _ := ask("which", "why")
		a.add("wf", q)
		first := keyOf(t, a, "which")
		require.NoError(t, a.answer("wf", map[string]json.RawMessage{first: accept, "unknown": json.RawMessage(`5`)}))
		require.Empty(t, q.reply)
		require.NotContains(t, a.requestsOf("wf"), first)
		require.NoError(t, a.answer("wf", map[string]json.RawMessage{first: json.RawMessage(`5`), keyOf(t, a, "why"): json.RawMessage(`{"action":"decline"}`)}))
		answers := <-q.reply
		require.Equal(t, "accept", answers["which"].(*mcp.ElicitResult).Action)
		require.Equal(t, "decline", answers["why"].(*mcp.ElicitResult).Action)
		require.Empty(t, a.requestsOf("wf"))
		require.Empty(t, a.rounds)
	})

	t.Run("have keys of their own each time", func(t *testing.T) {
		t.Parallel()
		a := setup()
		q, _ := ask("which")
		again, _ := ask("which")
		a.add("wf", q)
		a.add("wf", again)
		require.Len(t, a.requestsOf("wf"), 2)
		require.Empty(t, a.requestsOf("other"))
		a.forget("wf")
		require.Empty(t, a.requestsOf("wf"))
	})

	t.Run("can be withdrawn", func(t *testing.T) {
		t.Parallel()
		a := setup()
		q, withdrawn := ask("which")
		a.add("wf", q)
		close(withdrawn)
		require.Empty(t, a.requestsOf("wf"))
		require.NoError(t, a.answer("wf", nil))
		require.Empty(t, a.rounds)
	})

	t.Run("are removed with the next question if they were withdrawn", func(t *testing.T) {
		t.Parallel()
		a := setup()
		for range 10 {
			q, withdrawn := ask("which")
			a.add("wf", q)
			close(withdrawn)
		}
		require.Len(t, a.rounds["wf"], 1)
	})

	t.Run("accept only responses to them", func(t *testing.T) {
		t.Parallel()
		a := setup()
		q, _ := ask("which")
		a.add("wf", q)
		for _, wrong := range []string{`5`, `null`, `{}`, `{"action":""}`} {
			require.ErrorContains(t, a.answer("wf", map[string]json.RawMessage{keyOf(t, a, "which"): json.RawMessage(wrong)}), "is not a response to its question", wrong)
		}
		require.Empty(t, q.reply)
	})

	t.Run("stay open if one of several responses is invalid", func(t *testing.T) {
		t.Parallel()
		a := setup()
		first, _ := ask("which")
		second, _ := ask("why")
		a.add("wf", first)
		a.add("wf", second)
		which, why := keyOf(t, a, "which"), keyOf(t, a, "why")
		require.Error(t, a.answer("wf", map[string]json.RawMessage{which: accept, why: json.RawMessage(`5`)}))
		require.Equal(t, which, keyOf(t, a, "which"))
		require.NoError(t, a.answer("wf", map[string]json.RawMessage{which: accept, why: accept}))
		require.Len(t, first.reply, 1)
		require.Len(t, second.reply, 1)
	})
}
