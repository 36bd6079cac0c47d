package app_test

import (
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// oddDir is a data directory with a name that must be quoted in a shell.
func oddDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), `it's "data" $HOME`)
}

// printedLine returns the curl command that the server prints.
func printedLine(t *testing.T, p *process) string {
	t.Helper()
	return p.says(t, `(?m)^  (curl .*)\n\n`)
}

// try runs the printed command in a shell and returns the response body. Without curl, the test
// sends the request of the command.
func try(t *testing.T, line string, variables ...string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		return shell(t, line, variables...)
	}
	args := strings.Split(strings.TrimSpace(shell(t, `curl() { printf '%s\n' "$@"; }; `+line, variables...)), "\n")
	require.Len(t, args, 3)
	require.Equal(t, "-H", args[0])
	token, ok := strings.CutPrefix(args[1], "Authorization: Bearer ")
	require.True(t, ok)
	url, path, ok := strings.Cut(args[2], "/api/")
	require.True(t, ok)
	_, body, err := newClient(t, url, token).do(t.Context(), http.MethodGet, "/api/"+path, nil)
	require.NoError(t, err)
	return string(body)
}

func shell(t *testing.T, line string, variables ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, variables...)
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func TestFirstStart(t *testing.T) {
	t.Parallel()

	t.Run("the token is printed once with a working command", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, database setting) {
			data := oddDir(t)
			p := serve(t, data, database)
			token := p.says(t, `Admin token +([0-9a-f]{32})\n`)
			require.Equal(t, 1, strings.Count(p.out.String(), "Admin token"))
			require.Equal(t, token, adminToken(t, data))
			require.Equal(t, "curl -H \"Authorization: Bearer "+token+"\" "+p.url(t)+"/api/v1/agents", printedLine(t, p))
			require.Contains(t, try(t, printedLine(t, p)), `"total":10`)
			require.NotContains(t, p.log.String(), token, "the log does not contain it")
			p.stop(t)
			require.NotContains(t, p.log.String(), token, "the log does not contain it")

			p = serve(t, data, database)
			require.Contains(t, try(t, printedLine(t, p)), `"total":10`, "the command reads the token from its file")
			require.NotContains(t, p.out.String(), token)
			require.NotContains(t, p.log.String(), token)
			p.stop(t)
		})
	})

	t.Run("files are readable by their owner only", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(t.TempDir(), "a", "b")
		p := serve(t, data)
		p.url(t)
		dir, err := os.Stat(data)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
		file, err := os.Stat(filepath.Join(data, "admin.token"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), file.Mode().Perm())
	})

	t.Run("a token file without a stored token is used", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		require.NoError(t, app.WithMigrations(config.Config{Data: data}, true, func(m *app.Migrations) error {
			_, err := m.Up(t.Context())
			return err
		}))
		left := "0123456789abcdef0123456789abcdef" // of a start that was killed before the token was stored
		require.NoError(t, os.WriteFile(filepath.Join(data, "admin.token"), []byte(left+"\n"), 0o600))
		p := serve(t, data)
		require.Equal(t, left, p.says(t, `Admin token +([0-9a-f]{32})\n`))
		require.Equal(t, http.StatusOK, newClient(t, p.url(t), left).status(t, "/api/v1/tokens"))
	})

	t.Run("an outdated token file is not recommended", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data)
		p.url(t)
		old := adminToken(t, data)
		p.stop(t)
		serve(t, data, env("COMET_ADMIN_TOKEN="+strings.Repeat("n", 32))).stopOnceUp(t)
		p = serve(t, data)
		require.NotContains(t, p.says(t, `(?s)(comet listens on .*/docs\n)`), "curl")
		require.Equal(t, http.StatusUnauthorized, newClient(t, p.url(t), old).status(t, "/api/v1/agents"))
		p.stop(t)
		require.NotContains(t, p.out.String(), "curl")
	})
}

// stopOnceUp stops a process after its start.
func (p *process) stopOnceUp(t *testing.T) {
	t.Helper()
	p.url(t)
	p.stop(t)
}

func TestConfiguredAdminToken(t *testing.T) {
	t.Parallel()

	t.Run("a new token replaces the old one", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, database setting) {
			data := t.TempDir()
			first, second := strings.Repeat("f", 32), strings.Repeat("Secret-", 9)
			p := serve(t, data, database, env("COMET_ADMIN_TOKEN="+first))
			require.Contains(t, try(t, printedLine(t, p), "COMET_ADMIN_TOKEN="+first), `"total":10`)
			require.NoFileExists(t, filepath.Join(data, "admin.token"))
			require.NotContains(t, p.out.String()+p.log.String(), first)
			p.stop(t)

			p = serve(t, data, database, env("COMET_ADMIN_TOKEN="+second))
			require.Equal(t, http.StatusOK, newClient(t, p.url(t), second).status(t, "/api/v1/tokens"))
			require.Equal(t, http.StatusUnauthorized, newClient(t, p.url(t), first).status(t, "/api/v1/tokens"))
			p.stop(t)
			require.NotContains(t, p.out.String()+p.log.String(), second)

			p = serve(t, data, database)
			require.Equal(t, http.StatusOK, newClient(t, p.url(t), second).status(t, "/api/v1/tokens"), "it stays valid without the setting")
			require.NotContains(t, p.out.String(), "Admin token")
		})
	})

	t.Run("a short token is rejected and not printed", func(t *testing.T) {
		t.Parallel()
		short := strings.Repeat("x", 31)
		code, message := serve(t, t.TempDir(), env("COMET_ADMIN_TOKEN="+short)).fails(t)
		require.Equal(t, 2, code)
		require.Contains(t, message, "COMET_ADMIN_TOKEN")
		require.Contains(t, message, "32 characters")
		require.NotContains(t, message, short)
	})
}

