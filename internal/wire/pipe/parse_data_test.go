package pipe_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// TestForbiddenInData: check 13, with the byte; quotes do not protect from it.
func TestForbiddenInData(t *testing.T) {
	t.Parallel()
	data := offset(pipe.SegmentData)
	for bad, at := range map[string]int{
		"a|b": 1, "a>b": 1, `q="a|b"`: 4, `q="a>b"`: 4, "|": 0, "a\tb": 1, "a\x00": 1, "a\x1b[0m": 1, "a\x7f": 1, "é\u0085": 2, "é>": 2,
	} {
		m, e := refused(t, with(pipe.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, pipe.E12, e.Code(), "%q", bad)
		require.Equal(t, pipe.SegmentData, e.Problems[0].Segment)
		require.Equal(t, data+at, e.Problems[0].At, "%q", bad)
		require.Empty(t, m.Data)
	}
	for _, fine := range []string{"<b", "a=b=c", "☃\u2028", "😀", "-", ";", `"`, "�"} {
		require.Equal(t, pipe.Data(fine), parse(t, with(pipe.SegmentData, fine)).Data)
	}
}

// TestDataIsText: bytes that are not UTF-8 are E10, where they stand.
func TestDataIsText(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"} {
		_, e := refused(t, with(pipe.SegmentData, "aé"+bad))
		require.Equal(t, pipe.E10, e.Code())
		require.Equal(t, offset(pipe.SegmentData)+3, e.Problems[0].At)
		require.Contains(t, e.Problems[0].Detail, "not valid UTF-8")
	}
}

// TestDataIsTruncated: check 12 counts characters, and does not count auth.
func TestDataIsTruncated(t *testing.T) {
	t.Parallel()
	const auth = ";auth=S1:00aa:01234567"
	for _, unit := range []string{"x", "é", "😀"} {
		whole := strings.Repeat(unit, pipe.MaxData)
		for _, end := range []string{"", auth} {
			m := parse(t, with(pipe.SegmentData, whole+end))
			require.Zero(t, m.Warnings)
			require.Equal(t, pipe.Data(whole), m.Data)

			m = parse(t, with(pipe.SegmentData, whole+unit+end))
			require.Equal(t, pipe.DataTruncated, m.Warnings)
			require.Equal(t, pipe.Data(whole), m.Data)
			require.Equal(t, end != "", m.Auth != pipe.Auth{})
			require.Equal(t, pipe.MaxData, utf8.RuneCountInString(string(m.Data)))
		}
	}
	_, e := refused(t, with(pipe.SegmentData, strings.Repeat("x", 300)+">"))
	require.Equal(t, pipe.E12, e.Code(), "what is cut off is judged too")
}

// TestOpenQuotes are accepted with a warning.
func TestOpenQuotes(t *testing.T) {
	t.Parallel()
	m := parse(t, with(pipe.SegmentData, `size=5";x=1`))
	require.Equal(t, pipe.QuoteOpen, m.Warnings)
	value, _ := m.Data.Get("size")
	require.Equal(t, `5"`, value)
	require.Zero(t, parse(t, with(pipe.SegmentData, `q="a;b"`)).Warnings)
}

// TestAuthIsTheLastPair, or the line is E90.
func TestAuthIsTheLastPair(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"a=1;auth=", "a=1;auth=S1", "a=1;auth=S1:00aa", "a=1;auth=S1:00aa:0123456", "a=1;auth=S1:00aa:012345678", "a=1;auth=S1:00ag:01234567",
		"a=1;auth=S1:0aa:01234567", "a=1;auth=1:00aa:01234567", "a=1;auth=S1:00aa:01234567;b=2", "a=1;auth=S1:00aa:01234567;;",
		"a=1;auth=S1:00aa:01234567;auth=S1:00aa:01234567", `q="x;auth=y"`, "auth=S1:00aa:01234567",
	} {
		m, e := refused(t, with(pipe.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, pipe.E90, e.Code(), bad)
		require.Equal(t, pipe.ReasonAuth, e.Reason(), bad)
		require.Equal(t, offset(pipe.SegmentData)+max(0, strings.Index(bad, ";auth=")), e.Problems[0].At, bad)
		require.Zero(t, m.Auth)
	}
	_, e := refused(t, with(pipe.SegmentData, ";auth=S1:00aa:01234567"))
	require.Equal(t, pipe.E10, e.Code(), "DATA is required")
	require.Equal(t, "00aa", parse(t, with(pipe.SegmentData, "a=1;auth=S1:00aa:01234567;")).Auth.Nonce, "a trailing semicolon is fine")
	require.Zero(t, parse(t, with(pipe.SegmentData, "author=x;xauth=S1:00aa:01234567")).Auth)
}
