package v5_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestEverySegmentIsRead: a line with something in each.
func TestEverySegmentIsRead(t *testing.T) {
	t.Parallel()
	from, err := v5.ParseAddress("W7.2")
	require.NoError(t, err)
	require.Equal(t, v5.Message{
		Number: 9999, From: from, To: v5.Address{Role: v5.Orchestrator, Number: 1},
		Type: v5.Failure, Task: v5.TaskOf(999), Priority: v5.P0, State: v5.Failed, Err: v5.E33,
		Depth: 5, Context: "Sabc12z", Budget: v5.BudgetOf(9999), Data: "desc=é",
		Auth: v5.Auth{Session: "S1", Nonce: "00aF", Signature: "0123abCD"},
	}, parse(t, "M9999|W7.2>O1|E|T999|P0|F|E33|5|Sabc12z|B9999|desc=é;auth=S1:00aF:0123abCD\r\n"))
}

// TestDefaults: what a - means, and that it is written as it was.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const line = "M1|O1>W1|R|-|-|-|-|0|-|-|x"
	m := parse(t, line)
	_, hasTask := m.Task.Number()
	_, hasBudget := m.Budget.Tokens()
	require.False(t, hasTask)
	require.False(t, hasBudget)
	require.Equal(t, v5.NoPriority, m.Priority)
	require.Equal(t, v5.P1, m.Priority.OrDefault())
	require.Equal(t, v5.P2, v5.P2.OrDefault())
	require.Equal(t, v5.NoState, m.State)
	require.Empty(t, m.Err)
	require.Empty(t, m.Context)
	require.Zero(t, m.Warnings)
	written, err := v5.Format(m)
	require.NoError(t, err)
	require.Equal(t, line, written)
	for _, said := range []string{"P0", "P1", "P2"} {
		require.Equal(t, said, parse(t, with(v5.SegmentPriority, said)).Priority.String())
	}
	require.Equal(t, "-", v5.NoPriority.String())
	require.Equal(t, v5.E00, parse(t, with(v5.SegmentErr, "E00")).Err, "no error is not no code")
}

// TestSystemTraffic: M0, T0 and S0 stand in messages of the registry and in what
// answers them, and nowhere else.
func TestSystemTraffic(t *testing.T) {
	t.Parallel()
	for _, kind := range v5.Types() {
		require.True(t, kind.Valid())
		system := strings.Contains("JLKQHASE", kind.String())
		require.Equal(t, system, kind.System(), kind.String())
		for segment, text := range map[v5.Segment]string{v5.SegmentMessage: "M0", v5.SegmentTask: "T0", v5.SegmentContext: "S0"} {
			line := strings.Replace(with(segment, text), "|R|", "|"+kind.String()+"|", 1)
			if system {
				parse(t, line)
				continue
			}
			_, e := refused(t, line)
			require.Equal(t, v5.E10, e.Code())
			require.Equal(t, segment, e.Problems[0].Segment)
			require.Contains(t, e.Problems[0].Detail, "outside of system traffic")
		}
	}
	_, e := refused(t, "M0|O1>W1|?|T0|P1|N|-|0|S0|-|x")
	require.Len(t, e.Problems, 1, "of an unknown type only that is said")
	parse(t, with(v5.SegmentContext, "S00"))
}

// TestNumbersMayHaveLeadingZeros, as the patterns of §3.5 have it, and lose them.
func TestNumbersMayHaveLeadingZeros(t *testing.T) {
	t.Parallel()
	written, err := v5.Format(parse(t, "M0001|O1>W1|R|T001|P1|N|-|0|S1|B0500|call=web_search"))
	require.NoError(t, err)
	require.Equal(t, good, written)
}

// TestDepthMissing: the - of the handshake is 0, with a warning.
func TestDepthMissing(t *testing.T) {
	t.Parallel()
	m := parse(t, with(v5.SegmentDepth, "-"))
	require.Zero(t, m.Depth)
	require.True(t, m.Warnings.Has(v5.DepthMissing))
	require.Equal(t, "depth_missing", m.Warnings.String())
	written, err := v5.Format(m)
	require.NoError(t, err)
	require.Equal(t, good, written)
	require.Equal(t, "data_truncated,depth_missing,quote_open", (v5.DataTruncated | v5.DepthMissing | v5.QuoteOpen).String())
	require.Empty(t, v5.Warnings(0).String())
}

// TestLineBreaks: one at the end is no part of the line, one within is E12.
func TestLineBreaks(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "\n", "\r\n", "\r"} {
		require.Equal(t, parse(t, good), parse(t, good+end))
	}
	for _, end := range []string{"\n\n", "\n\r", "\n" + good, "\r\r\n"} {
		_, e := refused(t, good+end)
		require.Equal(t, v5.E12, e.Code(), "%q", end)
	}
}

// TestLongLines: one byte more than MaxLine is E10.
func TestLongLines(t *testing.T) {
	t.Parallel()
	longest := good + strings.Repeat("x", v5.MaxLine-len(good))
	require.Equal(t, v5.DataTruncated, parse(t, longest+"\r\n").Warnings)
	_, e := refused(t, longest+"x")
	require.Len(t, e.Problems, 1)
	require.Equal(t, v5.Problem{Code: v5.E10, At: v5.MaxLine, Detail: "the line is longer than 65536 bytes"}, e.Problems[0])
	require.Less(t, len(e.Error()), 200)
}
