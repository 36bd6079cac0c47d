package background

import (
	"context"
	"os/exec"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Signal wakes one goroutine that receives from it. Calls of Set before the receive count as one.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the receiver. It never waits.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Sleep returns after d, or with the error of ctx if that ends earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitFor returns when wait has returned, or with the error of ctx if that ends earlier.
func WaitFor(ctx context.Context, wait func()) error {
	ended := make(chan struct{})
	go func() { wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StartProcess starts a command in its own process group, which the Linux kernel kills when this
// process ends for any reason. prepare, if not nil, changes the thread that starts the command; the
// thread ends with the command. exited is closed when the command has ended and the rest of its
// group is killed; cmd.ProcessState has the result.
func StartProcess(cmd *exec.Cmd, prepare func() error) (exited <-chan struct{}, err error) {
	SetProcessGroup(cmd)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked, because prepare has changed the thread
		defer close(ended)
		var err error
		if prepare != nil {
			err = prepare()
		}
		if err == nil {
			err = cmd.Start()
		}
		if started <- err; err == nil {
			WaitProcessGroup(cmd)
		}
	}()
	return ended, <-started
}

// MaxBackoff is the usual longest wait between attempts that fail.
const MaxBackoff = 5 * time.Second

// NewBackoff returns the waits between attempts that fail: they double from a hundredth of longest
// to longest and vary by 50%.
func NewBackoff(longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = longest/100, 2, longest
	return b
}
