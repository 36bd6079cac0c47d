package pipe_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// good is the line that the cases spoil in one segment.
const good = "M1|O1>W1|R|T1|P1|N|-|0|S1|B500|call=web_search"

// with returns good with another segment.
func with(segment pipe.Segment, text string) string {
	fields := strings.Split(good, "|")
	fields[segment-1] = text
	return strings.Join(fields, "|")
}

// offset is where a segment of good begins.
func offset(segment pipe.Segment) int {
	fields := strings.SplitN(good, "|", int(segment))
	return len(good) - len(fields[segment-1])
}

// refused returns what Parse says of a line that it must refuse.
func refused(t *testing.T, line string) (pipe.Message, *pipe.Error) {
	t.Helper()
	m, err := pipe.Parse(line)
	var e *pipe.Error
	require.ErrorAs(t, err, &e, line)
	require.NotEmpty(t, e.Problems)
	return m, e
}

func parse(tb testing.TB, line string) pipe.Message {
	tb.Helper()
	m, err := pipe.Parse(line)
	require.NoError(tb, err, line)
	return m
}

// TestEachCheckHasItsCode: the thirteen checks of §3.5, each with the segment, the byte
// and the reason of its refusal.
func TestEachCheckHasItsCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check   string
		segment pipe.Segment
		code    pipe.Code
		reason  string
		bad     []string
	}{
		{"2 MSG", pipe.SegmentMessage, pipe.E10, "", []string{"", "M", "1", "m1", "M10000", "M00001", "M-1", "M+1", "M1 ", " M1", "M1a", "M²", "M0"}},
		{"4 TYPE", pipe.SegmentType, pipe.E14, "", []string{"", "-", "r", "Z", "N", "RR", "R ", "*", "É", "|"[:0]}},
		{"5 TID", pipe.SegmentTask, pipe.E10, "", []string{"", "T", "1", "t1", "T1000", "T0001", "T-1", "--", "T0", "T00"}},
		{"6 PRI", pipe.SegmentPriority, pipe.E11, "", []string{"", "P", "P3", "p1", "P01", "1", "P1 "}},
		{"7 STATE", pipe.SegmentState, pipe.E15, pipe.ReasonState, []string{"", "n", "Z", "NR", "E", " "}},
		{"8 ERR", pipe.SegmentErr, pipe.E10, "", []string{"", "E", "E1", "E100", "e10", "10", "E1a", "E-1"}},
		{"9 DEPTH", pipe.SegmentDepth, pipe.E16, pipe.ReasonDepth, []string{"", "6", "9", "-1", "00", "1.", "a", "٣"}},
		{"10 CTX", pipe.SegmentContext, pipe.E10, "", []string{"", "S", "s1", "1", "SA", "S_1", "Sabcdefgh", "Sé", "S0", "S-"}},
		{"11 BUDGET", pipe.SegmentBudget, pipe.E10, "", []string{"", "B", "b1", "1", "B-1", "B1.5", "B10000", "B00001", "B1k"}},
		{"DATA is required", pipe.SegmentData, pipe.E10, "", []string{""}},
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
		require.Equal(t, pipe.E10, e.Code())
		require.Equal(t, pipe.SegmentLine, e.Problems[0].Segment)
		require.Equal(t, detail, e.Problems[0].Detail)
	}
	_, e := refused(t, good+"|caps")
	require.Equal(t, pipe.E12, e.Code())
	require.Equal(t, len(good), e.Problems[0].At)
}

// TestBrokenLinesCanBeAnswered: what was read is returned with the error.
func TestBrokenLinesCanBeAnswered(t *testing.T) {
	t.Parallel()
	want := parse(t, good)
	for _, line := range []string{
		with(pipe.SegmentPriority, "P7"), with(pipe.SegmentState, "?"), with(pipe.SegmentErr, "E"), with(pipe.SegmentDepth, "7"),
		with(pipe.SegmentBudget, "B"), with(pipe.SegmentData, ""), good + "|x", good + "\xff",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500|" + strings.Repeat("x", pipe.MaxLine),
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
	var codes []pipe.Code
	for _, p := range e.Problems {
		codes = append(codes, p.Code)
	}
	require.Equal(t, []pipe.Code{"E10", "E13", "E14", "E10", "E11", "E15", "E10", "E16", "E10", "E10", "E12"}, codes)
	require.Equal(t, pipe.E10, e.Code())
	require.Contains(t, e.Error(), `E14 unknown message type: TYPE must be one of R S E C U A B H D J L K X Q, not "?"`)
	require.NoError(t, errors.Unwrap(e))
}
