package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/store/seal"
	"comet/store/sqlitefile"
	"comet/store/storetest"
)

// TestSecretKeyOfTheDataDirectory: the first start makes a key that the next ones use, and a server
// without it does not start.
func TestSecretKeyOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := env()
			if name == "postgres" {
				database = env("COMET_DATABASE_URL=" + storetest.EmptyPostgres(t))
			}
			data := t.TempDir()
			file := filepath.Join(data, "secret.key")
			p := serve(t, data, database)
			c := newClient(t, p.url(t), adminToken(t, data))
			const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
			c.must(t, http.StatusCreated, http.MethodPost, "/api/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": []string{"agent.created"}, "secret": secret})
			key, err := os.ReadFile(file)
			require.NoError(t, err)
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			p.stop(t) // then the log is complete
			require.NotContains(t, p.log.String()+p.out.String(), strings.TrimSpace(string(key)))
			require.Equal(t, name == "postgres", strings.Contains(p.log.String(), "start other replicas with it as --secret-key-file"))

			p = serve(t, data, database)
			p.url(t)
			again, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, key, again)
			p.stop(t)

			moved := filepath.Join(t.TempDir(), "keys")
			require.NoError(t, os.Rename(file, moved))
			dirs := []string{data}
			if name == "postgres" { // a second replica
				dirs = append(dirs, t.TempDir())
			}
			for _, dir := range dirs {
				p = serve(t, dir, database)
				require.NotZero(t, p.exit(t))
				require.Contains(t, p.log.String(), "which this server does not have: name the file that contains it with --secret-key-file (COMET_SECRET_KEY_FILE); all replicas use the same file")
				require.NoFileExists(t, filepath.Join(dir, "secret.key"), "the key of the database is not replaced")
			}

			require.NoError(t, os.WriteFile(moved, slices.Concat([]byte(seal.NewKey()+"\n"), key), 0o600))
			require.NoError(t, os.Chmod(moved, 0o604))
			p = serve(t, data, database, env("COMET_SECRET_KEY_FILE="+moved))
			p.url(t)
			p.stop(t)
			require.Contains(t, p.log.String(), "other users can read the secret key file; change its mode to 0600")
			require.Contains(t, p.log.String(), "secrets in the database were encrypted with the current key")
		})
	}
}

func TestUnusableSecretKeyFile(t *testing.T) {
	t.Parallel()
	data, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "keys") // no database is copied into a missing directory
	require.NoError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	p := serve(t, data, env("COMET_SECRET_KEY_FILE="+file))
	require.NotZero(t, p.exit(t))
	require.Contains(t, p.log.String(), "the secret key file "+file+" cannot be used: line 1 is not a key of 32 bytes in base64")
	require.NotContains(t, p.log.String(), "hunter2")
	require.NoFileExists(t, sqlitefile.Path(data))
}
