package input_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
)

// TestLineReader checks that a line over the limit is reported and the others are read.
func TestLineReader(t *testing.T) {
	t.Parallel()
	const most = 10_000
	just, long := strings.Repeat("j", most), strings.Repeat("l", most+1)
	for text, want := range map[string]struct {
		lines []string
		long  int
	}{
		"a\nb":                                   {[]string{"a", "b"}, 0},
		"a\r\n\r\nb":                             {[]string{"a", "", "b"}, 0},
		just + "\n" + just:                       {[]string{just, just}, 0},
		"a\n" + long + "\nb\n":                   {[]string{"a", "b"}, 1},
		long:                                     {nil, 1},
		long + long + long + "\n" + long + "\nb": {[]string{"b"}, 2},
		"\n\na\n":                                {[]string{"", "", "a"}, 0},
	} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.HalfReader(strings.NewReader(text)), iotest.OneByteReader(strings.NewReader(text))} {
			l := input.NewLineReader(in, most)
			var lines []string
			tooLong := 0
			for {
				line, over, err := l.Next()
				if over != nil {
					tooLong++
				} else if err == nil {
					lines = append(lines, string(line))
				}
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
			}
			require.True(t, slices.Equal(want.lines, lines))
			require.Equal(t, want.long, tooLong)
		}
	}
}
