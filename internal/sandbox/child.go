package sandbox

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// maxStack bounds a goroutine's stack of a child; the compiler has no limit of its own.
const maxStack = 128 << 20

// Child serves one run over stdin and stdout. A program that was started with ChildArgument calls
// it first and exits with the returned code. Child returns when stdin ends, even while code runs.
func Child(stdin io.Reader, stdout io.Writer) int {
	debug.SetMaxStack(maxStack)
	c := &child{out: stdout, runs: make(chan runFrame, 1), responses: make(chan responseFrame, maxConcurrentCalls)}
	ended := make(chan error, 2)
	go func() {
		if err := c.serve(); err != nil {
			ended <- err
		}
	}()
	go func() { ended <- c.readFrames(stdin) }()
	if err := <-ended; err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sandbox child:", err)
		return 1
	}
	return 0
}

type child struct {
	mu        sync.Mutex
	out       io.Writer
	runs      chan runFrame
	responses chan responseFrame

	engine    *engine
	request   runFrame
	begin     time.Time
	deadline  time.Time
	js        string
	sourceMap *sourceMap
}

func (c *child) send(kind byte, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.out, kind, v)
}

// readFrames reads the frames of the parent until stdin ends.
func (c *child) readFrames(in io.Reader) error {
	for {
		f, err := readFrameFrom(in, maxFromParent)
		if err != nil {
			return nil //nolint:nilerr // the child ends with its input
		}
		switch err = errFrame; f.kind {
		case kindRun:
			err = receive(f.body, c.runs)
		case kindResponse:
			err = receive(f.body, c.responses)
		}
		if err != nil {
			return err
		}
	}
}

func receive[T any](body []byte, to chan<- T) error {
	v, err := decode[T](body)
	if err == nil {
		to <- v
	}
	return err
}

// serve prepares everything that does not depend on the code, waits for the code and runs it.
func (c *child) serve() error {
	var err error
	if c.engine, err = newEngine(c); err != nil {
		return err
	}
	_, _ = compile("const a: number = await 1; return a") // initialises the compiler before the limits
	base, err := confine()
	if err != nil {
		return err
	}
	if err := c.send(kindReady, struct{}{}); err != nil {
		return err
	}
	c.request = <-c.runs
	timeout := time.Duration(c.request.Timeout) * time.Millisecond
	c.begin = time.Now()
	c.deadline = c.begin.Add(timeout)
	if err := setLimits(base, c.request.MemoryMB, timeout+grace); err != nil {
		return err
	}
	js, failed := c.compiledCode()
	if failed != nil {
		return c.send(kindFailed, failed)
	}
	c.sourceMap, c.js = newSourceMap(js), js.Code
	return c.run(js.Code)
}

// compiledCode returns the code as JavaScript, and sends it to the parent where it compiled it.
func (c *child) compiledCode() (*compiled, *failedFrame) {
	if c.request.Compiled != nil {
		return c.request.Compiled, nil
	}
	js, failed := compile(c.request.Code)
	if failed != nil {
		return nil, failed
	}
	sent := js
	if len(js.Code)+len(js.Mappings) > maxCompiled {
		sent = &compiled{} // the parent learns that it was compiled and caches nothing
	}
	if err := c.send(kindCompiled, sent); err != nil {
		return nil, &failedFrame{Name: Crashed, Message: err.Error()}
	}
	return js, nil
}

// run runs the code to its end and sends the outcome.
func (c *child) run(js string) error {
	e := c.engine
	e.memory = c.request.MemoryMB << 20
	e.vm.SetMemoryLimit(uintptr(e.memory))
	e.setDeadline(time.Until(c.deadline))
	err := e.runCode(js, string(c.request.Context), c.request.Servers)
	for e.outcome == nil && err == nil && time.Now().Before(c.deadline) {
		if err = e.runJobs(time.Until(c.deadline)); err == nil && e.outcome == nil {
			err = c.waitForEvent()
		}
	}
	f, failed := e.outcome.(failedFrame)
	switch {
	case failed:
	case e.outcome != nil:
		return c.send(kindDone, e.outcome)
	case time.Now().Before(c.deadline):
		f = engineFailure(err)
	default:
		f = failedFrame{Name: Timeout}
		_ = e.runJobs(grace / 10) // the interrupted code reports its stack
		if reported, ok := e.outcome.(failedFrame); ok {
			f.Stack = reported.Stack
		}
	}
	return c.send(kindFailed, c.sourceMap.locate(f))
}

// waitForEvent passes a response or a timer to the engine, and waits only if it has no more jobs.
func (c *child) waitForEvent() error {
	e := c.engine
	if e.moreJobs {
		select {
		case r := <-c.responses:
			return e.settleCall(r)
		default:
			return nil
		}
	}
	until := c.deadline
	if at, ok := e.timers.next(); ok && at.Before(until) {
		until = at
	} else if !ok && e.pending == 0 {
		return e.reportStall()
	}
	select {
	case r := <-c.responses:
		return e.settleCall(r)
	case <-time.After(time.Until(until)):
		return e.fire(time.Now())
	}
}
