// Package program executes the work of an agent by running a command for each piece: the parameters
// are the command's input and environment, and its output is sent as it is printed. "comet worker"
// uses it.
package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"comet/agent"
	"comet/internal/background"
	"comet/internal/input"
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

// Options configures New; nil is the zero value.
type Options struct {
	// Grace is the time between SIGTERM and SIGKILL for a command that must end.
	Grace time.Duration
	// MaxOutput is the number of bytes, from the end of the output, in a result.
	MaxOutput int
	// State is the absolute path of the worker's state directory, "" for none. KillLeftover uses it
	// to find the processes that a killed worker has left running.
	State string
	// Log is called with a line about each piece of work that has ended; nil discards them.
	Log func(line string)
}

// Runner runs a command for each piece of work.
type Runner struct {
	command []string
	opts    Options
	environ []string

	log    sync.Mutex
	killed chan struct{} // closed to kill every command
	once   sync.Once
}

// New returns a Runner of a program and its arguments.
func New(command []string, opts *Options) *Runner {
	r := &Runner{command: command, opts: *cmp.Or(opts, &Options{}), environ: inherited(os.Environ()), killed: make(chan struct{})}
	if r.opts.State != "" {
		r.environ = append(r.environ, stateVariable+r.opts.State)
	}
	return r
}

// Kill kills every command, now and later.
func (r *Runner) Kill() { r.once.Do(func() { close(r.killed) }) }

// Run is an agent.Handler for every work type.
func (r *Runner) Run(ctx context.Context, w *agent.Work) (agent.Result, error) {
	return r.runTask(ctx, w)
}

func (r *Runner) runTask(ctx context.Context, w task) (agent.Result, error) {
	began := time.Now()
	out := &commandOutput{to: w, tail: tail{keep: r.opts.MaxOutput}}
	result, used, err := r.execute(ctx, w, out)
	result.Output = out.tail.String()
	if errors.Is(err, agent.ErrMaxDuration) {
		result.ExitCode = agent.ExitMaxDuration // as the requester sees it
	}
	verdict := "success"
	if err != nil || result.ExitCode != 0 {
		verdict = "failed"
	}
	line := fmt.Sprintf("%s  %s  %s  %s  exit %d  %s  cpu %s  rss %d MB", time.Now().UTC().Format(time.RFC3339), w.TaskID(), w.Type(), verdict,
		result.ExitCode, time.Since(began).Round(time.Millisecond), result.CPUTime.Round(time.Millisecond), used/megabyte)
	if err != nil {
		line += "  " + err.Error()
	}
	if r.opts.Log != nil {
		r.log.Lock()
		defer r.log.Unlock()
		r.opts.Log(line)
	}
	return result, err
}

// execute runs the command and returns its result, with its peak memory in bytes. The error is
// why it was ended.
func (r *Runner) execute(ctx context.Context, w task, out *commandOutput) (agent.Result, int64, error) {
	//nolint:noctx // a context would kill the command alone, and not its group
	cmd := exec.Command(r.command[0], r.command[1:]...)
	cmd.Env = environment(r.environ, w)
	cmd.Stdin = bytes.NewReader(w.Parameters())
	cmd.WaitDelay = outputDelay // for a command that does not read its input
	if err := out.attach(cmd); err != nil {
		return agent.Result{ExitCode: exitNotStarted}, 0, err
	}
	exited, err := background.StartProcess(cmd, nil) // it does not outlive the worker
	if err != nil {
		out.abandon()
		return agent.Result{ExitCode: exitNotStarted}, 0, fmt.Errorf("the command cannot be started: %w", err)
	}
	out.start()
	why := r.watch(ctx, cmd.Process.Pid, w.Hints().MaxMemoryMB, exited)
	out.finish()
	state := cmd.ProcessState
	return agent.Result{ExitCode: exitStatus(state), CPUTime: state.UserTime() + state.SystemTime()}, maxMemory(state), why
}

// watch waits for the end of a command, and ends it when it must. It returns why it ended the
// command, nil if it did not.
func (r *Runner) watch(ctx context.Context, pid int, limitMB int64, exited <-chan struct{}) (why error) {
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
			done, why = nil, cmp.Or(why, context.Cause(ctx))
			_ = background.TerminateProcessGroup(pid) // it may have ended
			late = time.After(r.opts.Grace)
		case <-late:
			_ = background.KillProcessGroup(pid)
		case <-killed:
			killed, why = nil, cmp.Or(why, agent.ErrStopping)
			_ = background.KillProcessGroup(pid)
		case <-look:
			if used := groupMemory(pid); used > limitMB*megabyte {
				look, why = nil, cmp.Or(why, agent.ResourceLimit("memory_mb", limitMB, (used+megabyte-1)/megabyte))
				_ = background.KillProcessGroup(pid)
			}
		}
	}
}

const (
	cometPrefix  = "COMET_"
	paramPrefix  = "COMET_PARAM_"
	taskVariable = "COMET_TASK_ID="
	// stateVariable has the absolute path of the state directory. The next worker with the same
	// directory uses it to find the processes that a killed one has left running.
	stateVariable = "COMET_WORKER_STATE="
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
	root := input.Parse(parameters, input.JSON).Root
	if root == nil || root.Kind != input.Object {
		return nil
	}
	for _, m := range root.Members {
		if kind := m.Value.Kind; kind == input.String || kind == input.Number || kind == input.Boolean {
			entries = append(entries, paramPrefix+variableName(m.Name)+"="+m.Value.Text)
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
