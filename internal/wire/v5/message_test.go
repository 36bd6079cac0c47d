package v5_test

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// TestErrorData: an E has the problem as DATA, and can always be written.
func TestErrorData(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	require.NoError(t, err)
	for i := 0; i < len(archive.Files); i += 2 {
		line, want := archive.Files[i], archive.Files[i+1]
		m, e := rejected(t, string(line.Data))
		reply, err := e.Reply(m, v5.Address{Role: v5.Orchestrator, Number: 1}, 8).Format()
		require.NoError(t, err, line.Name)
		require.Equal(t, string(want.Data), reply+"\n", line.Name)
		parse(t, reply)
	}
	own := &v5.Error{Problems: []v5.Problem{{Code: codes.E16, Reason: codes.ReasonMaxDepth, Detail: "depth 2 of 2"}}}
	require.Equal(t, v5.Data("reason=max_depth;desc=invalid depth or maximum depth exceeded;details=depth 2 of 2"), own.Data())
	own.Problems[0].Reason = "a|b"
	require.Equal(t, v5.Data("-"), own.Data())
}

// TestReply: a reply has the task, session, depth and budget of the message, but T0 and S0 only in
// system traffic.
func TestReply(t *testing.T) {
	t.Parallel()
	o1 := v5.Address{Role: v5.Orchestrator, Number: 1}
	request := parse(t, "M4|W1>*|U|T9|P0|R|E31|2|S7|B40|x")
	require.Equal(t, v5.Message{
		Number: 12, From: o1, To: v5.WorkerAddress(1), Type: v5.Ack, Task: v5.NewTask(9), Priority: v5.P0,
		Depth: 2, Context: "S7", Budget: v5.NewBudget(40), Data: "ok;pid=M4",
	}, request.Reply(o1, 12, v5.Ack, "ok"))

	join := parse(t, "M1|W3>O1|J|T0|-|-|-|0|S0|-|caps=a")
	written, err := join.Reply(o1, 2, v5.Ack, "registered;id=W3").Format()
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|A|T0|-|-|-|0|S0|-|registered;id=W3;pid=M1", written, "the reply of §2.4, with pid= (§10.2)")
	require.Equal(t, v5.Data("pid=M1"), join.Reply(o1, 2, v5.Ack, "-").Data)
	full := v5.Data(strings.Repeat("é", v5.MaxData-6))
	require.Equal(t, full, join.Reply(o1, 2, v5.Ack, full).Data, "DATA has no space for pid=")
	require.Equal(t, v5.Data("ok"), join.Reply(v5.WorkerAddress(1), 2, v5.Success, "ok").Data, "the result of a worker")
	join.Number = 0
	require.Equal(t, v5.Data("ok"), join.Reply(o1, 2, v5.Ack, "ok").Data, "a message without a number")
	join.Number = 1
	clarified, err := join.Reply(o1, 2, v5.Clarify, "question=which?").Format()
	require.NoError(t, err)
	require.Equal(t, "M2|O1>W3|C|-|-|-|-|0|-|-|question=which?;pid=M1", clarified)

	unknown, e := rejected(t, "M1|?>O1|R|T1|P1|N|-|0|S1|-|x")
	_, err = e.Reply(unknown, o1, 1).Format()
	require.Error(t, err, "there is no sender to reply to")
}
