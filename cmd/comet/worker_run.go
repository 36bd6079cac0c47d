package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"comet/agent"
)

const (
	// memoryPoll is how often the memory of a command with a limit is looked at.
	memoryPoll = 250 * time.Millisecond
	// lastWords is how long is waited for output after a command has ended.
	lastWords = 250 * time.Millisecond
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
	notes     io.Writer
	groups    *groups // nil notes none

	killed chan struct{} // closed when every command is to end at once
	once   sync.Once
}

func newRunner(command []string, f workerFlags, notes io.Writer) *runner {
	return &runner{
		command: command, grace: f.grace, maxOutput: f.maxOutput, environ: inherited(os.Environ()), notes: &lockedWriter{w: notes},
		killed: make(chan struct{}),
	}
}

// kill ends every command at once.
func (r *runner) kill() { r.once.Do(func() { close(r.killed) }) }

// run is the agent's function for every type of work.
func (r *runner) run(ctx context.Context, w *agent.Work) (agent.Result, error) { return r.do(ctx, w) }

func (r *runner) do(ctx context.Context, w task) (agent.Result, error) {
	// The system ends the command, though not what it has started, with the thread that
	// started it, so that it does not outlive the worker; the thread must last as long as
	// the command then.
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
	say(r.notes, "%s", line)
	return result, err
}

// execute runs the command and returns how it ended, with the most memory it used in
// bytes. The error is why it was made to end.
func (r *runner) execute(ctx context.Context, w task, out *commandOutput) (agent.Result, int64, error) {
	//nolint:noctx // a context would kill the command alone, and not its group
	cmd := exec.Command(r.command[0], r.command[1:]...)
	cmd.Env = environment(r.environ, w)
	cmd.Stdin = bytes.NewReader(w.Parameters())
	cmd.WaitDelay = lastWords // for parameters that nobody reads
	contain(cmd)
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
		say(r.notes, "%s", err)
	}
	pumps.start()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // the state tells
	}()
	why := r.watch(ctx, cmd.Process.Pid, w.Hints().MaxMemoryMB, exited)
	_ = killGroup(cmd.Process.Pid) // what it left behind; mostly there is nobody
	if err := removed(); err != nil {
		say(r.notes, "%s", err)
	}
	pumps.finish()
	state := cmd.ProcessState
	return agent.Result{ExitCode: exitStatus(state), CPUTime: state.UserTime() + state.SystemTime()}, maxMemory(state), why
}

// watch waits for the end of a command and sees to it that it comes. It returns why it
// made the command end, nil where it did not.
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
			done, why = nil, first(why, context.Cause(ctx))
			_ = terminateGroup(pid) // it may just have ended
			timer := time.NewTimer(r.grace)
			defer timer.Stop()
			late = timer.C
		case <-late:
			_ = killGroup(pid)
		case <-killed:
			killed, why = nil, first(why, agent.ErrStopping)
			_ = killGroup(pid)
		case <-look:
			if used := groupMemory(pid); used > limitMB*megabyte {
				look, why = nil, first(why, agent.ResourceLimit("memory_mb", limitMB, (used+megabyte-1)/megabyte))
				_ = killGroup(pid)
			}
		}
	}
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// lockedWriter lets several tasks write lines.
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
