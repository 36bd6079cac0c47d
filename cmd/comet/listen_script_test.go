package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"comet/internal/testkit"
)

// waitTimeout limits how long a script waits for another process.
const waitTimeout = testkit.Timeout

// listenerKey is the key of a script's listener.
type listenerKey struct{}

// startListener runs "comet webhooks listen" until "interrupt" or the end of the script: listener
// [flags...]. It sets WEBHOOK and LISTENER, its id and URL; its output goes to listen.out and
// listen.err.
func startListener(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: listener [flags...]")
	}
	startAside(ts, "listen", "comet", append([]string{"webhooks", "listen"}, args...)...)
	found := waitFor(ts, "listen.err", `listening on (\S+) as webhook (\S+); Ctrl-C removes it`)
	ts.Setenv("LISTENER", found[1])
	ts.Setenv("WEBHOOK", found[2])
}

// process is a command that runs in the background of the script.
type process struct {
	cmd   *exec.Cmd
	ended <-chan struct{}
	notes string // the file with its standard error
}

func listenerOf(ts *testscript.TestScript) **process { return ts.Value(listenerKey{}).(**process) }

// interrupt signals the listener, or the background command, and requires an exit code: interrupt
// INT 0.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: interrupt INT|TERM|HUP code")
	}
	p := *listenerOf(ts)
	ts.Check(p.cmd.Process.Signal(signals[args[0]]))
	select {
	case <-p.ended:
	case <-time.After(waitTimeout):
		ts.Fatalf("it does not end")
	}
	if got := strconv.Itoa(p.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit code %s, want %s:\n%s", got, args[1], ts.ReadFile(p.notes))
	}
}

// startAside starts a command in the background until the script ends. Its output goes to the
// files name.out and name.err.
func startAside(ts *testscript.TestScript, name, command string, args ...string) {
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	notes, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	cmd := exec.Command(command, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), out, notes
	for _, variable := range []string{"HOME", "COMET_SERVER", "COMET_TOKEN"} {
		cmd.Env = append(cmd.Env, variable+"="+ts.Getenv(variable))
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	ts.Check(cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit code is checked below
		close(ended)
	}()
	*listenerOf(ts) = &process{cmd, ended, name + ".err"}
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-ended
		_, _ = out.Close(), notes.Close()
	})
}

// awaits waits until a file matches an expression: awaits FILE REGEXP.
func awaits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaits file regexp")
	}
	waitFor(ts, args[0], args[1])
}

func waitFor(ts *testscript.TestScript, file, expression string) []string {
	wanted := regexp.MustCompile("(?m)" + expression)
	content := func() string {
		if _, err := os.Stat(ts.MkAbs(file)); err != nil { // who writes it has not come to that
			return ""
		}
		return ts.ReadFile(file)
	}
	for late := time.After(waitTimeout); ; {
		if found := wanted.FindStringSubmatch(content()); found != nil {
			return found
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			ts.Fatalf("%s never had %s, but:\n%s", file, expression, content())
		}
	}
}

// startReceiver starts a server that responds with these statuses, the last one again and again:
// receiver 503 204. It sets RECEIVER, its URL; requests go to the file received.
func startReceiver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: receiver status...")
	}
	file, err := os.Create(ts.MkAbs("received"))
	ts.Check(err)
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(file, "%s %s %s %s %s\n", r.Method, r.URL, r.Header.Get("User-Agent"), r.Header.Get("Webhook-Signature"), body)
		status, err := strconv.Atoi(args[min(int(count.Add(1)), len(args))-1])
		if err != nil {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
	}))
	ts.Defer(func() {
		server.Close()
		_ = file.Close()
	})
	ts.Setenv("RECEIVER", server.URL)
}
