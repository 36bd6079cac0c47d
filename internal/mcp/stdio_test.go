package mcp

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// TestALineThatIsTooLong is left out, however it comes; those around it are read.
func TestALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	const most = 10_000
	just, long := strings.Repeat("j", most), strings.Repeat("l", most+1)
	for text, want := range map[string]struct {
		lines []string
		long  int
	}{
		"a\nb":                                   {[]string{"a", "b"}, 0},
		just + "\n" + just:                       {[]string{just, just}, 0},
		"a\n" + long + "\nb\n":                   {[]string{"a", "b"}, 1},
		long:                                     {nil, 1},
		long + long + long + "\n" + long + "\nb": {[]string{"b"}, 2},
		"\n\na\n":                                {[]string{"", "", "a"}, 0},
	} {
		tooLong := 0
		in := strings.NewReader(text)
		lines := boundedLines(iotest.HalfReader(in), most, func() { tooLong++ })
		var got []string
		for lines.Scan() {
			got = append(got, lines.Text())
		}
		require.NoError(t, lines.Err())
		require.Equal(t, want.lines, got)
		require.Equal(t, want.long, tooLong)
	}
}
