package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInDir(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	data := filepath.Join(top, "data")
	require.NoError(t, os.MkdirAll(filepath.Join(data, "deep"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(top, "database"), 0o700))
	for _, name := range []string{"data/comet.db", "data/deep/file", "database/file", "file"} {
		require.NoError(t, os.WriteFile(filepath.Join(top, name), nil, 0o600))
	}
	require.NoError(t, os.Symlink("data", filepath.Join(top, "link")))
	require.NoError(t, os.Symlink("../data/comet.db", filepath.Join(top, "database", "link")))
	for _, dir := range []string{data, filepath.Join(top, "link")} {
		protected := inDir(dir)
		for name, want := range map[string]bool{
			"data": true, "data/comet.db": true, "data/deep/file": true, "link/comet.db": true, "database/link": true, "database/../data/comet.db": true,
			"database/file": false, "file": false, ".": false, "data/missing": false,
		} {
			require.Equal(t, want, protected(top+"/"+name), "%s in %s", name, dir)
		}
	}
	require.False(t, inDir(filepath.Join(top, "missing"))(filepath.Join(top, "file")))
}
