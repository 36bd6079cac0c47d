package pipe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// TestRetry: what §8.2 says of a repeated request, read and written.
func TestRetry(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]pipe.Retry{
		"retry=1;max=2":                    {Attempt: 1, Max: 2},
		"retry=1;max=2;fallback=W2":        {Attempt: 1, Max: 2, Fallback: pipe.NthWorker(2)},
		"fallback_from=W1;reason=E31":      {From: pipe.NthWorker(1), Reason: "E31"},
		"reason=specialized":               {Reason: "specialized"},
		"retry=9999":                       {Attempt: 9999},
		"retry=0;max=2;fallback_from=W1.1": {Max: 2, From: pipe.NthWorker(100)},
	} {
		r, err := pipe.Data(data).Retry()
		require.NoError(t, err, data)
		require.Equal(t, want, r, data)
		written, err := new(pipe.Writer).Retry(r).Data()
		require.NoError(t, err)
		require.Equal(t, pipe.Data(data), written)
	}
	r, err := pipe.Data("call=top;max=10000").Retry()
	require.NoError(t, err, "max is the call's own without retry")
	require.Zero(t, r)
	for data, code := range map[string]pipe.Code{
		"retry=": pipe.E10, "retry": pipe.E10, "retry=x": pipe.E10, "retry=-1": pipe.E10, "retry=+1": pipe.E10, "retry=10000": pipe.E10, "retry=1.5": pipe.E10,
		"retry=1;max=x": pipe.E10, "fallback=V4": pipe.E13, "fallback=W*": pipe.E13, "fallback_from=": pipe.E13, "fallback_from=*": pipe.E13,
	} {
		r, err := pipe.Data(data).Retry()
		var e *pipe.Error
		require.ErrorAs(t, err, &e, data)
		require.Equal(t, code, e.Code(), data)
		require.Zero(t, r)
	}
}

// TestParent: pid=M5 (§10.2).
func TestParent(t *testing.T) {
	t.Parallel()
	n, err := pipe.Data("pid=M5;result=x").Parent()
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = pipe.Data("result=x").Parent()
	require.NoError(t, err)
	require.Zero(t, n)
	for _, bad := range []string{"pid=", "pid", "pid=5", "pid=M0", "pid=M10000", "pid=m5", "pid=M<n"} {
		_, err := pipe.Data(bad).Parent()
		var e *pipe.Error
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, pipe.E10, e.Code())
		require.Contains(t, e.Error(), "pid in DATA must be")
	}
	written, err := new(pipe.Writer).Parent(5).Data()
	require.NoError(t, err)
	require.Equal(t, pipe.Data("pid=M5"), written)
}

// TestAgents: agents=W1,W2,W3 (§12.4).
func TestAgents(t *testing.T) {
	t.Parallel()
	agents, err := pipe.Data("agents=W1,W2,W3;count=3").Agents()
	require.NoError(t, err)
	require.Equal(t, []pipe.Address{pipe.NthWorker(1), pipe.NthWorker(2), pipe.NthWorker(3)}, agents)
	agents, err = pipe.Data("count=0").Agents()
	require.NoError(t, err)
	require.Nil(t, agents)
	agents, err = pipe.Data("agents=;count=0").Agents()
	require.NoError(t, err)
	require.Equal(t, []pipe.Address{}, agents, "none is not silence")
	for _, bad := range []string{"agents=W1,x", "agents=W*", "agents=W1 W2", "agents=W100"} {
		_, err := pipe.Data(bad).Agents()
		var e *pipe.Error
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, pipe.E13, e.Code())
	}
	written, err := new(pipe.Writer).Agents(pipe.NthWorker(1), pipe.NthWorker(100)).Data()
	require.NoError(t, err)
	require.Equal(t, pipe.Data("agents=W1,W1.1"), written)
}
