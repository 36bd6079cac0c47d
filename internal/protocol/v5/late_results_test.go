package v5_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/usage"
)

// reassignTask assigns a task to W1 and W2, and the copy of W1, which is silent, to W3.
func (f *fixture) reassignTask(t *testing.T) {
	t.Helper()
	f.transcript(t, `
agent ada search
agent bob search
ada > M1|W1>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
bob > M1|W2>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W2|A|T0|-|D|-|0|S0|-|registered;id=W2;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|N|-|0|-|B200|call=search;parallel=2
< M*|O1>User|A|T1|P1|R|-|0|S1|B200|accepted;workers=W1,W2;pid=M1
ada < M*|O1>W1|R|T1|P1|N|-|0|S1|B100|call=search
bob < M*|O1>W2|R|T1|P1|N|-|0|S1|B100|call=search
ada > M2|W1>O1|A|T1|P1|R|-|0|S1|B100|ack
< M*|O1>W1|A|T1|P1|R|-|0|S1|B100|noted;pid=M2
agent cid search
cid > M1|W3>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W3|A|T0|-|D|-|0|S0|-|registered;id=W3;status=active;version=V5;pid=M1
`)
	f.db.Clock.Advance(20 * time.Second)
	f.send(t, "bob", "M2|W2>O1|U|T1|P1|R|-|0|S1|B100|progress=50%", 0)
	f.db.Clock.Advance(10 * time.Second)
	f.transcript(t, "ada < M*|O1>W1|E|T1|P1|F|E20|0|S1|B100|reason=E21;desc=worker response timeout")
	for _, line := range []string{"M3|W1>O1|H|T0|-|-|-|0|S0|-|load=1%", "M3|W2>O1|H|T0|-|-|-|0|S0|-|load=1%", "M2|W3>O1|H|T0|-|-|-|0|S0|-|load=1%"} {
		f.send(t, map[byte]string{'1': "ada", '2': "bob", '3': "cid"}[line[4]], line, 0)
	}
	f.db.Clock.Advance(time.Second)
	f.transcript(t, "cid < M*|O1>W3|R|T1|P1|N|-|0|S1|B100|call=search;retry=1;max=2;fallback_from=W1;reason=E21")
}

// requireUsed requires the tokens that an agent was charged.
func (f *fixture) requireUsed(t *testing.T, id string, tokens int64) {
	t.Helper()
	u, err := usage.New(f.db.Store, nil).Usage(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, tokens, u.UsedToday, id)
}

// TestLateResult (§4.2): the late result of one of several workers is accepted, although its copy
// has been assigned to another worker.
func TestLateResult(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "is accepted while the other worker executes, and that worker is cancelled", func(t *testing.T, f *fixture) {
		f.reassignTask(t)
		f.transcript(t, `
ada > M4|W1>O1|S|T1|P1|D|-|0|S1|B60|late=1
< M*|O1>W1|A|T1|P1|D|-|0|S1|B60|noted;pid=M4
cid < M*|O1>W3|U|T1|P1|X|-|0|S1|B60|reason=another attempt has succeeded
# sent again it has no effect
ada > M4|W1>O1|S|T1|P1|D|-|0|S1|B60|late=1
< M*|O1>W1|A|T1|P1|D|-|0|S1|B60|noted;pid=M4
user until > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|S|T1|P1|D|-|0|S1|B160|late=1
`)
		f.requireUsed(t, "ada", 40)
		f.requireUsed(t, "cid", 0)
	})
	testOnDatabases(t, "is acknowledged and charged when the task has ended", func(t *testing.T, f *fixture) {
		f.reassignTask(t)
		f.transcript(t, `
cid > M3|W3>O1|S|T1|P1|D|-|0|S1|B90|c=3
< M*|O1>W3|A|T1|P1|D|-|0|S1|B90|noted;pid=M3
user until > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|S|T1|P1|D|-|0|S1|B190|c=3
ada > M4|W1>O1|S|T1|P1|D|-|0|S1|-|late=1;tokens=40
< M*|O1>W1|A|T1|P1|D|-|0|S1|-|noted;pid=M4
`)
		f.requireUsed(t, "ada", 40)
		f.requireUsed(t, "cid", 10)
	})
	testOnDatabases(t, "is E40 from a worker that was never assigned", func(t *testing.T, f *fixture) {
		f.reassignTask(t)
		f.agent(t, "dan", "search")
		f.send(t, "dan", "M1|W4>O1|J|T0|-|-|-|0|S0|-|-", 0)
		require.Equal(t, []string{"M*|O1>W4|E|T1|P1|F|E40|0|S1|-|desc=W4 has no task T1 in S1"},
			withoutParents(f.send(t, "dan", "M2|W4>O1|S|T1|P1|D|-|0|S1|-|late=1", 0)))
	})
}

// TestForeignDetail: a failure with a detail of another protocol has the code of the core's failure.
func TestForeignDetail(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "that has a code", func(t *testing.T, f *fixture) {
		f.transcript(t, `
agent ada search
ada > M1|W1>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|N|-|0|-|-|call=search
< M*|O1>User|A|T1|P1|N|-|0|S1|-|accepted;worker=W1;pid=M1
`)
		open, err := f.work.OpenTasksOf(t.Context(), "ada")
		require.NoError(t, err)
		require.Len(t, open, 1)
		_, err = f.work.Complete(t.Context(), "ada", open[0].Task.ID, orchestrator.Result{
			Failure: orchestrator.FailureWork, Text: "no luck", Detail: []byte(`{"code":"REMOTE_FAILED","data":"x"}`),
		})
		require.NoError(t, err)
		reply := f.send(t, "user", "M2|User>O1|Q|T1|-|-|-|0|S1|-|-", 0)
		require.Len(t, reply, 1)
		require.Contains(t, reply[0], "|E|T1|P1|F|E99|0|S1|-|desc=uncategorised error;details=no luck")
	})
}
