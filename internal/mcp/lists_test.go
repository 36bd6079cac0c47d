package mcp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/tools"
)

// listed returns a list of words that are their own keys.
func listed(words string) (list []tools.Listed[string]) {
	for word := range strings.SplitSeq(words, " ") {
		list = append(list, tools.Listed[string]{Key: word, Item: word})
	}
	return list
}

func TestPages(t *testing.T) {
	t.Parallel()
	list := listed("a b c d e f g")
	var got []tools.Listed[string]
	for cursor := ""; ; {
		page, next, err := paginate(list, cursor, 3)
		require.NoError(t, err)
		got = append(got, page...)
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, list, got)

	t.Run("the item of a cursor may not exist any more", func(t *testing.T) {
		t.Parallel()
		_, next, err := paginate(list, "", 3)
		require.NoError(t, err)
		page, _, err := paginate(listed("a b d e"), next, 3)
		require.NoError(t, err)
		require.Equal(t, listed("d e"), page)
		page, _, err = paginate(listed("a"), next, 3)
		require.NoError(t, err)
		require.Empty(t, page)
		page, _, err = paginate(listed("x y"), next, 3)
		require.NoError(t, err)
		require.Equal(t, listed("x y"), page)
	})

	t.Run("an invalid cursor is an error of the protocol", func(t *testing.T) {
		t.Parallel()
		_, _, err := paginate(list, "%%%", 3)
		require.ErrorContains(t, err, "cursor")
	})
}
