package app_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readDatabaseEnv names the environment variable with the SQLite database that this program reads
// instead of running tests.
const readDatabaseEnv = "COMET_TEST_READ_DATABASE"

// readDatabaseIfAsked opens a SQLite database, reads from it and closes it, as a backup program
// or a monitoring probe does. It prints an error and reports whether readDatabaseEnv is set.
func readDatabaseIfAsked() bool {
	source := os.Getenv(readDatabaseEnv)
	if source == "" {
		return false
	}
	db, err := sql.Open("sqlite", source)
	if err == nil {
		var agents int
		err = errors.Join(db.QueryRowContext(context.Background(), "SELECT count(*) FROM agents").Scan(&agents), db.Close())
	}
	if err != nil {
		fmt.Print(err)
	}
	return true
}

// readInAnotherProcess reads a server's database in two other processes and requires that the
// server's write-ahead log is still there. The first process uses SQLite as it is. SQLite before
// 3.51 ignores the locks on the -shm file when it closes a database and looks only at those on
// the database file; the second process does the same, because it asks for exclusive use. It must
// be refused.
func readInAnotherProcess(t *testing.T, path string) {
	t.Helper()
	for _, read := range []struct{ source, refusal string }{
		{path, ""},
		{path + "?_pragma=locking_mode(EXCLUSIVE)", "database is locked (5) (SQLITE_BUSY)"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), readDatabaseEnv+"="+read.source)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		assert.Equal(t, read.refusal, string(out), read.source)
	}
	assert.FileExists(t, path+"-wal")
}

// TestAcknowledgedWritesSurviveAnotherReader lets another process open and close the SQLite file
// of a server repeatedly. The server must keep its locks on the file: without them the other
// process takes itself for the last user and deletes the write-ahead log, and the server goes on
// to write into the deleted file. Every acknowledged write must be there after kill -9.
func TestAcknowledgedWritesSurviveAnotherReader(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := filepath.Join(data, "comet.db")
	p := serve(t, data)
	c := newClient(t, p.url(t), adminToken(t, data))
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		file, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), file.Mode().Perm(), name)
	}

	readInAnotherProcess(t, path) // while the server is idle

	s := &stream{acknowledged: map[string]draft{}, attempted: map[string]draft{}}
	done := s.flow(t, c, 0)
	for range 5 {
		target := s.count.Load() + 20
		eventually(t, func() bool { return s.count.Load() >= target }, "the server acknowledges writes")
		readInAnotherProcess(t, path)
	}
	target := s.count.Load() + 20
	eventually(t, func() bool { return s.count.Load() >= target }, "the server acknowledges writes")
	p.kill()
	done()

	p = serve(t, data)
	s.requireKept(t, newClient(t, p.url(t), adminToken(t, data)))
	p.stop(t)
}
