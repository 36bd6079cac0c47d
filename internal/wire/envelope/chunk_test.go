package envelope_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestParseRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]envelope.Range{
		"bytes 0-262144 of 524288":        {From: 0, To: 262144, Total: 524288},
		"bytes 262144-524288 of 524288":   {From: 262144, To: 524288, Total: 524288},
		"bytes 0-256k":                    {From: 0, To: 262144},
		"bytes 256k-512k":                 {From: 262144, To: 524288},
		"bytes 0-1":                       {From: 0, To: 1},
		"bytes 512k-600000 of 600000":     {From: 524288, To: 600000, Total: 600000},
		"bytes 0k-256k of 512k":           {From: 0, To: 262144, Total: 524288},
		"bytes 1073741823k-1099511627776": {From: 1<<40 - 1024, To: 1 << 40},
	} {
		r, err := envelope.ParseRange(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r)
		again, err := envelope.ParseRange(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	}
	require.Equal(t, "bytes 0-262144 of 524288", envelope.Range{To: 262144, Total: 524288}.String())
	require.Equal(t, "bytes 0-262144", envelope.Range{To: 262144}.String())
}

func TestParseRangeRefuses(t *testing.T) {
	t.Parallel()
	for text, detail := range map[string]string{
		"":                                  "must be a range",
		"bytes":                             "must be a range",
		"0-1":                               "must be a range",
		"bytes 0":                           "must be a range",
		"bytes -1":                          "must be a range",
		"bytes 0-":                          "must be a range",
		"bytes 0--1":                        "must be a range",
		"bytes 0-1/2":                       "must be a range",
		"bytes 0-1 of":                      "must be a range",
		"bytes 0-1 of ":                     "must be a range",
		"bytes 0-1 of *":                    "must be a range",
		"bytes 0-1 of 2 of 3":               "must be a range",
		"bytes  0-1":                        "must be a range",
		"bytes 0-1 ":                        "must be a range",
		"bytes 0-256K":                      "must be a range",
		"bytes 0-256kb":                     "must be a range",
		"bytes 0-k":                         "must be a range",
		"bytes +0-1":                        "must be a range",
		"bytes 0-0x10":                      "must be a range",
		"bytes 0-1.5":                       "must be a range",
		"bytes 0-99999999999999999999":      "must be a range",
		"bytes 9007199254740992k-1":         "must be a range",
		"Bytes 0-1":                         "must be a range",
		"bytes 0-1 of 0":                    "must name a total of at least 1 byte",
		"bytes 1-1":                         "must end after its start",
		"bytes 2-1 of 9":                    "must end after its start",
		"bytes 0-262145":                    "must have at most 262144 bytes, bytes 0-262145 has 262145",
		"bytes 0-257k":                      "must have at most 262144 bytes",
		"bytes 0-2 of 1":                    "must end within the total",
		"bytes 1099511627776-1099511627777": "must end within the first 1099511627776 bytes",
		"bytes 0-1 of 1099511627777":        "must end within the first 1099511627776 bytes",
	} {
		_, err := envelope.ParseRange(text)
		require.ErrorContains(t, err, detail, text)
	}
}

// TestSplitCutsBetweenCharacters: chunks are as large as possible and contain no partial character.
func TestSplitCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		output string
		sizes  []int
	}{
		"empty":                             {"", nil},
		"a short text":                      {"abc", []int{3}},
		"one block":                         {strings.Repeat("a", 262144), []int{262144}},
		"one more byte":                     {strings.Repeat("a", 262145), []int{262144, 1}},
		"the document's two blocks":         {strings.Repeat("a", 524288), []int{262144, 262144}},
		"two bytes across the edge":         {strings.Repeat("a", 262143) + "é", []int{262143, 2}},
		"four bytes, one before the edge":   {strings.Repeat("a", 262143) + "😀b", []int{262143, 5}},
		"four bytes, three before the edge": {strings.Repeat("a", 262141) + "😀b", []int{262141, 5}},
		"four bytes up to the edge":         {strings.Repeat("a", 262140) + "😀b", []int{262144, 1}},
		"three bytes all the way":           {strings.Repeat("€", 100000), []int{262143, 37857}},
		"invalid UTF-8":                     {strings.Repeat("\x80", 262145), []int{262144, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sizes []int
			var whole strings.Builder
			for _, chunk := range envelope.Split(c.output, envelope.MaxChunk) {
				require.Equal(t, int64(whole.Len()), chunk.From)
				require.Equal(t, int64(len(chunk.Text)), chunk.To-chunk.From)
				require.Equal(t, int64(len(c.output)), chunk.Total)
				require.Equal(t, utf8.ValidString(c.output), utf8.ValidString(chunk.Text))
				again, err := envelope.ParseRange(chunk.String())
				require.NoError(t, err)
				require.Equal(t, chunk.Range, again)
				sizes = append(sizes, len(chunk.Text))
				whole.WriteString(chunk.Text)
			}
			require.Equal(t, c.sizes, sizes)
			require.Equal(t, whole.String(), c.output)
		})
	}
}
