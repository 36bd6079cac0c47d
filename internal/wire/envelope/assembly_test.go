package envelope_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// chunk makes one of a text and a range that must be good.
func chunk(tb testing.TB, text, bytes string) envelope.Chunk {
	tb.Helper()
	r, err := envelope.ParseRange(bytes)
	require.NoError(tb, err)
	return envelope.Chunk{Range: r, Text: text}
}

// keep writes pieces where they belong, each place only once.
func keep(tb testing.TB, output []byte, pieces []envelope.Chunk) []byte {
	tb.Helper()
	for _, p := range pieces {
		require.Equal(tb, p.To-p.From, int64(len(p.Text)))
		if missing := int(p.To) - len(output); missing > 0 {
			output = append(output, make([]byte, missing)...)
		}
		require.Equal(tb, make([]byte, len(p.Text)), output[p.From:p.To], "%s is new", p.Range)
		copy(output[p.From:], p.Text)
	}
	return output
}

func TestAssemblyTakesChunksAsTheyCome(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]envelope.Chunk{
		"in order":              {chunk(t, "abc", "bytes 0-3 of 9"), chunk(t, "def", "bytes 3-6 of 9"), chunk(t, "ghi", "bytes 6-9 of 9")},
		"backwards":             {chunk(t, "ghi", "bytes 6-9 of 9"), chunk(t, "def", "bytes 3-6 of 9"), chunk(t, "abc", "bytes 0-3 of 9")},
		"repeated":              {chunk(t, "abc", "bytes 0-3 of 9"), chunk(t, "abc", "bytes 0-3 of 9"), chunk(t, "defghi", "bytes 3-9 of 9"), chunk(t, "def", "bytes 3-6 of 9")},
		"overlapping":           {chunk(t, "abcde", "bytes 0-5"), chunk(t, "cdefg", "bytes 2-7"), chunk(t, "fghi", "bytes 5-9")},
		"around what was there": {chunk(t, "c", "bytes 2-3"), chunk(t, "fg", "bytes 5-7"), chunk(t, "abcdefghi", "bytes 0-9 of 9")},
		"a total late":          {chunk(t, "abc", "bytes 0-3"), chunk(t, "ghi", "bytes 6-9 of 9"), chunk(t, "def", "bytes 3-6")},
		"without a total":       {chunk(t, "def", "bytes 3-6"), chunk(t, "ghi", "bytes 6-9"), chunk(t, "abc", "bytes 0-3")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a envelope.Assembly
			var output []byte
			for _, c := range sent {
				pieces, err := a.Add(c)
				require.NoError(t, err)
				output = keep(t, output, pieces)
			}
			require.NoError(t, a.Complete())
			require.Equal(t, "abcdefghi", string(output))
			require.Equal(t, []envelope.Range{{From: 0, To: 9}}, a.Parts())
		})
	}
}

func TestAssemblyReturnsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	var a envelope.Assembly
	for _, c := range []struct {
		sent envelope.Chunk
		want []string
	}{
		{chunk(t, "cd", "bytes 2-4"), []string{"bytes 2-4 cd"}},
		{chunk(t, "gh", "bytes 6-8 of 10"), []string{"bytes 6-8 of 10 gh"}},
		{chunk(t, "cd", "bytes 2-4"), nil},
		{chunk(t, "BCDEFGHI", "bytes 1-9"), []string{"bytes 1-2 of 10 B", "bytes 4-6 of 10 EF", "bytes 8-9 of 10 I"}},
		{chunk(t, "abc", "bytes 0-3"), []string{"bytes 0-1 of 10 a"}},
		{chunk(t, "ij", "bytes 8-10"), []string{"bytes 9-10 of 10 j"}},
	} {
		pieces, err := a.Add(c.sent)
		require.NoError(t, err)
		var got []string
		for _, p := range pieces {
			got = append(got, p.Range.String()+" "+p.Text)
		}
		require.Equal(t, c.want, got)
	}
	require.NoError(t, a.Complete())
	require.Equal(t, int64(10), a.Total())
}

func TestAssemblyRefusesConflictsAndStaysAsItWas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent   envelope.Chunk
		detail string
	}{
		"a text too short":          {chunk(t, "ab", "bytes 0-3 of 9"), "bytes 0-3 of 9 has 3 bytes and the output 2"},
		"a text too long":           {chunk(t, "é", "bytes 0-1"), "bytes 0-1 has 1 bytes and the output 2"},
		"another total":             {chunk(t, "a", "bytes 0-1 of 10"), "must keep to one total, bytes 0-1 of 10 does not: it was 9 before"},
		"a range behind the total":  {chunk(t, "j", "bytes 9-10"), "must end within the total of 9, bytes up to 10 were sent"},
		"a range without beginning": {envelope.Chunk{Range: envelope.Range{From: -1, To: 1}, Text: "ab"}, "must end behind its beginning"},
		"a range of nothing":        {envelope.Chunk{}, "must end behind its beginning"},
		"a range too long": {envelope.Chunk{Range: envelope.Range{To: 262145}, Text: strings.Repeat("a", 262145)},
			"must be of at most 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a envelope.Assembly
			_, err := a.Add(chunk(t, "def", "bytes 3-6 of 9"))
			require.NoError(t, err)
			pieces, err := a.Add(c.sent)
			require.Nil(t, pieces)
			requireProblem(t, err, "payload.step.output_chunk", c.detail)
			require.Equal(t, []envelope.Range{{From: 3, To: 6}}, a.Parts())
			require.Equal(t, int64(9), a.Total())
		})
	}
}

