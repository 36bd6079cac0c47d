package v5_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// good is the message in which the cases replace one segment.
const good = "M1|O1>W1|R|T1|P1|N|-|0|S1|B500|call=web_search"

// with returns good with another segment.
func with(segment v5.Segment, text string) string {
	fields := strings.Split(good, "|")
	fields[segment-1] = text
	return strings.Join(fields, "|")
}

// rejected requires that Parse rejects a message, and returns its results.
func rejected(t *testing.T, line string) (v5.Message, *v5.Error) {
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

// TestChecks tests the thirteen checks of §3.5, each with its code, segment and reason.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check   string
		segment v5.Segment
		code    codes.Code
		reason  string
		bad     []string
	}{
		{"2 MSG", v5.SegmentMessage, codes.E10, "", []string{"", "M", "1", "m1", "M10000", "M00001", "M-1", "M+1", "M1 ", " M1", "M1a", "M²", "M0"}},
		{"4 TYPE", v5.SegmentType, codes.E14, "", []string{"", "-", "r", "Z", "N", "RR", "R ", "*", "É", "|"[:0]}},
		{"5 TID", v5.SegmentTask, codes.E10, "", []string{"", "T", "1", "t1", "T1000", "T0001", "T-1", "--", "T0", "T00"}},
		{"6 PRI", v5.SegmentPriority, codes.E11, "", []string{"", "P", "P3", "p1", "P01", "1", "P1 "}},
		{"7 STATE", v5.SegmentState, codes.E15, codes.ReasonState, []string{"", "n", "Z", "NR", "E", " "}},
		{"8 ERR", v5.SegmentErr, codes.E10, "", []string{"", "E", "E1", "E100", "e10", "10", "E1a", "E-1"}},
		{"9 DEPTH", v5.SegmentDepth, codes.E16, codes.ReasonDepth, []string{"", "6", "9", "-1", "00", "1.", "a", "٣"}},
		{"10 CTX", v5.SegmentContext, codes.E10, "", []string{"", "S", "s1", "1", "SA", "S_1", "Sabcdefgh", "Sé", "S0", "S-"}},
		{"11 BUDGET", v5.SegmentBudget, codes.E10, "", []string{"", "B", "b1", "1", "B-1", "B1.5", "B10000", "B00001", "B1k"}},
		{"DATA is required", v5.SegmentData, codes.E10, "", []string{""}},
	} {
		t.Run(c.check, func(t *testing.T) {
			t.Parallel()
			for _, bad := range c.bad {
				_, e := rejected(t, with(c.segment, bad))
				require.Len(t, e.Problems, 1, bad)
				p := e.Problems[0]
				require.Equal(t, c.code, p.Code, bad)
				require.Equal(t, c.code, e.Code())
				require.Equal(t, c.reason, e.Reason(), bad)
				require.Contains(t, p.Detail, c.segment.String())
			}
		})
	}
}

// TestSegmentCount tests check 1; a bar too many is one in DATA.
func TestSegmentCount(t *testing.T) {
	t.Parallel()
	for line, detail := range map[string]string{
		"":                                "the message is empty",
		"\r\n":                            "the message is empty",
		"hello":                           "the message has 1 segment, not 11, or 8 in V4",
		"M1|O1>W1|R|T1":                   "the message has 4 segments, not 11, or 8 in V4",
		"M1|O1>W1|R|T1|P1|N|-|data":       "the message has 8 segments, not 11",
		"||||||||||"[:9]:                  "the message has 10 segments, not 11, or 8 in V4",
		strings.Replace(good, "|", "", 1): "the message has 10 segments, not 11, or 8 in V4",
	} {
		_, e := rejected(t, line)
		require.Len(t, e.Problems, 1, "segments after a gap are not checked: %s", line)
		require.Equal(t, codes.E10, e.Code())
		require.Equal(t, detail, e.Problems[0].Detail)
	}
	_, e := rejected(t, good+"|caps")
	require.Equal(t, codes.E12, e.Code())
}

// TestInvalidMessages: Parse returns the parsed segments with the error.
func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	want := parse(t, good)
	for _, line := range []string{
		with(v5.SegmentPriority, "P7"), with(v5.SegmentState, "?"), with(v5.SegmentErr, "E"), with(v5.SegmentDepth, "7"),
		with(v5.SegmentBudget, "B"), with(v5.SegmentData, ""), good + "|x", good + "\xff",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500",
		"M1|O1>W1|R|T1|P1|N|-|0|S1|B500|" + strings.Repeat("x", v5.MaxLine),
	} {
		m, _ := rejected(t, line)
		require.Equal(t, want.Number, m.Number, line)
		require.Equal(t, want.From, m.From, line)
		require.Equal(t, want.To, m.To, line)
		require.Equal(t, want.Task, m.Task, line)
		require.Equal(t, want.Context, m.Context, line)
	}
	m, _ := rejected(t, "M7|W1>O1|S|T3|P1|R|-|0|S1")
	require.Equal(t, 7, m.Number)
	require.Empty(t, m.Context, "the ninth of nine segments is DATA")
}

