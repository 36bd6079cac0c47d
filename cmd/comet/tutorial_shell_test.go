package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell is a bash that executes blocks of a page, one after the other, until the test ends.
type shell struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}

	mu      sync.Mutex
	text    strings.Builder // what the current block has printed
	changed chan struct{}   // closed at the next output
}

// blockEnd begins the line that a shell prints after a block.
const blockEnd = "=== end of the block"

// startShell starts a bash in the folder of the tutorial, with a process group of its own.
func (s *tutorial) startShell() *shell {
	s.t.Helper()
	sh := &shell{cmd: exec.Command("bash", "--noprofile", "--norc"), ended: make(chan struct{}), changed: make(chan struct{})}
	sh.cmd.Dir, sh.cmd.Env = s.folder, s.environ
	sh.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	sh.in, err = sh.cmd.StdinPipe()
	require.NoError(s.t, err)
	out, in := io.Pipe()
	sh.cmd.Stdout, sh.cmd.Stderr = in, in
	require.NoError(s.t, sh.cmd.Start())
	collected := make(chan struct{})
	go func() {
		sh.collect(out)
		close(collected)
	}()
	go func() {
		_ = sh.cmd.Wait() // a shell that a block ended is reported by run and await
		_ = in.Close()
		<-collected
		close(sh.ended)
	}()
	s.t.Cleanup(func() { sh.stop(s.t) })
	_, err = io.WriteString(sh.in, shims)
	require.NoError(s.t, err)
	return sh
}

func (sh *shell) collect(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		sh.mu.Lock()
		sh.text.WriteString(line)
		close(sh.changed)
		sh.changed = make(chan struct{})
		sh.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// begin sends a block to the shell.
func (sh *shell) begin(t *testing.T, block string) {
	t.Helper()
	sh.mu.Lock()
	sh.text.Reset()
	sh.mu.Unlock()
	quoted := "'" + strings.ReplaceAll(block, "'", `'\''`) + "'"
	_, err := fmt.Fprintf(sh.in, "eval %s </dev/null; echo; echo '%s'\n", quoted, blockEnd)
	require.NoError(t, err)
}

// run executes a block and requires that it succeeds.
func (sh *shell) run(t *testing.T, at, block string) {
	t.Helper()
	sh.begin(t, block)
	sh.await(t, at, regexp.MustCompile("(?m)^"+blockEnd))
}

// output returns what the current block has printed.
func (sh *shell) output() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	text, _, _ := strings.Cut(sh.text.String(), blockEnd)
	return text
}

// await waits until the output matches; a shell that ends before that has failed.
func (sh *shell) await(t *testing.T, at string, wanted *regexp.Regexp) []string {
	t.Helper()
	ended := false
	for late := time.After(waitTimeout); ; {
		sh.mu.Lock()
		text, changed := sh.text.String(), sh.changed
		sh.mu.Unlock()
		if found := wanted.FindStringSubmatch(text); found != nil {
			return found
		}
		if ended {
			require.FailNow(t, "a command failed", "%s:\n%s", at, text)
		}
		select {
		case <-changed:
		case <-sh.ended:
			ended = true
		case <-late:
			require.FailNow(t, "a command does not end, or never prints "+wanted.String(), "%s:\n%s", at, sh.output())
		}
	}
}

// stop ends the processes of the shell as a terminal that is closed does.
func (sh *shell) stop(t *testing.T) {
	t.Helper()
	_ = sh.in.Close()
	_ = syscall.Kill(-sh.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-sh.ended:
	case <-time.After(waitTimeout):
		_ = syscall.Kill(-sh.cmd.Process.Pid, syscall.SIGKILL)
		require.Fail(t, "a command does not end", "%s", sh.output())
	}
}
