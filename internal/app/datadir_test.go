package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
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

func TestCheckDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files   map[string]string
		keyFile string // of the configuration
		rejects string
	}{
		"a missing directory is fresh":                   {},
		"a first start that was killed is fresh":         {files: map[string]string{"comet.db": "", "comet.db-journal": "x", "comet.db-wal": "", "comet.lock": "7"}},
		"a database with content is used":                {files: map[string]string{"comet.db": "x", "admin.token": "x"}},
		"an empty database beside a token is an error":   {files: map[string]string{"comet.db": "", "admin.token": "x"}, rejects: "admin.token of an earlier server"},
		"an empty database with a log of it is an error": {files: map[string]string{"comet.db": "", "comet.db-wal": "x"}, rejects: "comet.db-wal of an earlier server"},
		"a missing database beside a token is an error":  {files: map[string]string{"admin.token": "x"}, rejects: "comet.db is missing, but its directory contains admin.token"},
		"a missing database beside a key is an error":    {files: map[string]string{"secret.key": "x"}, rejects: "comet.db is missing, but its directory contains secret.key"},
		"a configured key is not of an earlier server":   {files: map[string]string{"secret.key": "x"}, keyFile: "secret.key"},
		"other files beside a missing database are not":  {files: map[string]string{"comet.lock": "7", "backup.db": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			err := checkDatabase(config.Config{Data: dir, SecretKeyFile: c.keyFile})
			if c.rejects == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.rejects)
			require.ErrorContains(t, err, "restore a backup with \"comet restore FILE")
		})
	}
}
