package input_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
)

func TestWord(t *testing.T) {
	t.Parallel()
	known := []string{"listen", "log.level", "log.format", "data"}
	for name, c := range map[string]struct {
		word, want string
	}{
		"swapped letters":              {"log.levle", "log.level"},
		"one letter missing":           {"lisen", "listen"},
		"one letter too many":          {"dataa", "data"},
		"a far word has no suggestion": {"password", ""},
		"an empty word has none":       {"", ""},
		"the word itself is not one":   {"listen", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := input.Nearest(c.word, known)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != "", ok)
		})
	}

	t.Run("the closest of several wins", func(t *testing.T) {
		t.Parallel()
		got, ok := input.Nearest("colour", []string{"collier", "color", "colours"})
		require.True(t, ok)
		require.Equal(t, "color", got)
	})
}
