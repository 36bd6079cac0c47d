package storetest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// outputOf returns the pieces of a stream from a byte on.
func outputOf(t *testing.T, db *storetest.DB, task string, attempt int, stream models.OutputStream, from int64) []models.OutputChunk {
	t.Helper()
	out := []models.OutputChunk{}
	require.NoError(t, db.Tasks(t.Context()).Outputs(task, attempt, stream, from, func(o models.OutputChunk) error { out = append(out, o); return nil }))
	return out
}

func addOutput(t *testing.T, db *storetest.DB, pieces ...models.OutputChunk) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, p := range pieces {
			if err := tx.Tasks().AddOutput("t", 1, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func result(start int64, text string) models.OutputChunk {
	return models.OutputChunk{Start: start, Data: []byte(text)}
}

func spanning(start, span int64, text string) models.OutputChunk {
	return models.OutputChunk{Start: start, Span: span, Data: []byte(text)}
}

// pieces returns where the pieces of a stream lie.
func pieces(t *testing.T, db *storetest.DB, stream models.OutputStream) (out []store.OutputRange) {
	t.Helper()
	write(t, db, func(tx *store.Tx) (err error) { out, err = tx.Tasks().OutputPieces("t", 1, stream); return err })
	return out
}

func TestAnOutput(t *testing.T) {
	t.Parallel()

	rule(t, "IsStoredInChunksOrderedByStart", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		addOutput(t, db, result(5, "world"), result(0, "hello"), spanning(10, 4, "é!"), spanning(14, 2, "ab"))
		require.Equal(t, []store.OutputRange{{Start: 0, End: 5, Bytes: 5}, {Start: 5, End: 10, Bytes: 5}, {Start: 10, End: 14, Bytes: 3}, {Start: 14, End: 16, Bytes: 2}},
			pieces(t, db, models.StreamResult))
		require.Equal(t, []models.OutputChunk{result(0, "hello"), result(5, "world"), spanning(10, 4, "é!"), result(14, "ab")},
			outputOf(t, db, "t", 1, models.StreamResult, 0), "a span that is the length is not one")
		require.Empty(t, pieces(t, db, models.StreamLog))
		require.Empty(t, outputOf(t, db, "t", 2, models.StreamResult, 0), "of another attempt")
		require.Empty(t, outputOf(t, db, "other", 1, models.StreamResult, 0), "of another task")
	})

	rule(t, "KeepsTheFirstOfTwoChunksWithOneStart", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		addOutput(t, db, result(0, "first"))
		addOutput(t, db, result(0, "second"))
		require.Equal(t, []models.OutputChunk{result(0, "first")}, outputOf(t, db, "t", 1, models.StreamResult, 0))
	})

	rule(t, "IsReadFromAnyByte", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		addOutput(t, db, result(0, "aaa"), result(3, "bbb"), result(6, "ccc"))
		for from, want := range map[int64]string{0: "aaabbbccc", 2: "aaabbbccc", 3: "bbbccc", 5: "bbbccc", 6: "ccc", 8: "ccc", 9: "", 100: ""} {
			var text strings.Builder
			for _, o := range outputOf(t, db, "t", 1, models.StreamResult, from) {
				text.Write(o.Data)
			}
			require.Equal(t, want, text.String(), "from %d", from)
		}
	})

	rule(t, "OfManyChunksIsReadInPages", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		var all []models.OutputChunk
		var want bytes.Buffer
		at := int64(0)
		for i := range 300 { // more than a page of rows
			o := result(at, strings.Repeat(string(rune('a'+i%26)), 1+i%7))
			all, at = append(all, o), o.End()
		}
		for i := range 5 { // and more than a page of bytes
			o := result(at, strings.Repeat(string(rune('A'+i)), 700_000))
			all, at = append(all, o), o.End()
		}
		for _, o := range all {
			want.Write(o.Data)
		}
		addOutput(t, db, all...)
		var got bytes.Buffer
		for _, o := range outputOf(t, db, "t", 1, models.StreamResult, 0) {
			require.EqualValues(t, got.Len(), o.Start)
			got.Write(o.Data)
		}
		require.True(t, bytes.Equal(want.Bytes(), got.Bytes()))
	})

	rule(t, "IsReadUntilTheReaderStops", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		addOutput(t, db, result(0, "a"), result(1, "b"), result(2, "c"))
		enough, n := errors.New("enough"), 0
		err := db.Tasks(t.Context()).Outputs("t", 1, models.StreamResult, 0, func(models.OutputChunk) error {
			if n++; n == 2 {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, 2, n)
	})

	rule(t, "IsCompactedToItsBytes", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		addOutput(t, db, spanning(0, 5, "longer than five"), spanning(5, 10, "abc"), result(15, "de"), spanning(40, 1, "xyz"))
		var total int64
		write(t, db, func(tx *store.Tx) (err error) { total, err = tx.Tasks().CompactOutput("t", 1); return err })
		require.EqualValues(t, 24, total)
		require.Equal(t, []models.OutputChunk{result(0, "longer than five"), result(16, "abc"), result(19, "de"), result(21, "xyz")},
			outputOf(t, db, "t", 1, models.StreamResult, 0))
		write(t, db, func(tx *store.Tx) (err error) { total, err = tx.Tasks().CompactOutput("t", 1); return err })
		require.EqualValues(t, 24, total, "once more changes nothing")
		write(t, db, func(tx *store.Tx) (err error) { total, err = tx.Tasks().CompactOutput("t", 2); return err })
		require.Zero(t, total)
	})

	rule(t, "BecomesPartOfTheLog", func(t *testing.T, db *storetest.DB) {
		insertTask(t, db, "t", nil)
		log := func(start int64, text string) models.OutputChunk {
			return models.OutputChunk{Stream: models.StreamLog, Start: start, Data: []byte(text)}
		}
		addOutput(t, db, log(0, "before"), result(0, "ab"), result(2, "cd"))
		write(t, db, func(tx *store.Tx) error { return tx.Tasks().MoveToLog("t", 1, 6) })
		require.Empty(t, outputOf(t, db, "t", 1, models.StreamResult, 0))
		require.Equal(t, []models.OutputChunk{log(0, "before"), log(6, "ab"), log(8, "cd")}, outputOf(t, db, "t", 1, models.StreamLog, 0))
		addOutput(t, db, result(0, "new"))
		require.Equal(t, []models.OutputChunk{result(0, "new")}, outputOf(t, db, "t", 1, models.StreamResult, 0))
	})
}
