package pipe_test

import (
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// TestCodes: the table of §8.1 and what §8.2 does about each of its codes.
func TestCodes(t *testing.T) {
	t.Parallel()
	type row struct {
		class   pipe.Class
		retries int
	}
	want := map[pipe.Code]row{
		"E00": {pipe.ClassNone, 0},
		"E10": {pipe.ClassNever, 0}, "E11": {pipe.ClassNever, 0}, "E12": {pipe.ClassNever, 0}, "E13": {pipe.ClassNever, 0}, "E14": {pipe.ClassNever, 0},
		"E15": {pipe.ClassNever, 0}, "E16": {pipe.ClassNever, 0}, "E17": {pipe.ClassBudget, 0}, "E18": {pipe.ClassNever, 0}, "E19": {pipe.ClassNever, 0},
		"E20": {pipe.ClassRetry, 2}, "E21": {pipe.ClassRetry, 2}, "E22": {pipe.ClassRetry, 2}, "E23": {pipe.ClassOption, 0},
		"E30": {pipe.ClassFallback, 0}, "E31": {pipe.ClassFallback, 0}, "E32": {pipe.ClassRetry, 1}, "E33": {pipe.ClassUser, 0},
		"E40": {pipe.ClassUser, 0}, "E41": {pipe.ClassUser, 0}, "E42": {pipe.ClassUser, 0}, "E43": {pipe.ClassUser, 0},
		"E90": {pipe.ClassNever, 0}, "E99": {pipe.ClassNever, 0},
	}
	require.Len(t, pipe.Codes(), len(want))
	meanings := map[string]bool{}
	for _, c := range pipe.Codes() {
		require.True(t, c.Valid())
		require.Equal(t, want[c].class, c.Class(), c)
		require.Equal(t, want[c].retries, c.Retries(), c)
		meanings[c.Meaning()] = true
	}
	require.Len(t, meanings, len(want), "each code has a meaning of its own")
	require.True(t, slices.IsSorted(pipe.Codes()))
}

// TestCodesWithoutAName are treated as their category is.
func TestCodesWithoutAName(t *testing.T) {
	t.Parallel()
	for c, want := range map[pipe.Code]pipe.Class{
		"E01": pipe.ClassUser, "E24": pipe.ClassRetry, "E29": pipe.ClassRetry, "E34": pipe.ClassUser, "E44": pipe.ClassUser, "E50": pipe.ClassUser,
		"E89": pipe.ClassUser, "E91": pipe.ClassNever, "": pipe.ClassNone, "E1": pipe.ClassNone, "X": pipe.ClassNone,
	} {
		require.Equal(t, want, c.Class(), c)
		require.Equal(t, c.Valid(), c.Meaning() != "", c)
	}
	require.Equal(t, 2, pipe.Code("E25").Retries())
	for class, want := range map[pipe.Class]string{
		pipe.ClassNone: "none", pipe.ClassRetry: "retry", pipe.ClassFallback: "fallback", pipe.ClassNever: "never",
		pipe.ClassUser: "user", pipe.ClassOption: "option", pipe.ClassBudget: "budget", pipe.Class(99): "",
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
		answer, err := pipe.Format(pipe.Refuse(m, pipe.Address{Role: pipe.Orchestrator, Number: 1}, 8, e))
		require.NoError(t, err, line.Name)
		require.Equal(t, string(want.Data), answer+"\n", line.Name)
		parse(t, answer)
	}
	own := &pipe.Error{Problems: []pipe.Problem{{Code: pipe.E16, Reason: pipe.ReasonMaxDepth, Detail: "depth 2 of 2"}}}
	require.Equal(t, pipe.Data("reason=max_depth;desc=invalid depth or maximum depth exceeded;details=depth 2 of 2"), own.Data())
	own.Problems[0].Reason = "a|b"
	require.Equal(t, pipe.Data("-"), own.Data())
	require.Equal(t, "a segment", pipe.Segment(-1).String())
	require.Equal(t, "a segment", pipe.Segment(12).String())
}

// TestReply: task, session, depth and budget go with the answer; what only system
// traffic may say does not leave it.
func TestReply(t *testing.T) {
	t.Parallel()
	o1 := pipe.Address{Role: pipe.Orchestrator, Number: 1}
	asked := parse(t, "M4|W1>*|U|T9|P0|R|E31|2|S7|B40|x")
	require.Equal(t, pipe.Message{
		Number: 12, From: o1, To: pipe.NthWorker(1), Type: pipe.Ack, Task: pipe.TaskOf(9), Priority: pipe.P0,
		Depth: 2, Context: "S7", Budget: pipe.BudgetOf(40), Data: "ok",
	}, pipe.Reply(asked, o1, 12, pipe.Ack, "ok"))

	joined := parse(t, "M1|W3>O1|J|T0|-|-|-|0|S0|-|caps=a")
	written, err := pipe.Format(pipe.Reply(joined, o1, 2, pipe.Ack, "registered;id=W3"))
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|A|T0|-|-|-|0|S0|-|registered;id=W3", written, "the answer of §2.4")
	clarified, err := pipe.Format(pipe.Reply(joined, o1, 2, pipe.Clarify, "question=which?"))
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|C|-|-|-|-|0|-|-|question=which?", clarified)

	nobody, e := refused(t, "M1|?>O1|R|T1|P1|N|-|0|S1|-|x")
	_, err = pipe.Format(pipe.Refuse(nobody, o1, 1, e))
	require.Error(t, err, "there is nobody to answer")
}
