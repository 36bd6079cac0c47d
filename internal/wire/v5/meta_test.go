package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestRetry: what §8.2 says of a repeated request, read and written.
func TestRetry(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]v5.Retry{
		"retry=1;max=2":                    {Attempt: 1, Max: 2},
		"retry=1;max=2;fallback=W2":        {Attempt: 1, Max: 2, Fallback: v5.NthWorker(2)},
		"fallback_from=W1;reason=E31":      {From: v5.NthWorker(1), Reason: "E31"},
		"reason=specialized":               {Reason: "specialized"},
		"retry=9999":                       {Attempt: 9999},
		"retry=0;max=2;fallback_from=W1.1": {Max: 2, From: v5.NthWorker(100)},
	} {
		r, err := v5.Data(data).Retry()
		require.NoError(t, err, data)
		require.Equal(t, want, r, data)
		written, err := new(v5.Writer).Retry(r).Data()
		require.NoError(t, err)
		require.Equal(t, v5.Data(data), written)
	}
	r, err := v5.Data("call=top;max=10000").Retry()
	require.NoError(t, err, "max is the call's own without retry")
	require.Zero(t, r)
	for data, code := range map[string]v5.Code{
		"retry=": v5.E10, "retry": v5.E10, "retry=x": v5.E10, "retry=-1": v5.E10, "retry=+1": v5.E10, "retry=10000": v5.E10, "retry=1.5": v5.E10,
		"retry=1;max=x": v5.E10, "fallback=V4": v5.E13, "fallback=W*": v5.E13, "fallback_from=": v5.E13, "fallback_from=*": v5.E13,
	} {
		r, err := v5.Data(data).Retry()
		var e *v5.Error
		require.ErrorAs(t, err, &e, data)
		require.Equal(t, code, e.Code(), data)
		require.Zero(t, r)
	}
}

// TestParent: pid=M5 (§10.2).
func TestParent(t *testing.T) {
	t.Parallel()
	n, err := v5.Data("pid=M5;result=x").Parent()
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = v5.Data("result=x").Parent()
	require.NoError(t, err)
	require.Zero(t, n)
	for _, bad := range []string{"pid=", "pid", "pid=5", "pid=M0", "pid=M10000", "pid=m5", "pid=M<n"} {
		_, err := v5.Data(bad).Parent()
		var e *v5.Error
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, v5.E10, e.Code())
		require.Contains(t, e.Error(), "pid in DATA must be")
	}
	written, err := new(v5.Writer).Parent(5).Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data("pid=M5"), written)
}

// TestAgents: agents=W1,W2,W3 (§12.4).
func TestAgents(t *testing.T) {
	t.Parallel()
	agents, err := v5.Data("agents=W1,W2,W3;count=3").Agents()
	require.NoError(t, err)
	require.Equal(t, []v5.Address{v5.NthWorker(1), v5.NthWorker(2), v5.NthWorker(3)}, agents)
	agents, err = v5.Data("count=0").Agents()
	require.NoError(t, err)
	require.Nil(t, agents)
	agents, err = v5.Data("agents=;count=0").Agents()
	require.NoError(t, err)
	require.Equal(t, []v5.Address{}, agents, "none is not silence")
	for _, bad := range []string{"agents=W1,x", "agents=W*", "agents=W1 W2", "agents=W100"} {
		_, err := v5.Data(bad).Agents()
		var e *v5.Error
		require.ErrorAs(t, err, &e, bad)
		require.Equal(t, v5.E13, e.Code())
	}
	written, err := new(v5.Writer).Agents(v5.NthWorker(1), v5.NthWorker(100)).Data()
	require.NoError(t, err)
	require.Equal(t, v5.Data("agents=W1,W1.1"), written)
}