// TestProblems: the problems are in the order of the checks, and the first is that of the reply.
func TestProblems(t *testing.T) {
	t.Parallel()
	_, e := rejected(t, "M|O|?|T|P|?|E|?|S|B|>")
	var all []codes.Code
	for _, p := range e.Problems {
		all = append(all, p.Code)
	}
	require.Equal(t, []codes.Code{"E10", "E13", "E14", "E10", "E11", "E15", "E10", "E16", "E10", "E10", "E12"}, all)
	require.Equal(t, codes.E10, e.Code())
	require.Contains(t, e.Error(), `E14 unknown message type: TYPE must be one of R S E C U A B H D J L K X Q, not "?"`)
	require.NoError(t, errors.Unwrap(e))
}

// TestParse parses a message with a value in every segment.
func TestParse(t *testing.T) {
	t.Parallel()
	from, err := v5.ParseAddress("W7.2")
	require.NoError(t, err)
	require.Equal(t, v5.Message{
		Number: 9999, From: from, To: v5.Address{Role: v5.Orchestrator, Number: 1},
		Type: v5.Failure, Task: v5.NewTask(999), Priority: v5.P0, State: v5.Failed, Err: codes.E33,
		Depth: 5, Context: "Sabc12z", Budget: v5.NewBudget(9999), Data: "desc=é",
		Auth: v5.Auth{Session: "S1", Nonce: "00aF", Signature: "0123abCD"},
	}, parse(t, "M9999|W7.2>O1|E|T999|P0|F|E33|5|Sabc12z|B9999|desc=é;auth=S1:00aF:0123abCD\r\n"))
}

// TestDefaults: - has its default, and is written again as -.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const line = "M1|O1>W1|R|-|-|-|-|0|-|-|x"
	m := parse(t, line)
	_, hasTask := m.Task.Number()
	_, hasBudget := m.Budget.Tokens()
	require.False(t, hasTask)
	require.False(t, hasBudget)
	require.Equal(t, v5.Priority(0), m.Priority)
	require.Equal(t, v5.P1, m.Priority.OrDefault())
	require.Equal(t, v5.P2, v5.P2.OrDefault())
	require.Equal(t, v5.State(0), m.State)
	require.Empty(t, m.Err)
	require.Empty(t, m.Context)
	require.Zero(t, m.Warnings)
	written, err := m.Format()
	require.NoError(t, err)
	require.Equal(t, line, written)
	for _, p := range []string{"P0", "P1", "P2"} {
		require.Equal(t, p, parse(t, with(v5.SegmentPriority, p)).Priority.String())
	}
	require.Equal(t, "-", v5.Priority(0).String())
	require.Equal(t, codes.E00, parse(t, with(v5.SegmentErr, "E00")).Err, "E00 differs from -")
}

// TestSystemTraffic: only messages of the registry and replies to them can have M0, T0 and S0.
func TestSystemTraffic(t *testing.T) {
	t.Parallel()
	for _, letter := range "RSECUABHDJLKXQ" {
		kind := v5.Type(letter)
		system := strings.Contains("JLKQHASE", kind.String())
		require.Equal(t, system, kind.IsSystem(), kind.String())
		for segment, text := range map[v5.Segment]string{v5.SegmentMessage: "M0", v5.SegmentTask: "T0", v5.SegmentContext: "S0"} {
			line := strings.Replace(with(segment, text), "|R|", "|"+kind.String()+"|", 1)
			if system {
				parse(t, line)
				continue
			}
			_, e := rejected(t, line)
			require.Equal(t, codes.E10, e.Code())
			require.Contains(t, e.Problems[0].Detail, "outside of system traffic")
		}
	}
	_, e := rejected(t, with(v5.SegmentContext, "S0"))
	require.Equal(t, "CTX must be a session such as S1, or -, outside of system traffic, not \"S0\"", e.Problems[0].Detail)
	_, e = rejected(t, "M0|O1>W1|?|T0|P1|N|-|0|S0|-|x")
	require.Len(t, e.Problems, 1, "a message with an unknown type has no other problem")
	parse(t, with(v5.SegmentContext, "S00"))
}

// TestLeadingZeros: numbers can have leading zeros, as the patterns of §3.5 allow, and lose them.
func TestLeadingZeros(t *testing.T) {
	t.Parallel()
	written, err := parse(t, "M0001|O1>W1|R|T001|P1|N|-|0|S1|B0500|call=web_search").Format()
	require.NoError(t, err)
	require.Equal(t, good, written)
}

// TestDepthMissing: - as DEPTH, as in the handshake, is 0 with a warning.
func TestDepthMissing(t *testing.T) {
	t.Parallel()
	m := parse(t, with(v5.SegmentDepth, "-"))
	require.Zero(t, m.Depth)
	require.True(t, m.Warnings.Has(v5.DepthMissing))
	require.Equal(t, "depth_missing", m.Warnings.String())
	written, err := m.Format()
	require.NoError(t, err)
	require.Equal(t, good, written)
	require.Equal(t, "data_truncated,depth_missing,quote_open", (v5.DataTruncated | v5.DepthMissing | v5.QuoteOpen).String())
	require.Empty(t, v5.Warnings(0).String())
}

