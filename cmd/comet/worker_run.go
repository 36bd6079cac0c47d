package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/agent"
	"comet/internal/background"
)

const (
	// memoryPoll is how often the memory of a command with a limit is measured.
	memoryPoll = 250 * time.Millisecond
	// outputDelay is how long to wait for output after a command has ended.
	outputDelay = 250 * time.Millisecond
	// exitNotStarted is the exit code of a command that could not be started.
	exitNotStarted = 126
	megabyte       = 1 << 20
)

// runner runs a command for each task.
type runner struct {
	command   []string
	grace     time.Duration
	maxOutput int
	environ   []string
	messages  io.Writer
	groups    *groups // nil records none

	killed chan struct{} // closed to kill every command
	once   sync.Once
}

func newRunner(command []string, f workerFlags, notes io.Writer) *runner {
	return &runner{
		command: command, grace: f.grace, maxOutput: f.maxOutput, environ: inherited(os.Environ()), messages: &lockedWriter{w: notes},
		killed: make(chan struct{}),
	}
}

// kill kills every command.
func (r *runner) kill() { r.once.Do(func() { close(r.killed) }) }

// run is the agent's handler for every work type.
func (r *runner) run(ctx context.Context, w *agent.Work) (agent.Result, error) {
	return r.runTask(ctx, w)
}

func (r *runner) runTask(ctx context.Context, w task) (agent.Result, error) {
	// The kernel kills the command when the thread that started it ends (Pdeathsig), so that it
	// does not outlive the worker; the thread must live as long as the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	out := newCommandOutput(w, r.maxOutput)
	result, used, err := r.execute(ctx, w, out)
	result.Output = out.tail.String()
	verdict := "success"
	if err != nil || result.ExitCode != 0 {
		verdict = "failed"
	}
	line := fmt.Sprintf("%s  %s  %s  %s  exit %d  %s  cpu %s  rss %d MB", time.Now().UTC().Format(time.RFC3339), w.TaskID(), w.Type(), verdict,
		result.ExitCode, time.Since(began).Round(time.Millisecond), result.CPUTime.Round(time.Millisecond), used/megabyte)
	if err != nil {
		line += "  " + err.Error()
	}
	printLine(r.messages, "%s", line)
	return result, err
}

// execute runs the command and returns its result, with its peak memory in bytes. The error is
// why it was ended.
func (r *runner) execute(ctx context.Context, w task, out *commandOutput) (agent.Result, int64, error) {
	//nolint:noctx // a context would kill the command alone, and not its group
	cmd := exec.Command(r.command[0], r.command[1:]...)
	cmd.Env = environment(r.environ, w)
	cmd.Stdin = bytes.NewReader(w.Parameters())
	cmd.WaitDelay = outputDelay // for a command that does not read its input
	background.SetProcessGroup(cmd)
	pumps, err := out.attach(cmd)
	if err != nil {
		return agent.Result{ExitCode: exitNotStarted}, 0, err
	}
	if err := cmd.Start(); err != nil {
		pumps.abandon()
		return agent.Result{ExitCode: exitNotStarted}, 0, fmt.Errorf("the command cannot be started: %w", err)
	}
	removed, err := r.groups.add(cmd.Process.Pid, w.TaskID().String())
	if err != nil {
		printLine(r.messages, "%s", err)
	}
	pumps.start()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		background.WaitProcessGroup(cmd) // kills what the command left running
	}()
	why := r.watch(ctx, cmd.Process.Pid, w.Hints().MaxMemoryMB, exited)
	if err := removed(); err != nil {
		printLine(r.messages, "%s", err)
	}
	pumps.finish()
	state := cmd.ProcessState
	return agent.Result{ExitCode: exitStatus(state), CPUTime: state.UserTime() + state.SystemTime()}, maxMemory(state), why
}

// watch waits for the end of a command, and ends it when it must. It returns why it ended the
// command, nil if it did not.
func (r *runner) watch(ctx context.Context, pid int, limitMB int64, exited <-chan struct{}) (why error) {
	done, killed := ctx.Done(), r.killed
	var late, look <-chan time.Time
	if limitMB > 0 {
		ticker := time.NewTicker(memoryPoll)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-exited:
			return why
		case <-done:
			done, why = nil, firstError(why, context.Cause(ctx))
			_ = background.TerminateProcessGroup(pid) // it may have ended
			late = time.After(r.grace)
		case <-late:
			_ = background.KillProcessGroup(pid)
		case <-killed:
			killed, why = nil, firstError(why, agent.ErrStopping)
			_ = background.KillProcessGroup(pid)
		case <-look:
			if used := groupMemory(pid); used > limitMB*megabyte {
				look, why = nil, firstError(why, agent.ResourceLimit("memory_mb", limitMB, (used+megabyte-1)/megabyte))
				_ = background.KillProcessGroup(pid)
			}
		}
	}
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// lockedWriter lets several tasks write to w.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

