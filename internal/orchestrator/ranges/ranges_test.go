package ranges_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator/ranges"
	"comet/models"
	"comet/store"
)

// stored returns the range of bytes that are stored as they are.
func stored(start, end int64) store.OutputRange {
	return store.OutputRange{Start: start, End: end, Bytes: end - start}
}

func TestSubtract(t *testing.T) {
	t.Parallel()
	type piece struct {
		start int64
		data  string
	}
	for name, c := range map[string]struct {
		span  int64 // 0 for the length
		there []store.OutputRange
		want  []piece
	}{
		"nothing is stored":            {want: []piece{{10, "abcdef"}}},
		"a range before it":            {there: []store.OutputRange{stored(0, 10)}, want: []piece{{10, "abcdef"}}},
		"a range after it":             {there: []store.OutputRange{stored(16, 20)}, want: []piece{{10, "abcdef"}}},
		"a repetition":                 {there: []store.OutputRange{stored(10, 16)}},
		"a larger range":               {there: []store.OutputRange{stored(0, 100)}},
		"its beginning":                {there: []store.OutputRange{stored(8, 12)}, want: []piece{{12, "cdef"}}},
		"its end":                      {there: []store.OutputRange{stored(14, 18)}, want: []piece{{10, "abcd"}}},
		"its middle":                   {there: []store.OutputRange{stored(12, 14)}, want: []piece{{10, "ab"}, {14, "ef"}}},
		"several ranges":               {there: []store.OutputRange{stored(5, 11), stored(12, 13), stored(15, 30)}, want: []piece{{11, "b"}, {13, "de"}}},
		"characters":                   {span: 3, want: []piece{{10, "abcdef"}}},
		"a repetition in characters":   {span: 3, there: []store.OutputRange{{Start: 10, End: 13, Bytes: 6}}},
		"characters beside other ones": {span: 3, there: []store.OutputRange{stored(0, 10), stored(13, 20)}, want: []piece{{10, "abcdef"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ranges.Subtract(models.OutputChunk{Stream: models.StreamResult, Start: 10, Span: c.span, Data: []byte("abcdef")}, c.there)
			require.NoError(t, err)
			var pieces []piece
			for _, o := range got {
				require.Equal(t, models.StreamResult, o.Stream)
				pieces = append(pieces, piece{o.Start, string(o.Data)})
			}
			require.Equal(t, c.want, pieces)
		})
	}
}

// TestSubtractInCharacters: what is sent in characters cannot be cut.
func TestSubtractInCharacters(t *testing.T) {
	t.Parallel()
	for _, there := range []store.OutputRange{stored(8, 11), stored(12, 20), stored(11, 12)} {
		_, err := ranges.Subtract(models.OutputChunk{Start: 10, Span: 3, Data: []byte("abcdef")}, []store.OutputRange{there})
		require.True(t, errs.Is(err, errs.InvalidRequest), err)
		require.ErrorContains(t, err, "bytes 10-13 of the output overlap bytes")
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pieces []store.OutputRange
		total  int64
		end    int64
		odd    bool
		err    string
	}{
		"nothing":                {},
		"one":                    {pieces: []store.OutputRange{stored(0, 5)}, end: 5},
		"neighbours":             {pieces: []store.OutputRange{stored(0, 5), stored(5, 7)}, total: 7, end: 7},
		"overlapping":            {pieces: []store.OutputRange{stored(0, 5), stored(3, 4), stored(4, 7)}, end: 7},
		"in characters":          {pieces: []store.OutputRange{{Start: 0, End: 5, Bytes: 9}, stored(5, 7)}, end: 7, odd: true},
		"a gap at the start":     {pieces: []store.OutputRange{stored(2, 5)}, err: "bytes 0-2 of the output are missing"},
		"a gap":                  {pieces: []store.OutputRange{stored(0, 5), stored(6, 7)}, err: "bytes 5-6 of the output are missing"},
		"less than was promised": {pieces: []store.OutputRange{stored(0, 5)}, total: 8, err: "bytes 5-8 of the output are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, odd, err := ranges.End(c.pieces, c.total)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []any{c.end, c.odd}, []any{end, odd})
		})
	}
}
