package mcp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPages(t *testing.T) {
	t.Parallel()
	list := strings.Split("a b c d e f g", " ")
	id := func(s string) string { return s }
	var got []string
	for cursor := ""; ; {
		page, next, err := paginate(list, cursor, 3, id)
		require.NoError(t, err)
		got = append(got, page...)
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, list, got)

	t.Run("the item of a cursor may not exist any more", func(t *testing.T) {
		t.Parallel()
		_, next, err := paginate(list, "", 3, id)
		require.NoError(t, err)
		page, _, err := paginate(strings.Split("a b d e", " "), next, 3, id)
		require.NoError(t, err)
		require.Equal(t, []string{"d", "e"}, page)
		page, _, err = paginate([]string{"a"}, next, 3, id)
		require.NoError(t, err)
		require.Empty(t, page)
		page, _, err = paginate([]string{"x", "y"}, next, 3, id)
		require.NoError(t, err)
		require.Equal(t, []string{"x", "y"}, page)
	})

	t.Run("an invalid cursor is an error of the protocol", func(t *testing.T) {
		t.Parallel()
		_, _, err := paginate(list, "%%%", 3, id)
		require.ErrorContains(t, err, "cursor")
	})
}
