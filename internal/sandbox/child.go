package sandbox

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// maxStack bounds a goroutine of a child. The engine stops the code long before; the
// compiler does not stop, and ends here.
const maxStack = 128 << 20

// Child is what a program does that was started with ChildArgument: it serves one run over
// stdin and stdout. It returns when stdin ends, whatever the code does by then; the program
// has to end with the exit code it returns, and should do nothing else before.
func Child(stdin io.Reader, stdout io.Writer) int {
	debug.SetMaxStack(maxStack)
	c := &child{out: stdout, orders: make(chan runFrame, 1), answers: make(chan answerFrame, outstanding)}
	failed := make(chan error, 1)
	go func() {
		if err := c.serve(); err != nil {
			failed <- err
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- c.listen(stdin) }()
	var err error
	select {
	case err = <-failed:
	case err = <-ended:
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sandbox child:", err)
		return 1
	}
	return 0
}

// child is the other end of a run.
type child struct {
	mu      sync.Mutex
	out     io.Writer
	orders  chan runFrame
	answers chan answerFrame

	engine   *engine
	order    runFrame
	deadline time.Time
	lines    *sourceMap
}

func (c *child) send(kind byte, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.out, kind, v)
}

// listen reads what the parent says, until it says nothing more.
func (c *child) listen(in io.Reader) error {
	for {
		f, err := readFrameFrom(in, maxFromParent)
		if err != nil {
			return nil //nolint:nilerr // the end of the input is that of the child
		}
		switch f.kind {
		case kindRun:
			order, err := decode[runFrame](f.body)
			if err != nil {
				return err
			}
			c.orders <- order
		case kindAnswer:
			answer, err := decode[answerFrame](f.body)
			if err != nil {
				return err
			}
			c.answers <- answer
		default:
			return errFrame
		}
	}
}

// serve gets everything ready that can be without knowing the code, and runs it when it
// comes.
func (c *child) serve() error {
	var err error
	if c.engine, err = newEngine(c); err != nil {
		return err
	}
	warmCompiler()
	base, err := confine()
	if err != nil {
		return err
	}
	if err := c.send(kindReady, readyFrame{}); err != nil {
		return err
	}
	c.order = <-c.orders
	timeout := time.Duration(c.order.Timeout) * time.Millisecond
	c.deadline = time.Now().Add(timeout)
	if err := limit(base, c.order.MemoryMB, timeout+grace); err != nil {
		return err
	}
	js, failed := c.javascript()
	if failed != nil {
		return c.send(kindFailed, failed)
	}
	c.lines = newSourceMap(js)
	return c.run(js.Code)
}

// javascript is the code in the engine's language.
func (c *child) javascript() (*compiled, *failedFrame) {
	if c.order.Compiled != nil {
		return c.order.Compiled, nil
	}
	js, failed := compile(c.order.Code)
	if failed != nil {
		return nil, failed
	}
	kept := js
	if len(js.Code)+len(js.Mappings) > maxCompiled {
		kept = &compiled{} // the parent learns that it was compiled, and caches nothing
	}
	if err := c.send(kindCompiled, kept); err != nil {
		return nil, &failedFrame{Name: Crashed, Message: err.Error()}
	}
	return js, nil
}

// run runs the code to its end, and says how it ended.
func (c *child) run(js string) error {
	e := c.engine
	e.limits(c.order)
	e.arm(time.Until(c.deadline))
	err := e.begin(js, string(c.order.Context), c.order.Servers)
	for e.outcome == nil && err == nil && time.Now().Before(c.deadline) {
		if err = e.jobs(time.Until(c.deadline)); err == nil && e.outcome == nil {
			err = c.wait()
		}
	}
	if e.outcome == nil && !time.Now().Before(c.deadline) {
		e.lastWords()
		return c.send(kindFailed, c.lines.located(failedFrame{Name: Timeout, Stack: e.stack}))
	}
	if e.outcome == nil {
		return c.send(kindFailed, c.lines.located(failureOf(err)))
	}
	if f, ok := e.outcome.(failedFrame); ok {
		return c.send(kindFailed, c.lines.located(f))
	}
	return c.send(kindDone, e.outcome)
}

// wait waits for an answer or a timer and passes it on, unless the engine has more to do.
func (c *child) wait() error {
	e := c.engine
	var due <-chan time.Time
	if at, ok := e.timers.next(); ok {
		t := time.NewTimer(max(0, min(time.Until(at), time.Until(c.deadline))))
		defer t.Stop()
		due = t.C
	}
	switch {
	case e.busy:
		select {
		case a := <-c.answers:
			return e.answer(a)
		default:
			return nil
		}
	case e.awaited == 0 && due == nil:
		return errWaitsForNothing
	case due == nil:
		t := time.NewTimer(max(0, time.Until(c.deadline)))
		defer t.Stop()
		due = t.C
	}
	select {
	case a := <-c.answers:
		return e.answer(a)
	case <-due:
		return e.fire(time.Now())
	}
}
