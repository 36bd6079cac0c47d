package v5_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestForbiddenInData: check 13, with the byte; quotes do not protect from it.
func TestForbiddenInData(t *testing.T) {
	t.Parallel()
	data := offset(v5.SegmentData)
	for bad, at := range map[string]int{
		"a|b": 1, "a>b": 1, `q="a|b"`: 4, `q="a>b"`: 4, "|": 0, "a\tb": 1, "a\x00": 1, "a\x1b[0m": 1, "a\x7f": 1, "é\u0085": 2, "é>": 2,
	} {
		m, e := refused(t, with(v5.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, v5.E12, e.Code(), "%q", bad)
		require.Equal(t, v5.SegmentData, e.Problems[0].Segment)
		require.Equal(t, data+at, e.Problems[0].At, "%q", bad)
		require.Empty(t, m.Data)
	}
	for _, fine := range []string{"<b", "a=b=c", "☃\u2028", "😀", "-", ";", `"`, "�"} {
		require.Equal(t, v5.Data(fine), parse(t, with(v5.SegmentData, fine)).Data)
	}
}

// TestDataIsText: bytes that are not UTF-8 are E10, where they stand.
func TestDataIsText(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"} {
		_, e := refused(t, with(v5.SegmentData, "aé"+bad))
		require.Equal(t, v5.E10, e.Code())
		require.Equal(t, offset(v5.SegmentData)+3, e.Problems[0].At)
		require.Contains(t, e.Problems[0].Detail, "not valid UTF-8")
	}
}

// TestDataIsTruncated: check 12 counts characters, and does not count auth.
func TestDataIsTruncated(t *testing.T) {
	t.Parallel()
	const auth = ";auth=S1:00aa:01234567"
	for _, unit := range []string{"x", "é", "😀"} {
		whole := strings.Repeat(unit, v5.MaxData)
		for _, end := range []string{"", auth} {
			m := parse(t, with(v5.SegmentData, whole+end))
			require.Zero(t, m.Warnings)
			require.Equal(t, v5.Data(whole), m.Data)

			m = parse(t, with(v5.SegmentData, whole+unit+end))
			require.Equal(t, v5.DataTruncated, m.Warnings)
			require.Equal(t, v5.Data(whole), m.Data)
			require.Equal(t, end != "", m.Auth != v5.Auth{})
			require.Equal(t, v5.MaxData, utf8.RuneCountInString(string(m.Data)))
		}
	}
	_, e := refused(t, with(v5.SegmentData, strings.Repeat("x", 300)+">"))
	require.Equal(t, v5.E12, e.Code(), "what is cut off is judged too")
}

// TestOpenQuotes are accepted with a warning.
func TestOpenQuotes(t *testing.T) {
	t.Parallel()
	m := parse(t, with(v5.SegmentData, `size=5";x=1`))
	require.Equal(t, v5.QuoteOpen, m.Warnings)
	value, _ := m.Data.Get("size")
	require.Equal(t, `5"`, value)
	require.Zero(t, parse(t, with(v5.SegmentData, `q="a;b"`)).Warnings)
}

// TestAuthIsTheLastPair, or the line is E90.
func TestAuthIsTheLastPair(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"a=1;auth=", "a=1;auth=S1", "a=1;auth=S1:00aa", "a=1;auth=S1:00aa:0123456", "a=1;auth=S1:00aa:012345678", "a=1;auth=S1:00ag:01234567",
		"a=1;auth=S1:0aa:01234567", "a=1;auth=1:00aa:01234567", "a=1;auth=S1:00aa:01234567;b=2", "a=1;auth=S1:00aa:01234567;;",
		"a=1;auth=S1:00aa:01234567;auth=S1:00aa:01234567", `q="x;auth=y"`, "auth=S1:00aa:01234567",
	} {
		m, e := refused(t, with(v5.SegmentData, bad))
		require.Len(t, e.Problems, 1)
		require.Equal(t, v5.E90, e.Code(), bad)
		require.Equal(t, v5.ReasonAuth, e.Reason(), bad)
		require.Equal(t, offset(v5.SegmentData)+max(0, strings.Index(bad, ";auth=")), e.Problems[0].At, bad)
		require.Zero(t, m.Auth)
	}
	_, e := refused(t, with(v5.SegmentData, ";auth=S1:00aa:01234567"))
	require.Equal(t, v5.E10, e.Code(), "DATA is required")
	require.Equal(t, "00aa", parse(t, with(v5.SegmentData, "a=1;auth=S1:00aa:01234567;")).Auth.Nonce, "a trailing semicolon is fine")
	require.Zero(t, parse(t, with(v5.SegmentData, "author=x;xauth=S1:00aa:01234567")).Auth)
}