// TestATotalBelowWhatWasSentIsAConflict, also where it comes afterwards.
func TestATotalBelowWhatWasSentIsAConflict(t *testing.T) {
	t.Parallel()
	var a envelope.Assembly
	_, err := a.Add(chunk(t, "ghi", "bytes 6-9"))
	require.NoError(t, err)
	_, err = a.Add(chunk(t, "a", "bytes 0-1 of 8"))
	requireProblem(t, err, "payload.step.output_chunk", "must end within the total of 8, bytes up to 9 were sent")
	require.Zero(t, a.Total())
}

func TestAGapIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent []envelope.Chunk
		gap  string
	}{
		"at the beginning":  {[]envelope.Chunk{chunk(t, "d", "bytes 3-4 of 9")}, "bytes 0-3 of 9"},
		"in between":        {[]envelope.Chunk{chunk(t, "a", "bytes 0-1"), chunk(t, "c", "bytes 2-3"), chunk(t, "e", "bytes 4-5")}, "bytes 1-2"},
		"at the end":        {[]envelope.Chunk{chunk(t, "a", "bytes 0-1 of 9")}, "bytes 1-9 of 9"},
		"none that is seen": {[]envelope.Chunk{chunk(t, "a", "bytes 0-1")}, ""},
		"nothing was sent":  {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a envelope.Assembly
			for _, chunk := range c.sent {
				_, err := a.Add(chunk)
				require.NoError(t, err)
			}
			gap, ok := a.Gap()
			if c.gap == "" {
				require.False(t, ok)
				require.NoError(t, a.Complete())
				return
			}
			require.True(t, ok)
			require.Equal(t, c.gap, gap.String())
			requireProblem(t, a.Complete(), "payload.step.output_chunk", "have a gap: "+c.gap+" never came")
		})
	}
}

// TestTheNumberOfGapsIsBounded, so that small chunks cannot fill the memory.
func TestTheNumberOfGapsIsBounded(t *testing.T) {
	t.Parallel()
	var a envelope.Assembly
	for i := range 1024 {
		_, err := a.Add(chunk(t, "x", fmt.Sprintf("bytes %d-%d", 2*i, 2*i+1)))
		require.NoError(t, err)
	}
	_, err := a.Add(chunk(t, "x", "bytes 9998-9999"))
	requireProblem(t, err, "payload.step.output_chunk", "must not leave more than 1024 gaps")
	_, err = a.Add(chunk(t, "y", "bytes 1-2"))
	require.NoError(t, err, "what closes a gap is welcome")
	_, err = a.Add(chunk(t, "x", "bytes 9998-9999"))
	require.NoError(t, err)
}

// TestResumeGoesOnWhereItWas: another replica, or this one after a restart.
func TestResumeGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	var before envelope.Assembly
	for _, c := range []envelope.Chunk{chunk(t, "i", "bytes 8-9"), chunk(t, "a", "bytes 0-1 of 9"), chunk(t, "d", "bytes 3-4")} {
		_, err := before.Add(c)
		require.NoError(t, err)
	}
	after, err := envelope.Resume(before.Total(), before.Parts())
	require.NoError(t, err)
	require.Equal(t, &before, after)
	pieces, err := after.Add(chunk(t, "bcdefgh", "bytes 1-8"))
	require.NoError(t, err)
	require.Len(t, pieces, 2)
	require.NoError(t, after.Complete())

	large, err := envelope.Resume(0, []envelope.Range{{From: 0, To: 1 << 30}})
	require.NoError(t, err, "parts are longer than chunks")
	require.NoError(t, large.Complete())
	for _, bad := range [][]envelope.Range{{{From: 0, To: 10}}, {{From: 1, To: 1}}, {{From: -1, To: 1}}} {
		_, err := envelope.Resume(9, bad)
		require.Error(t, err)
	}
	empty, err := envelope.Resume(9, slices.Clip([]envelope.Range(nil)))
	require.NoError(t, err)
	require.ErrorContains(t, empty.Complete(), "bytes 0-9 of 9 never came")
}
