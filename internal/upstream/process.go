package upstream

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"comet/internal/words"
)

const (
	// outputTimeout is how long the outputs of a program are read that has ended: another
	// one that left its group may hold them open.
	outputTimeout = time.Second
	// killTimeout is how long the end of a killed program is waited for.
	killTimeout = 10 * time.Second
)

// process is a program in a process group of its own.
type process struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // our ends
	exited                chan struct{}
}

// startProcess starts the program of l. It is killed when this process ends, however it
// ends, where the system knows how (Linux).
func startProcess(l *resolvedServer, lookup func(string) (string, bool)) (*process, error) {
	path, err := findProgram(l)
	if err != nil {
		return nil, err
	}
	//nolint:noctx // a context would kill the program alone, and not its group
	cmd := exec.Command(path, l.Args...)
	cmd.Args[0] = l.Command
	cmd.Dir, cmd.Env = l.Dir, environment(l.Env, lookup)
	contain(cmd)
	p := &process{cmd: cmd, exited: make(chan struct{})}
	theirs, err := p.pipes()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go p.run(started)
	err = <-started
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		<-p.exited
		p.closePipes()
		return nil, l.startError(err)
	}
	return p, nil
}

// run starts the program and waits for its end on one thread: on Linux a program is told
// of the end of the thread that started it, not of the process.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	reap(p.cmd)
	until := time.Now().Add(outputTimeout)
	_ = p.stdout.SetReadDeadline(until)
	_ = p.stderr.SetReadDeadline(until)
}

// pipes makes the three pipes and returns the program's ends.
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

// stop ends the program as the protocol asks (stdio, shutdown): its input is closed
// already; after each grace comes a stronger word. It returns when the program is gone.
func (p *process) stop(grace time.Duration) {
	pid := p.cmd.Process.Pid
	for _, next := range []struct {
		wait time.Duration
		then func(int) error
	}{{grace, terminateGroup}, {grace, killGroup}, {killTimeout, nil}} {
		timer := time.NewTimer(next.wait)
		select {
		case <-p.exited:
			timer.Stop()
			return
		case <-timer.C:
		}
		if next.then != nil {
			_ = next.then(pid) // it may just have ended
		}
	}
}

// exitError says how the program ended, which it has.
func (p *process) exitError() error {
	return fmt.Errorf("the program ended (%s)", p.cmd.ProcessState)
}

// environment is what a program gets: its own variables and a minimal set, as the SDKs
// of the protocol do.
func environment(own map[string]string, lookup func(string) (string, bool)) []string {
	var env []string
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
		"APPDATA", "LOCALAPPDATA", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
	} {
		if value, set := lookup(name); set && !strings.HasPrefix(value, "()") { // a shell's function
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// findProgram looks the program up in the PATH it will have itself.
func findProgram(l *resolvedServer) (string, error) {
	path, own := l.Env["PATH"]
	if !own || strings.ContainsRune(l.Command, filepath.Separator) {
		found, err := exec.LookPath(l.Command)
		if err != nil && strings.ContainsRune(l.Command, filepath.Separator) {
			return l.Command, nil // it may be relative to its own folder
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

// startError is a sentence that says what was to be started, as far as that is no secret.
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
	return fmt.Errorf("the program %s could not be started: %w", words.Quote(l.secrets.mask(l.Command)), inner)
}

const (
	keptLines = 20   // of standard error, for Status
	maxLine   = 2000 // characters of one
	lineRate  = 20   // lines a second that go to the log
	lineBurst = 200
)

// stderrLines are what a program writes to its standard error. All of it is read, or the
// program would wait; what is kept and logged is bounded.
type stderrLines struct {
	ended chan struct{} // there will be no more
	mu    sync.Mutex
	last  []string
}

func newStderrLines() *stderrLines { return &stderrLines{ended: make(chan struct{})} }

// readAll reads to the end.
func (l *stderrLines) readAll(r io.Reader, s *secrets, log *slog.Logger) {
	in := newLineReader(r, 64<<10)
	limit := rate.NewLimiter(lineRate, lineBurst)
	silent := 0
	for {
		line, over, err := in.next()
		text := words.ClipTo(s.mask(string(line)), maxLine)
		if over != nil {
			text = "(a line of more than 65536 bytes)"
		}
		if text != "" {
			l.add(text)
			if limit.AllowN(time.Now(), 1) {
				log.Info("an upstream writes", "line", text, "left_out", silent)
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
	if len(l.last) == keptLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, line)
}

// lines returns the last ones, oldest first.
func (l *stderrLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}
