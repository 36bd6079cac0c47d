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
)

// startLimit is how long a child may take until it is ready. A machine that is very busy
// starts processes slowly, and nothing is gained by starting again.
const startLimit = time.Minute

// process is one child, from its start to its end.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *head
	frames chan frame    // closed when nothing more comes
	exited chan struct{} // closed when the process is no more
	killed sync.Once
	write  sync.Mutex
}

// launching asks for a process to be started, on the thread that starts them all.
type launching struct {
	p    *process
	done chan error
}

// launchChildren starts processes from one thread, which lives for as long as any of them:
// the system ends a child when the thread that started it ends, and that is what takes the
// children along when this process is killed. What the thread renounces for its children it
// cannot have back, so it is not unlocked, and ends with this function.
func (s *Sandbox) launchChildren() {
	runtime.LockOSThread()
	err := renounce()
	for l := range s.launch {
		if err == nil {
			l.done <- l.p.cmd.Start()
		} else {
			l.done <- err
		}
	}
}

// start starts a child and waits until it is ready. Who gets it ends it with retire.
func (s *Sandbox) start(ctx context.Context) (*process, error) {
	p, err := s.begin()
	if err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case f, ok := <-p.frames:
		if ok && f.kind == kindReady {
			return p, nil
		}
		err = errors.New("it ended before it was ready: " + p.stderr.String())
	case <-limit.C:
		err = errors.New("it was not ready in time")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.retire(p)
	return nil, fmt.Errorf("start a child: %w", err)
}

// begin starts a child, whose frames are read from then on.
func (s *Sandbox) begin() (*process, error) {
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
		stderr: &head{}, frames: make(chan frame), exited: make(chan struct{}),
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, p.stderr
	p.cmd.Env = []string{"TZ=UTC"} // the child gets nothing of the server's environment
	p.cmd.WaitDelay = time.Second  // nobody else should hold its standard error
	contain(p.cmd)
	l := launching{p, make(chan error, 1)}
	s.launch <- l
	err = <-l.done
	err = errors.Join(err, in.Close(), out.Close()) // they are the child's
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	s.reaping.Go(func() { p.read(max(s.opts.MaxResult, 2*maxCompiled) + 64<<10) })
	s.reaping.Go(p.reap)
	return p, nil
}

// read passes on what the child says, until it ends or says what is no frame: then frames is
// closed. Whoever has the child listens until he retires it, and that listens to the end.
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

func (p *process) reap() {
	_ = p.cmd.Wait() // how it ended is in ProcessState
	close(p.exited)
}

// send writes a frame to the child. An error means that the child is ending.
func (p *process) send(kind byte, v any) error {
	p.write.Lock()
	defer p.write.Unlock()
	return writeFrame(p.stdin, kind, v)
}

// kill ends the child, its group and whoever waits in send.
func (p *process) kill() {
	p.killed.Do(func() {
		select {
		case <-p.exited: // its number may be another's
		default:
			killGroup(p.cmd.Process)
		}
		_ = p.stdin.Close()
	})
}

// retire ends a child and frees what it held when it has ended.
func (s *Sandbox) retire(p *process) {
	p.kill()
	s.reaping.Go(func() {
		for range p.frames { // what it still says is for nobody
		}
		<-p.exited
		_ = p.stdout.Close()
	})
}

// fate says how a child ended that should not have: the name of the failure, and why. It
// waits until the process is no more.
func (p *process) fate() (name, why string) {
	p.kill()
	<-p.exited
	said := p.stderr.String()
	switch {
	case strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"):
		return Memory, noMemory
	case strings.Contains(said, "stack exceeds"), strings.Contains(said, "stack overflow"):
		return Syntax, "the code is nested too deeply to be read"
	case overProcessorTime(p.cmd.ProcessState):
		return Timeout, "the code used up its processor time"
	}
	return Crashed, "the process that ran the code ended: " + p.cmd.ProcessState.String()
}

// head keeps the beginning of what a process says: that is where Go says why it ends.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const headSize = 4 << 10

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := headSize - h.buf.Len(); room > 0 {
		h.buf.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

// cpuInTheEnd is the processor time of a child that has ended, that of its start included;
// 0 as long as it lives.
func (p *process) cpuInTheEnd() time.Duration {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	default:
		return 0
	}
}