func TestStartErrors(t *testing.T) {
	t.Parallel()

	t.Run("a locked data directory", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data)
		p.url(t)
		code, message := serve(t, data).fails(t)
		require.Equal(t, 1, code)
		for _, part := range []string{data, "stop it first", "--data"} {
			require.Contains(t, message, part)
		}
		p.kill()
		serve(t, data).stopOnceUp(t) // the lock ends with its process
	})

	t.Run("a database that is missing", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		serve(t, data).stopOnceUp(t)
		token := adminToken(t, data)
		database := filepath.Join(data, "comet.db")
		require.NoError(t, os.Rename(database, filepath.Join(t.TempDir(), "comet.db")))
		code, message := serve(t, data).fails(t)
		require.NotZero(t, code)
		for _, part := range []string{database + " is missing", "admin.token", "comet restore FILE", "remove"} {
			require.Contains(t, message, part)
		}
		require.NoFileExists(t, database)
		require.Equal(t, token, adminToken(t, data))
		require.NoError(t, os.Remove(filepath.Join(data, "admin.token")))
		require.NoError(t, os.Remove(filepath.Join(data, "secret.key")))
		serve(t, data).says(t, `Admin token +([0-9a-f]{32})\n`)
	})

	t.Run("a port in use", func(t *testing.T) {
		t.Parallel()
		p := serve(t, t.TempDir())
		address := strings.TrimPrefix(p.url(t), "http://")
		data := filepath.Join(t.TempDir(), "data")
		for _, flag := range []string{"--listen", "--v5-listen", "--debug-listen"} {
			code, message := start(t, []string{"serve", "--listen", "127.0.0.1:0", flag, address, "--data", data}).fails(t)
			require.Equal(t, 1, code)
			for _, part := range []string{address, "address already in use", flag} {
				require.Contains(t, message, part)
			}
			require.NoDirExists(t, data)
		}
		again := serve(t, data)
		again.says(t, `(?m)^  Admin token +(\S+)$`) // the first start shows it
		again.stopOnceUp(t)
	})

	t.Run("a data directory that cannot be created", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		code, message := serve(t, filepath.Join(file, "data")).fails(t)
		require.Equal(t, 1, code)
		for _, part := range []string{file, "not a directory", "--data"} {
			require.Contains(t, message, part)
		}
	})

	t.Run("a read-only data directory", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(programDir(), "closed-"+rand.Text()) // other users cannot enter t.TempDir
		require.NoError(t, os.Mkdir(data, 0o555))
		code, message := serve(t, data, unprivileged).fails(t)
		require.Equal(t, 1, code)
		for _, part := range []string{data, "permission denied", "--data"} {
			require.Contains(t, message, part)
		}
	})

	t.Run("an invalid configuration", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "comet.yaml")
		require.NoError(t, os.WriteFile(file, []byte("log:\n  level: info\nlissten: 127.0.0.1:0\n"), 0o600))
		code, message := start(t, []string{"serve", "--data", t.TempDir(), "--config", file}).fails(t)
		require.Equal(t, 2, code)
		for _, part := range []string{file + ":3", "lissten", "did you mean listen?"} {
			require.Contains(t, message, part)
		}
	})

	t.Run("an unreachable database", func(t *testing.T) {
		t.Parallel()
		code, message := serve(t, t.TempDir(), env("COMET_DATABASE_URL=postgres://comet:hidden-password@127.0.0.1:1/comet")).fails(t)
		require.Equal(t, 1, code)
		require.Contains(t, message, "127.0.0.1")
		require.NotContains(t, message, "hidden-password")
	})
}

// unprivileged runs a process as a user other than root, so that permissions apply.
func unprivileged(cmd *exec.Cmd) {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// TestReplicasStartTogether starts two servers concurrently on one empty database.
func TestReplicasStartTogether(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name != "postgres" {
			continue // only one server may open a SQLite file
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := databaseOf(t, name)
			dirs := []string{t.TempDir(), t.TempDir()}
			replicas := []*process{serve(t, dirs[0], database), serve(t, dirs[1], database)}
			tokens := []string{}
			for i, p := range replicas {
				p.url(t)
				if shown := regexp.MustCompile(`Admin token +([0-9a-f]{32})`).FindStringSubmatch(p.out.String()); shown != nil {
					tokens = append(tokens, shown[1])
					require.Equal(t, shown[1], adminToken(t, dirs[i]))
				} else {
					require.NoFileExists(t, filepath.Join(dirs[i], "admin.token"))
				}
			}
			require.Len(t, tokens, 1, "there is one admin token")
			for _, p := range replicas {
				c := newClient(t, p.url(t), tokens[0])
				require.Len(t, c.tree(t), 10)
				require.Len(t, get[struct{ Tokens []struct{} }](t, c, "/api/v1/tokens").Tokens, 1)
			}
			for id := range newClient(t, replicas[0].url(t), tokens[0]).tree(t) {
				c := newClient(t, replicas[1].url(t), tokens[0])
				require.Len(t, get[struct{ Entries []struct{} }](t, c, "/api/v1/agents/"+id+"/audit").Entries, 1)
			}
			for _, p := range replicas {
				p.stop(t)
			}
		})
	}
}
