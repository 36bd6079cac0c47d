package v5_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// good is the line that the cases spoil in one segment.
const good = "M1|O1>W1|R|T1|P1|N|-|0|S1|B500|call=web_search"

// with returns good with another segment.
func with(segment v5.Segment, text string) string {
	fields := strings.Split(good, "|")
	fields[segment-1] = text
	return strings.Join(fields, "|")
}

// offset is where a segment of good begins.
func offset(segment v5.Segment) int {
	fields := strings.SplitN(good, "|", int(segment))
	return len(good) - len(fields[segment-1])
}

// refused returns what Parse says of a line that it must refuse.
func refused(t *testing.T, line string) (v5.Message, *v5.Error) {
	t.Helper()
	m, err := v5.Parse(line)
	var e *v5.Error
	require.ErrorAs(t, err, &e, line)
	require.NotEmpty(t, e.Problems)
	return m, e
}

func parse(tb testing.TB, line string) v5.Message {
	tb.Helper()
	m, err := v5.Parse(line)
	require.NoError(tb, err, line)
	return m
}

// TestEachCheckHasItsCode: the thirteen checks of §3.5, each with the segment, the byte
// and the reason of its refusal.
func TestEachCheckHasItsCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check   string
		segment v5.Segment
		code    v5.Code
		reason  string
		bad     []string
	}{
		{"2 MSG", v5.SegmentMessage, v5.E10, "", []string{"", "M", "1", "m1", "M10000", "M00001", "M-1", "M+1", "M1 ", " M1", "M1a", "M²", "M0"}},
		{"4 TYPE", v5.SegmentType, v5.E14, "", []string{"", "-", "r", "Z", "N", "RR", "R ", "*", "É", "|"[:0]}},
		{"5 TID", v5.SegmentTask, v5.E10, "", []string{"", "T", "1", "t1", "T1000", "T0001", "T-1", "--", "T0", "T00"}},
		{"6 PRI", v5.SegmentPriority, v5.E11, "", []string{"", "P", "P3", "p1", "P01", "1", "P1 "}},
		{"7 STATE", v5.SegmentState, v5.E15, v5.ReasonState, []string{"", "n", "Z", "NR", "E", " "}},
		{"8 ERR", v5.SegmentErr, v5.E10, "", []string{"", "E", "E1", "E100", "e10", "10", "E1a", "E-1"}},
		{"9 DEPTH", v5.SegmentDepth, v5.E16, v5.ReasonDepth, []string{"", "6", "9", "-1", "00", "1.", "a", "٣"}},
		{"10 CTX", v5.SegmentContext, v5.E10, "", []string{"", "S", "s1", "1", "SA", "S_1", "Sabcdefgh", "Sé", "S0", "S-"}},
		{"11 BUDGET", v5.SegmentBudget, v5.E10, "", []string{"", "B", "b1", "1", "B-1", "B1.5", "B10000", "B00001", "B1k"}},
		{"DATA is required", v5.SegmentData, v5.E10, "", []string{""}},
	} {
		t.Run(c.check, func(t *testing.T) {
			t.Parallel()
			for _, bad := range c.bad {
				_, e := refused(t, with(c.segment, bad))
				require.Len(t, e.Problems, 1, bad)
				p := e.Problems[0]
				require.Equal(t, c.code, p.Code, bad)
				require.Equal(t, c.code, e.Code())
				require.Equal(t, c.reason, e.Reason(), bad)
				require.Equal(t, c.segment, p.Segment, bad)
				require.Equal(t, offset(c.segment), p.At, bad)
				require.Contains(t, p.Detail, c.segment.String())
			}
		})
	}
}

// TestSegmentCount: check 1, and that a bar too many is one in DATA.
func TestSegmentCount(t *testing.T) {
	t.Parallel()
	for line, detail := range map[string]string{
		"":                                "the line is empty",
		"\r\n":                            "the line is empty",
		"hello":                           "the line has 1 segment, not 11, or 8 in V4",
		"M1|O1>W1|R|T1":                   "the line has 4 segments, not 11, or 8 in V4",
		"M1|O1>W1|R|T1|P1|N|-|data":       "the line has 8 segments, not 11",
		"||||||||||"[:9]:                  "the line has 10 segments, not 11, or 8 in V4",
		strings.Replace(good, "|", "", 1): "the line has 10 segments, not 11, or 8 in V4",
	} {
		_, e := refused(t, line)
		require.Len(t, e.Problems, 1, "what stands behind a gap is not judged: %s", line)
		require.Equal(t, v5.E10, e.Code())
		require.Equal(t, v5.SegmentLine, e.Problems[0].Segment)
		require.Equal(t, detail, e.Problems[0].Detail)
	}
	_, e := refused(t, good+"|caps")
	require.Equal(t, v5.E12, e.Code())
	require.Equal(t, len(good), e.Problems[0].At)
}

// TestBrokenLinesCanBeAnswered: what was read is returned with the error.
func TestBrokenLinesCanBeAnswered(t *testing.T) {
	t.Parallel()
	want := parse(t, good)
	for _, line := range []string{
		with(v5.SegmentPriority, "P7"), with(v5.SegmentState, "?"), with(v5.SegmentErr, "E"), with(v5.SegmentDepth, "7"),
		with(v5.SegmentBudget, "B"), with(v5.SegmentData, ""), good + "|x", good + "\xff",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500|" + strings.Repeat("x", v5.MaxLine),
	} {
		m, _ := refused(t, line)
		require.Equal(t, want.Number, m.Number, line)
		require.Equal(t, want.From, m.From, line)
		require.Equal(t, want.To, m.To, line)
		require.Equal(t, want.Task, m.Task, line)
		require.Equal(t, want.Context, m.Context, line)
	}
	m, _ := refused(t, "M7|W1>O1|S|T3|P1|R|-|0|S1")
	require.Equal(t, 7, m.Number)
	require.Empty(t, m.Context, "the ninth of nine segments is DATA")
}

// TestEveryProblemIsNamed in the order of the checks; the first is answered.
func TestEveryProblemIsNamed(t *testing.T) {
	t.Parallel()
	_, e := refused(t, "M|O|?|T|P|?|E|?|S|B|>")
	var codes []v5.Code
	for _, p := range e.Problems {
		codes = append(codes, p.Code)
	}
	require.Equal(t, []v5.Code{"E10", "E13", "E14", "E10", "E11", "E15", "E10", "E16", "E10", "E10", "E12"}, codes)
	require.Equal(t, v5.E10, e.Code())
	require.Contains(t, e.Error(), `E14 unknown message type: TYPE must be one of R S E C U A B H D J L K X Q, not "?"`)
	require.NoError(t, errors.Unwrap(e))
}
