package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"comet/internal/background"
)

// startLimit is how long a child may take to become ready. It is long because a busy machine starts
// processes slowly, and starting again would not help.
const startLimit = time.Minute

type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *prefixBuffer
	frames chan frame      // closed after the last frame
	exited <-chan struct{} // closed when the process has ended
	killed sync.Once
	write  sync.Mutex
}

// startChild starts a child and waits until it is ready. The caller ends it with retire.
func (s *Sandbox) startChild(ctx context.Context) (*process, error) {
	p, err := s.launchChild()
	if err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	select {
	case f, ok := <-p.frames:
		if ok && f.kind == kindReady {
			return p, nil
		}
		err = errors.New("the process ended before it was ready: " + p.stderr.String())
	case <-time.After(startLimit):
		err = errors.New("the process was not ready in time")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.retire(p)
	return nil, fmt.Errorf("start a child: %w", err)
}

// launchChild starts a child and reads its frames.
func (s *Sandbox) launchChild() (*process, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), stdin.Close())
	}
	command := s.opts.Command
	p := &process{
		cmd: exec.Command(command[0], command[1:]...), stdin: stdin, stdout: stdout, //nolint:noctx // it outlives the request it is started for
		stderr: &prefixBuffer{}, frames: make(chan frame),
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, p.stderr
	// The child gets no variable of the server. containermaxprocs=0 makes Go close the files of the control group.
	p.cmd.Env, p.cmd.Dir = []string{"TZ=UTC", "GODEBUG=containermaxprocs=0", fmt.Sprint("GOMAXPROCS=", runtime.GOMAXPROCS(0))}, "/"
	p.cmd.WaitDelay = time.Second // for processes that inherited its standard error
	p.exited, err = background.StartProcess(p.cmd, restrictThread)
	err = errors.Join(err, in.Close(), out.Close()) // the child has its own copies
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	s.reaping.Go(func() { p.read(max(maxResult, 2*maxCompiled) + 64<<10) })
	return p, nil
}

// read sends the frames of the child to frames and closes it after the last one or an invalid one.
// The owner of the child receives them, and retire the rest.
func (p *process) read(limit int) {
	defer close(p.frames)
	for {
		f, err := readFrameFrom(p.stdout, limit)
		if err != nil {
			return
		}
		p.frames <- f
	}
}

// send writes a frame to the child. An error means that the child is ending.
func (p *process) send(kind byte, v any) error {
	p.write.Lock()
	defer p.write.Unlock()
	return writeFrame(p.stdin, kind, v)
}

// kill ends the child, its process group and pending calls of send.
func (p *process) kill() {
	p.killed.Do(func() {
		select {
		case <-p.exited: // the pid may belong to another process
		default:
			_ = background.KillProcessGroup(p.cmd.Process.Pid)
		}
		_ = p.stdin.Close()
	})
}

// retire kills a child and releases its resources.
func (s *Sandbox) retire(p *process) {
	p.kill()
	s.reaping.Go(func() {
		for range p.frames {
		}
		<-p.exited
		_ = p.stdout.Close()
	})
}

// exitReason kills the child, waits for its end, and returns the failure that an unexpected end is.
func (p *process) exitReason() (name, message string) {
	p.kill()
	<-p.exited
	stderr := p.stderr.String()
	switch {
	case strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "cannot allocate memory"):
		return Memory, outOfMemory
	case strings.Contains(stderr, "stack exceeds"), strings.Contains(stderr, "stack overflow"):
		return Syntax, "the code is nested too deeply"
	case exceededCPU(p.cmd.ProcessState):
		return Timeout, "the code used up its processor time"
	}
	return Crashed, "the process that ran the code ended: " + p.cmd.ProcessState.String()
}

// prefixBuffer keeps the beginning of the standard error of a child, where Go prints why it ends.
type prefixBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const prefixSize = 4 << 10

func (h *prefixBuffer) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if free := prefixSize - h.buf.Len(); free > 0 {
		h.buf.Write(b[:min(len(b), free)])
	}
	return len(b), nil
}

func (h *prefixBuffer) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

// cpu returns the processor time of a child with its start; 0 while it runs if that is unknown.
func (p *process) cpu() time.Duration {
	if d := runningCPU(p.cmd.Process.Pid); d > 0 {
		return d
	}
	select {
	case <-p.exited:
		return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	default:
		return 0
	}
}

// memory returns the peak memory of a running child in bytes, 0 if it is unknown.
func (p *process) memory() int64 { return peakMemory(p.cmd.Process.Pid) }

// keepChildReady keeps one child ready until the sandbox stops, and replaces it when it is taken or
// ends. It begins with the first run: a server that runs no code has no children.
func (s *Sandbox) keepChildReady(ctx context.Context) {
	select {
	case <-s.needed.Done():
	case <-ctx.Done():
		return
	}
	opts := background.PollOptions{Task: "starting a child of the sandbox", Logger: s.log, MaxBackoff: time.Minute}
	background.NewPollLoop(opts, func(ctx context.Context) (time.Duration, error) {
		p, err := s.startChild(ctx)
		if err == nil {
			err = s.offerChild(ctx, p)
		}
		return 0, err
	}).Run(ctx)
}

// offerChild waits until a run takes the child. Otherwise it retires the child.
func (s *Sandbox) offerChild(ctx context.Context, p *process) (err error) {
	select {
	case s.warm <- p:
		return nil
	case <-p.exited:
		err = fmt.Errorf("a child ended before it was used: %s %s", p.cmd.ProcessState, p.stderr)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.retire(p)
	return err
}

// takeChild returns a child that is ready, or starts one.
func (s *Sandbox) takeChild(ctx context.Context) (p *process, warm bool, err error) {
	select {
	case p = <-s.warm:
		return p, true, nil
	default:
	}
	p, err = s.startChild(ctx)
	return p, false, err
}

// acquireSlot waits up to timeout for a slot of MaxRuns, which the caller releases.
func (s *Sandbox) acquireSlot(ctx context.Context, timeout time.Duration) error {
	err := background.AcquireWithin(ctx, s.slots, timeout)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &Failure{Name: Busy, Message: "too many runs are in progress, and none ended within the timeout"}
}
