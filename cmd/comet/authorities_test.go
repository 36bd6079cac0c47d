package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAuthoritiesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	require.NoError(t, trust(""))
	require.ErrorContains(t, trust(filepath.Join(t.TempDir(), "none")), "no such file")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("none"), 0o600))
	require.ErrorContains(t, trust(empty), "contains no certificate")
}
