package app_test

import (
	"context"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// TestUpgrade starts the server on a database with the schema of the previous migration, in which
// tasks were executed. The server migrates it and continues with the tasks, agents and charges.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Data = t.TempDir()
			if name == "postgres" {
				cfg.DatabaseURL = storetest.EmptyPostgres(t)
			}
			database := env("COMET_DATABASE_URL=" + cfg.DatabaseURL)
			p := serve(t, cfg.Data, database)
			c := newClient(t, p.url(t), adminToken(t, cfg.Data))
			agent := c.registerInfra(t, "infra-1", "job")
			jobs := []*job{}
			execute := func() {
				t.Helper()
				(&jobRunner{tokens: 7}).runAgent(t, c.URL, agent, 4)
				sender, err := comet.NewClient(c.URL, c.Token, c.HTTP)
				require.NoError(t, err)
				for range 5 {
					jobs = append(jobs, newJob(len(jobs), 50))
					require.True(t, submitUntilAccepted(t.Context(), sender, jobs[len(jobs)-1]))
				}
				charged := c.settle(t, jobs...)
				for _, d := range charged.tasks {
					require.Equal(t, "done", d.State, "%+v", d)
				}
				charged.requireSettled(t, "infra-1")
			}
			execute()
			p.stop(t)

			var undone []string
			require.NoError(t, app.WithMigrations(cfg, false, func(m *app.Migrations) (err error) {
				undone, err = m.Down(context.Background())
				return err
			}))
			require.Len(t, undone, 1)

			p = serve(t, cfg.Data, database)
			c = newClient(t, p.url(t), c.Token)
			eventually(t, func() bool { return c.status(t, "/readyz") == http.StatusOK }, "the server is ready")
			execute()
			p.stop(t)
		})
	}
}

// TestBackupOfPostgres makes a backup with pg_dump while clients write, and restores it into
// another database as docs/operations.md describes. It holds every agent that was acknowledged
// before the backup began.
func TestBackupOfPostgres(t *testing.T) {
	t.Parallel()
	if !slices.Contains(storetest.Databases(), "postgres") {
		return
	}
	database, data := storetest.EmptyPostgres(t), t.TempDir()
	p := serve(t, data, env("COMET_DATABASE_URL="+database))
	c := newClient(t, p.url(t), adminToken(t, data))
	s := &stream{acknowledged: map[string]draft{}, attempted: map[string]draft{}}
	done := s.flow(t, c, 0)
	eventually(t, func() bool { return s.count.Load() >= 50 }, "the server acknowledges writes")
	s.mu.Lock()
	acknowledged := maps.Clone(s.acknowledged)
	s.mu.Unlock()
	dump := filepath.Join(t.TempDir(), "comet.dump")
	runPostgres(t, "pg_dump", "--format=custom", "--file="+dump, database)
	p.kill()
	done()

	restored := storetest.EmptyPostgres(t)
	runPostgres(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+restored, dump)
	p = serve(t, t.TempDir(), env("COMET_DATABASE_URL="+restored, "COMET_SECRET_KEY_FILE="+filepath.Join(data, "secret.key")))
	kept := &stream{acknowledged: acknowledged, attempted: s.attempted}
	kept.requireKept(t, newClient(t, p.url(t), c.Token))
	verified := start(t, []string{"ledger", "verify", "--server", p.url(t)}, env("COMET_TOKEN="+c.Token))
	require.Zero(t, verified.exit(t), "%s", &verified.log)
	p.stop(t)
}

// runPostgres runs a program of the newest installed PostgreSQL; Debian has them in one folder per
// version.
func runPostgres(t *testing.T, name string, args ...string) {
	t.Helper()
	path := name
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); err == nil && len(found) > 0 {
		path = slices.Max(found)
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
