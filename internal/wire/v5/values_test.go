package v5_test

import (
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestCodes: the table of §8.1 and what §8.2 does about each of its codes.
func TestCodes(t *testing.T) {
	t.Parallel()
	type row struct {
		class   v5.Class
		retries int
	}
	want := map[v5.Code]row{
		"E00": {v5.ClassNone, 0},
		"E10": {v5.ClassNever, 0}, "E11": {v5.ClassNever, 0}, "E12": {v5.ClassNever, 0}, "E13": {v5.ClassNever, 0}, "E14": {v5.ClassNever, 0},
		"E15": {v5.ClassNever, 0}, "E16": {v5.ClassNever, 0}, "E17": {v5.ClassBudget, 0}, "E18": {v5.ClassNever, 0}, "E19": {v5.ClassNever, 0},
		"E20": {v5.ClassRetry, 2}, "E21": {v5.ClassRetry, 2}, "E22": {v5.ClassRetry, 2}, "E23": {v5.ClassOption, 0},
		"E30": {v5.ClassFallback, 0}, "E31": {v5.ClassFallback, 0}, "E32": {v5.ClassRetry, 1}, "E33": {v5.ClassUser, 0},
		"E40": {v5.ClassUser, 0}, "E41": {v5.ClassUser, 0}, "E42": {v5.ClassUser, 0}, "E43": {v5.ClassUser, 0},
		"E90": {v5.ClassNever, 0}, "E99": {v5.ClassNever, 0},
	}
	require.Len(t, v5.Codes(), len(want))
	meanings := map[string]bool{}
	for _, c := range v5.Codes() {
		require.True(t, c.Valid())
		require.Equal(t, want[c].class, c.Class(), c)
		require.Equal(t, want[c].retries, c.Retries(), c)
		meanings[c.Meaning()] = true
	}
	require.Len(t, meanings, len(want), "each code has a meaning of its own")
	require.True(t, slices.IsSorted(v5.Codes()))
}

// TestCodesWithoutAName are treated as their category is.
func TestCodesWithoutAName(t *testing.T) {
	t.Parallel()
	for c, want := range map[v5.Code]v5.Class{
		"E01": v5.ClassUser, "E24": v5.ClassRetry, "E29": v5.ClassRetry, "E34": v5.ClassUser, "E44": v5.ClassUser, "E50": v5.ClassUser,
		"E89": v5.ClassUser, "E91": v5.ClassNever, "": v5.ClassNone, "E1": v5.ClassNone, "X": v5.ClassNone,
	} {
		require.Equal(t, want, c.Class(), c)
		require.Equal(t, c.Valid(), c.Meaning() != "", c)
	}
	require.Equal(t, 2, v5.Code("E25").Retries())
	for class, want := range map[v5.Class]string{
		v5.ClassNone: "none", v5.ClassRetry: "retry", v5.ClassFallback: "fallback", v5.ClassNever: "never",
		v5.ClassUser: "user", v5.ClassOption: "option", v5.ClassBudget: "budget", v5.Class(99): "",
	} {
		require.Equal(t, want, class.String())
	}
}

// TestErrorData: an answer's DATA says why, and can always be said.
func TestErrorData(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	require.NoError(t, err)
	for i := 0; i < len(archive.Files); i += 2 {
		line, want := archive.Files[i], archive.Files[i+1]
		m, e := refused(t, string(line.Data))
		answer, err := v5.Format(v5.Refuse(m, v5.Address{Role: v5.Orchestrator, Number: 1}, 8, e))
		require.NoError(t, err, line.Name)
		require.Equal(t, string(want.Data), answer+"\n", line.Name)
		parse(t, answer)
	}
	own := &v5.Error{Problems: []v5.Problem{{Code: v5.E16, Reason: v5.ReasonMaxDepth, Detail: "depth 2 of 2"}}}
	require.Equal(t, v5.Data("reason=max_depth;desc=invalid depth or maximum depth exceeded;details=depth 2 of 2"), own.Data())
	own.Problems[0].Reason = "a|b"
	require.Equal(t, v5.Data("-"), own.Data())
	require.Equal(t, "a segment", v5.Segment(-1).String())
	require.Equal(t, "a segment", v5.Segment(12).String())
}

// TestReply: task, session, depth and budget go with the answer; what only system
// traffic may say does not leave it.
func TestReply(t *testing.T) {
	t.Parallel()
	o1 := v5.Address{Role: v5.Orchestrator, Number: 1}
	asked := parse(t, "M4|W1>*|U|T9|P0|R|E31|2|S7|B40|x")
	require.Equal(t, v5.Message{
		Number: 12, From: o1, To: v5.NthWorker(1), Type: v5.Ack, Task: v5.TaskOf(9), Priority: v5.P0,
		Depth: 2, Context: "S7", Budget: v5.BudgetOf(40), Data: "ok",
	}, v5.Reply(asked, o1, 12, v5.Ack, "ok"))

	joined := parse(t, "M1|W3>O1|J|T0|-|-|-|0|S0|-|caps=a")
	written, err := v5.Format(v5.Reply(joined, o1, 2, v5.Ack, "registered;id=W3"))
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|A|T0|-|-|-|0|S0|-|registered;id=W3", written, "the answer of §2.4")
	clarified, err := v5.Format(v5.Reply(joined, o1, 2, v5.Clarify, "question=which?"))
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|C|-|-|-|-|0|-|-|question=which?", clarified)

	nobody, e := refused(t, "M1|?>O1|R|T1|P1|N|-|0|S1|-|x")
	_, err = v5.Format(v5.Refuse(nobody, o1, 1, e))
	require.Error(t, err, "there is nobody to answer")
}
