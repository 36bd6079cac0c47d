package envelope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestNegotiateTakesTheLowestCommonVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ theirs, ours, want string }{
		{"1.0", "1.0", "1.0"},
		{"1.0,2.0", "1.0,2.0", "1.0"},
		{"2.0,1.0", "2.0,1.0", "1.0"},
		{"1.0,2.0", "2.0,3.0", "2.0"},
		{"1.10,1.9", "1.9,1.10", "1.9"},
		{"10.0,2.0", "2.0,10.0", "2.0"},
		{"2.0,1.10", "1.10,2.0", "1.10"},
		{"1.0", "2.0", ""},
		{"", "1.0", ""},
		{"1.0", "", ""},
		{"1,v1.0,1.00,01.0,1.0.0, 1.0,1.,.0,-1.0,latest,2.0", "1,v1.0,1.00,01.0,1.0.0, 1.0,1.,.0,-1.0,latest,2.0", "2.0"},
		{"0.0", "0.0", "0.0"},
	} {
		version, ok := envelope.Negotiate(strings.Split(c.theirs, ","), strings.Split(c.ours, ","))
		require.Equal(t, c.want, version, c.theirs)
		require.Equal(t, c.want != "", ok)
	}
	_, ok := envelope.Negotiate(nil, nil)
	require.False(t, ok)
}
