package codes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5/codes"
)

// TestMeaning: each code of §8.1 has a meaning of its own, and any other valid code that of its
// category.
func TestMeaning(t *testing.T) {
	t.Parallel()
	meanings := map[string]bool{}
	for _, c := range []codes.Code{
		"E00", "E10", "E11", "E12", "E13", "E14", "E15", "E16", "E17", "E18", "E19", "E20", "E21",
		"E22", "E23", "E30", "E31", "E32", "E33", "E40", "E41", "E42", "E43", "E90", "E99",
	} {
		require.True(t, c.Valid())
		require.False(t, meanings[c.Meaning()], c)
		meanings[c.Meaning()] = true
	}
	for c, want := range map[codes.Code]string{
		"E01": "error without a category", "E24": "timeout", "E29": "timeout", "E34": "resource unavailable", "E44": "logic error",
		"E50": "error without a category", "E91": "system error", "": "", "E1": "", "X": "",
	} {
		require.Equal(t, want, c.Meaning(), c)
		require.Equal(t, c.Valid(), c.Meaning() != "", c)
	}
}

// TestV4: the codes that V5 has added are E99 in V4.
func TestV4(t *testing.T) {
	t.Parallel()
	for c, want := range map[codes.Code]codes.Code{
		"E15": "E15", "E16": "E99", "E17": "E99", "E18": "E99", "E19": "E99", "E20": "E20", "E99": "E99", "E77": "E77", "": "",
	} {
		require.Equal(t, want, c.V4(), c)
	}
}
