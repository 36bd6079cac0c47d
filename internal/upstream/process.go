package upstream

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"comet/internal/background"
	"comet/internal/input"
)

const (
	// outputTimeout limits how long the output of a program is read after its end: a child that
	// left the process group may hold the pipes open.
	outputTimeout = time.Second
	// killTimeout limits the wait for the end of a killed program.
	killTimeout = 10 * time.Second
)

// process is a program in its own process group.
type process struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // our ends of the pipes
	exited                <-chan struct{}
}

func startProcess(l *resolvedServer, lookup func(string) (string, bool)) (*process, error) {
	path, err := findProgram(l)
	if err != nil {
		return nil, err
	}
	//nolint:noctx // a context would kill the program alone, and not its group
	cmd := exec.Command(path, l.Args...)
	cmd.Args[0] = l.Command
	cmd.Dir, cmd.Env = l.Dir, environment(l.Env, lookup)
	p := &process{cmd: cmd}
	theirs, err := p.pipes()
	if err != nil {
		return nil, err
	}
	p.exited, err = background.StartProcess(cmd, nil)
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.closePipes()
		return nil, l.startError(err)
	}
	go func() { // the reads of the output end a moment after the program
		<-p.exited
		until := time.Now().Add(outputTimeout)
		_ = p.stdout.SetReadDeadline(until)
		_ = p.stderr.SetReadDeadline(until)
	}()
	return p, nil
}

// pipes creates the three pipes and returns the program's ends.
func (p *process) pipes() (theirs []*os.File, err error) {
	var all []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range all {
				_ = f.Close()
			}
			return nil, err
		}
		all = append(all, r, w)
	}
	p.cmd.Stdin, p.stdin = all[0], all[1]
	p.stdout, p.cmd.Stdout = all[2], all[3]
	p.stderr, p.cmd.Stderr = all[4], all[5]
	return []*os.File{all[0], all[3], all[5]}, nil
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close()
	}
}

// stop ends the program as the protocol defines it (stdio, shutdown). Its input is closed already;
// after each grace period a stronger signal follows. It returns when the program has ended or
// cannot be killed.
func (p *process) stop(grace time.Duration) {
	pid := p.cmd.Process.Pid
	for _, next := range []struct {
		wait time.Duration
		then func(int) error
	}{{grace, background.TerminateProcessGroup}, {grace, background.KillProcessGroup}, {killTimeout, nil}} {
		select {
		case <-p.exited:
			return
		case <-time.After(next.wait):
		}
		if next.then != nil {
			_ = next.then(pid) // the program may just have ended
		}
	}
}

// environment returns a program's own variables and the minimal set that the MCP SDKs pass.
func environment(own map[string]string, lookup func(string) (string, bool)) []string {
	var env []string
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
		"APPDATA", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
	} {
		if value, set := lookup(name); set && !strings.HasPrefix(value, "()") { // an exported function of a shell
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// findProgram looks the program up in the PATH that it will have itself.
func findProgram(l *resolvedServer) (string, error) {
	path, own := l.Env["PATH"]
	if !own || strings.ContainsRune(l.Command, filepath.Separator) {
		found, err := exec.LookPath(l.Command)
		if err != nil && strings.ContainsRune(l.Command, filepath.Separator) {
			return l.Command, nil // it may be relative to its own directory
		}
		return found, l.startError(err)
	}
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, l.Command)); err == nil {
			return found, nil
		}
	}
	return "", l.startError(exec.ErrNotFound)
}

// startError returns an error that names the program, with secrets masked.
func (l *resolvedServer) startError(err error) error {
	if err == nil {
		return nil
	}
	inner := err
	for _, known := range []error{exec.ErrNotFound, os.ErrNotExist, os.ErrPermission} {
		if errors.Is(err, known) {
			inner = known
		}
	}
	return fmt.Errorf("the program %s could not be started: %w", input.Quote(l.secrets.mask(l.Command)), inner)
}

const (
	keptLines = 20   // of standard error, for Status
	maxLine   = 2000 // characters of one
	lineRate  = 20   // lines a second that go to the log
	lineBurst = 200
)

// stderrLines reads all that a program writes to its standard error, because the program would
// block otherwise. What is kept and logged is limited.
type stderrLines struct {
	ended chan struct{} // closed at the end of the output
	mu    sync.Mutex
	last  []string
}

func newStderrLines() *stderrLines { return &stderrLines{ended: make(chan struct{})} }

func (l *stderrLines) readAll(r io.Reader, s *secrets, log *slog.Logger) {
	in := input.NewLineReader(r, 64<<10)
	limit := rate.NewLimiter(lineRate, lineBurst)
	silent := 0
	for {
		line, over, err := in.Next()
		text := input.ClipTo(s.mask(string(line)), maxLine)
		if over != nil {
			text = "(a line of more than 65536 bytes)"
		}
		if text != "" {
			l.add(text)
			if limit.AllowN(time.Now(), 1) {
				log.Info("standard error of an upstream", "line", text, "suppressed", silent)
				silent = 0
			} else {
				silent++
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *stderrLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, line)
	l.last = l.last[max(0, len(l.last)-keptLines):]
}

// lines returns the last lines, oldest first.
func (l *stderrLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}