// TestLineBreaks: a line break at the end is ignored, any other is E12.
func TestLineBreaks(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "\n", "\r\n", "\r"} {
		require.Equal(t, parse(t, good), parse(t, good+end))
	}
	for _, end := range []string{"\n\n", "\n\r", "\n" + good, "\r\r\n"} {
		_, e := rejected(t, good+end)
		require.Equal(t, codes.E12, e.Code(), "%q", end)
	}
}

// TestLongMessages: one byte more than MaxLine is E10.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	longest := good + strings.Repeat("x", v5.MaxLine-len(good))
	require.Equal(t, v5.DataTruncated, parse(t, longest+"\r\n").Warnings)
	_, e := rejected(t, longest+"x")
	require.Len(t, e.Problems, 1)
	require.Equal(t, v5.Problem{Code: codes.E10, Detail: "the message is longer than 65536 bytes"}, e.Problems[0])
	require.Less(t, len(e.Error()), 200)
}

// TestForbiddenInData tests check 13; quotes do not protect.
func TestForbiddenInData(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a|b", "a>b", `q="a|b"`, `q="a>b"`, "|", "a\tb", "a\x00", "a\x1b[0m", "a\x7f", "é\u0085", "é>"} {
		m, e := rejected(t, with(v5.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, codes.E12, e.Code(), "%q", bad)
		require.Empty(t, m.Data)
	}
	for _, fine := range []string{"<b", "a=b=c", "☃\u2028", "😀", "-", ";", `"`, "�"} {
		require.Equal(t, v5.Data(fine), parse(t, with(v5.SegmentData, fine)).Data)
	}
}

// TestInvalidUTF8: bytes that are not UTF-8 are E10.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"} {
		_, e := rejected(t, with(v5.SegmentData, "aé"+bad))
		require.Equal(t, codes.E10, e.Code())
		require.Contains(t, e.Problems[0].Detail, "not valid UTF-8")
	}
}

// TestTruncatedData: check 12 counts characters, without auth.
func TestTruncatedData(t *testing.T) {
	t.Parallel()
	const auth = ";auth=S1:00aa:01234567"
	for _, unit := range []string{"x", "é", "😀"} {
		full := strings.Repeat(unit, v5.MaxData)
		for _, end := range []string{"", auth} {
			m := parse(t, with(v5.SegmentData, full+end))
			require.Zero(t, m.Warnings)
			require.Equal(t, v5.Data(full), m.Data)

			m = parse(t, with(v5.SegmentData, full+unit+end))
			require.Equal(t, v5.DataTruncated, m.Warnings)
			require.Equal(t, v5.Data(full), m.Data)
			require.Equal(t, end != "", m.Auth != v5.Auth{})
			require.Equal(t, v5.MaxData, utf8.RuneCountInString(string(m.Data)))
		}
	}
	_, e := rejected(t, with(v5.SegmentData, strings.Repeat("x", 300)+">"))
	require.Equal(t, codes.E12, e.Code(), "the truncated part is checked too")
}

// TestOpenQuotes: an unpaired quote is accepted with a warning.
func TestOpenQuotes(t *testing.T) {
	t.Parallel()
	m := parse(t, with(v5.SegmentData, `size=5";x=1`))
	require.Equal(t, v5.QuoteOpen, m.Warnings)
	value, _ := m.Data.Get("size")
	require.Equal(t, `5"`, value)
	require.Zero(t, parse(t, with(v5.SegmentData, `q="a;b"`)).Warnings)
}

// TestAuthPosition: auth must be the last pair; otherwise the message is E90.
func TestAuthPosition(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"a=1;auth=", "a=1;auth=S1", "a=1;auth=S1:00aa", "a=1;auth=S1:00aa:0123456", "a=1;auth=S1:00aa:012345678", "a=1;auth=S1:00ag:01234567",
		"a=1;auth=S1:0aa:01234567", "a=1;auth=1:00aa:01234567", "a=1;auth=S1:00aa:01234567;b=2", "a=1;auth=S1:00aa:01234567;;",
		"a=1;auth=S1:00aa:01234567;auth=S1:00aa:01234567", `q="x;auth=y"`, "auth=S1:00aa:01234567",
	} {
		m, e := rejected(t, with(v5.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, codes.E90, e.Code(), bad)
		require.Equal(t, codes.ReasonAuth, e.Reason(), bad)
		require.Zero(t, m.Auth)
	}
	_, e := rejected(t, with(v5.SegmentData, ";auth=S1:00aa:01234567"))
	require.Equal(t, codes.E10, e.Code(), "DATA is required")
	require.Equal(t, "00aa", parse(t, with(v5.SegmentData, "a=1;auth=S1:00aa:01234567;")).Auth.Nonce, "a trailing semicolon is fine")
	require.Zero(t, parse(t, with(v5.SegmentData, "author=x;xauth=S1:00aa:01234567")).Auth)
}
