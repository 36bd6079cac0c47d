package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"comet/internal/testkit"
)

// The scripts run this test binary as the program comet.
func TestMain(m *testing.M) {
	if code, asked := sandboxChild(); asked { // of a server in this process
		os.Exit(code) //nolint:forbidigo // it is another program
	}
	testscript.Main(m, map[string]func(){"comet": main, "fake-mcp": fakeMCP})
}

// TestScripts runs testdata/script: each file is a scenario of commands, mostly against a server
// of its own.
func TestScripts(t *testing.T) {
	testkit.SkipIfShort(t, "it starts a server and many commands for each script")
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			example, err := filepath.Abs("../../examples/roster.yaml")
			env.Setenv("EXAMPLE", example)
			env.Setenv("HOME", env.WorkDir)
			env.Values[listenerKey{}] = new(*process)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": startServer,
			"exits":  exits,
			"setenv": setenv,
			"sql":    runSQL,

			"receiver":  startReceiver,
			"listener":  startListener,
			"aside":     aside,
			"interrupt": interrupt,
			"awaits":    awaits,

			"until":    until,
			"converse": converse,
		},
	})
}

// exits runs a command and requires its exit code: exits 4 comet agents get x.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// setenv sets a variable to a part of a file: setenv NAME FILE REGEXP. The part is the first
// group of the expression.
func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: setenv name file regexp")
	}
	found := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if len(found) < 2 {
		ts.Fatalf("%s has nothing that matches %s", args[1], args[2])
	}
	ts.Setenv(args[0], found[1])
}

// runSQL changes the database of the server: sql STATEMENT.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql statement")
	}
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs("data/comet.db")+"?_pragma=busy_timeout(60000)")
	ts.Check(err)
	_, err = db.ExecContext(context.Background(), args[0])
	ts.Check(errors.Join(err, db.Close()))
}

// waitUntilReady waits up to testkit.Timeout until the server is ready. logs is the file of its log.
func waitUntilReady(ts *testscript.TestScript, logs string) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.Getenv("COMET_SERVER")+"/readyz", nil)
		ts.Check(err)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			text, _ := os.ReadFile(logs)
			ts.Fatalf("the server is not ready: %v\n%s", err, text)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// startServer runs "comet serve" until the script ends, on a free port and in a directory of its
// own, and sets COMET_SERVER and COMET_TOKEN. The sandbox may read the directory READABLE.
func startServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: server [flags...]")
	}
	data := ts.MkAbs("data")
	cmd := exec.Command("comet", append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + os.Getenv("PATH"), "COMET_SANDBOX_READ_PATHS=" + ts.Getenv("READABLE")}
	logs, err := os.Create(ts.MkAbs("server.log"))
	ts.Check(err)
	cmd.Stderr = logs
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			text, _ := os.ReadFile(logs.Name())
			ts.Logf("the server ended with %v:\n%s", err, text)
		}
		_ = logs.Close()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := regexp.MustCompile(`listens on (http://\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			ts.Setenv("COMET_SERVER", found[1])
			break
		}
	}
	if ts.Getenv("COMET_SERVER") == "" {
		text, _ := os.ReadFile(logs.Name())
		ts.Fatalf("the server did not start:\n%s", text)
	}
	waitUntilReady(ts, logs.Name())
	ts.Setenv("COMET_TOKEN", strings.TrimSpace(ts.ReadFile(filepath.Join(data, "admin.token"))))
}