const (
	cometPrefix  = "COMET_"
	paramPrefix  = "COMET_PARAM_"
	taskVariable = "COMET_TASK_ID="
	// maxVariable and maxVariables limit the environment of a command, in bytes; the system
	// starts no command with much more. Standard input has all parameters.
	maxVariable  = 64 << 10
	maxVariables = 512 << 10
)

// inherited is the part of the worker's environment that commands get: nothing of comet's own,
// such as a token, a database address or the variables of a task. Names are case-insensitive on
// some systems.
func inherited(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return len(name) >= len(cometPrefix) && strings.EqualFold(name[:len(cometPrefix)], cometPrefix)
	})
}

// environment adds the variables of a task.
func environment(base []string, w task) []string {
	env := append(slices.Clip(base),
		taskVariable+w.TaskID().String(), "COMET_REQUEST_ID="+w.RequestID().String(), "COMET_TRACE_ID="+w.TraceID().String(),
		"COMET_WORK_TYPE="+w.Type())
	parameters := w.Parameters()
	left := maxVariables
	for _, entry := range append([]string{"COMET_PARAMETERS=" + string(parameters)}, variables(parameters)...) {
		if len(entry) <= maxVariable && len(entry) <= left && strings.IndexByte(entry, 0) < 0 {
			env, left = append(env, entry), left-len(entry)
		}
	}
	return env
}

// variables are the parameters that are text, numbers or booleans. If several have the same
// variable name the last counts.
func variables(parameters []byte) (entries []string) {
	dec := jsontext.NewDecoder(bytes.NewReader(parameters))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return entries
		}
		variable := paramPrefix + variableName(name.String())
		switch dec.PeekKind() {
		case '"', '0', 't', 'f':
			value, err := dec.ReadToken()
			if err != nil {
				return entries
			}
			entries = append(entries, variable+"="+value.String())
		default:
			if dec.SkipValue() != nil {
				return entries
			}
		}
	}
	return entries
}

// variableName is a name in upper case, with _ for characters that a variable's name must not
// have.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

const suffixGroup = ".json"

// group is the process group of a task. The leader's pid alone does not identify it, because pids
// are reused.
type group struct {
	Leader int `json:"leader"`
	// Started is the leader's start in clock ticks since the system booted, and Boot is the id of
	// that boot.
	Started int64  `json:"started"`
	Boot    string `json:"boot"`
	Task    string `json:"task"`
}

// groups records the running process groups in a directory, one file each: if a worker is killed,
// the kernel kills its commands, but not the processes that these have started. The next worker
// does. A nil *groups records nothing, nor does one on a system that does not report when a
// process was started.
type groups struct{ dir string }

// openGroups kills what an earlier worker left running and returns the tasks of it.
func openGroups(dir string) (g *groups, ended []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(strings.TrimSuffix(e.Name(), suffixGroup)); err != nil {
			continue // a foreign file
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, ended, err
		}
		var left group
		if json.Unmarshal(data, &left) == nil && left.Leader > 1 && left.lives() && background.KillProcessGroup(left.Leader) == nil {
			ended = append(ended, left.Task)
		}
		if err := os.Remove(path); err != nil {
			return nil, ended, err
		}
	}
	return &groups{dir: dir}, ended, nil
}

// add records the group of a command that has started. The function it returns must be called
// when the group is empty.
func (g *groups) add(leader int, task string) (remove func() error, err error) {
	nothing := func() error { return nil }
	if g == nil {
		return nothing, nil
	}
	started, boot, ok := startOf(leader)
	if !ok {
		return nothing, nil
	}
	data, err := json.Marshal(group{Leader: leader, Started: started, Boot: boot, Task: task})
	if err != nil {
		return nothing, err
	}
	path := filepath.Join(g.dir, strconv.Itoa(leader)+suffixGroup)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nothing, fmt.Errorf("the process group of a task cannot be recorded: %w", err)
	}
	return func() error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}
