package sandbox

import (
	"crypto/rand"
	_ "embed" // the prelude
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"modernc.org/quickjs"

	"comet/internal/input"
)

// prelude is the code that adds the environment to the engine.
//
//go:embed prelude.js
var prelude string

// globals is the code that makes the globals of browsers. It takes milliseconds, so it is evaluated only
// for code that mentions one.
//
//go:embed globals.js
var globals string

// engine is a QuickJS engine with the prelude. Only strings and numbers cross between it and Go,
// because the code could change the conversion of objects.
type engine struct {
	child     *child
	vm        *quickjs.VM
	entry     quickjs.Value // the object of the prelude
	start     quickjs.Value
	settle    quickjs.Value
	fireTimer quickjs.Value
	isFull    quickjs.Value

	memory        int // bytes
	timers        timers
	asked         int
	pending       int // calls and reads that were sent and have no response
	queue         []queuedCall
	logs          int
	logBytes      int  // bytes
	logsTruncated bool // further output is dropped
	moreJobs      bool // runJobs stopped before the last one
	outcome       any  // doneFrame or failedFrame; nil while the code runs
}

// queuedCall is a call or a read that waits until fewer are in progress.
type queuedCall struct {
	kind byte
	body any
}

func newEngine(c *child) (*engine, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	e := &engine{child: c, vm: vm}
	for name, f := range map[string]any{
		"__done": e.succeed, "__failed": e.fail, "__log": e.sendLog,
		"__call": e.call, "__read": e.read, "__timer": e.setTimer, "__clear": e.timers.clear,
		"__relax":  func() { e.vm.SetMemoryLimit(uintptr(e.memory + 8<<20)) }, // to report that no memory is left
		"__random": randomHex, "__now": func() float64 { return float64(time.Since(c.begin).Microseconds()) / 1000 },
	} {
		if err := vm.RegisterFunc(name, f, false); err != nil {
			return nil, err
		}
	}
	if e.entry, err = vm.EvalValue(prelude, quickjs.EvalGlobal); err != nil {
		return nil, fmt.Errorf("prelude: %w", err)
	}
	for name, field := range map[string]*quickjs.Value{"start": &e.start, "settle": &e.settle, "fire": &e.fireTimer, "isFull": &e.isFull} {
		atom, err := vm.NewAtom(name)
		if err != nil {
			return nil, err
		}
		if *field, err = e.entry.GetPropertyValue(atom); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// setDeadline limits the time of the next call into the engine.
func (e *engine) setDeadline(left time.Duration) {
	_ = e.vm.SetEvalTimeout(max(left, time.Nanosecond)) // it never fails
}

// runCode runs the code until it waits for the first time.
func (e *engine) runCode(js, context string, servers []server) error {
	names, err := json.Marshal(servers)
	if err != nil {
		return err
	}
	if regexp.MustCompile(`\b(URL|URLSearchParams|TextEncoder|TextDecoder|atob|btoa|crypto|performance)\b`).MatchString(js) {
		if _, err := e.vm.Eval("globalThis.__globals = "+globals, quickjs.EvalGlobal); err != nil {
			return err
		}
	}
	started, err := e.start.Call(quickjs.UndefinedValue, js, context, string(names))
	if err == nil && started == false {
		e.outcome = failedFrame{Name: Syntax, Message: "a bracket closes more than the code opened"}
	}
	return err
}

// runJobs runs pending promise jobs. The engine stops after a large number of them.
func (e *engine) runJobs(left time.Duration) error {
	e.setDeadline(left)
	_, err := e.vm.ExecutePendingJobs()
	var thrown *quickjs.Error
	e.moreJobs = err != nil && !errors.As(err, &thrown)
	if e.moreJobs {
		return nil
	}
	return err
}

// reportStall reports code that waits for nothing: its promise never settles, or it has no memory.
func (e *engine) reportStall() error {
	e.setDeadline(grace / 10)
	if full, err := e.isFull.Call(quickjs.UndefinedValue); err == nil && full == false {
		return errors.New("the code waits for a promise that never settles")
	}
	e.outcome = failedFrame{Name: Memory, Message: outOfMemory}
	return nil
}

// randomHex returns up to 64 KiB of random bytes.
func randomHex(n int) string {
	bytes := make([]byte, min(max(n, 0), 64<<10))
	_, _ = rand.Read(bytes) // it never fails
	return hex.EncodeToString(bytes)
}

// succeed ends the run. returnedNothing is true for code that returned undefined.
func (e *engine) succeed(value string, returnedNothing bool) {
	if e.outcome != nil {
		return
	}
	if returnedNothing && endsInExpression(e.child.js) {
		e.sendLog("warn", "the result is null: several statements need return before the last expression")
	}
	if len(value) > maxResult {
		e.outcome = failedFrame{Name: ResultTooLarge, Message: fmt.Sprintf("the result has %d bytes as JSON, at most %d are allowed", len(value), maxResult)}
		return
	}
	e.outcome = doneFrame{json.RawMessage(value)}
}

func (e *engine) fail(name, message, stack string) {
	if e.outcome == nil {
		e.outcome = exceptionFailure(name, message, stack)
	}
}

// exceptionFailure returns the failure of an uncaught exception.
func exceptionFailure(name, message, stack string) failedFrame {
	f := failedFrame{Name: Error, Message: input.ClipBytes(message, maxMessage), Stack: input.ClipBytes(stack, 4*maxMessage)}
	switch {
	case name == "" && message == "":
		f.Message, f.Null = "the code threw null", true
	case name == "InternalError" && message == "out of memory":
		f.Name, f.Message = Memory, outOfMemory
	case name == PathDenied:
		f.Name = PathDenied
	case name != "":
		f.Message = input.ClipBytes(name, 200) + ": " + f.Message
	}
	return f
}

// engineFailure returns the failure of an error of the engine.
func engineFailure(err error) failedFrame {
	var e *quickjs.Error
	switch {
	case !errors.As(err, &e):
		return failedFrame{Name: Error, Message: err.Error()}
	case e.Name == "SyntaxError" && e.LineNumber > 0:
		return failedFrame{Name: Syntax, Message: e.Message, Line: e.LineNumber, Column: e.ColumnNumber}
	}
	return exceptionFailure(e.Name, e.Message, e.Stack)
}

// sendLog sends a log entry to the parent, within the limits.
func (e *engine) sendLog(level, message string) {
	if e.logsTruncated {
		return
	}
	l := Log{Level: level, Message: input.ClipBytes(message, maxMessage-8)}
	if e.logs++; e.logs > maxLogs || e.logBytes+len(l.Message) > maxLogBytes {
		e.logsTruncated = true
		l = Log{Level: "warn", Message: "[further output is omitted]"}
	}
	e.logBytes += len(l.Message)
	_ = e.child.send(kindLog, l) // on an error the parent has gone, and this process ends
}

// call and read send a request to the parent; settleCall handles the response. They return the id
// of the request, or -1 where it is too large.

func (e *engine) call(server, tool, args string) int {
	if len(args) > maxResult {
		return -1
	}
	return e.enqueue(kindCall, func(id int) any { return callFrame{id, server, tool, json.RawMessage(args)} })
}

func (e *engine) read(path string) int {
	return e.enqueue(kindRead, func(id int) any { return readFrame{id, input.ClipBytes(path, 4<<10)} })
}

func (e *engine) enqueue(kind byte, body func(id int) any) int {
	e.asked++
	if e.asked > maxToolCalls && e.outcome == nil {
		e.outcome = failedFrame{Name: ToolCalls}
	}
	if e.outcome != nil {
		e.vm.Interrupt() // the run has already failed
		return e.asked
	}
	e.queue = append(e.queue, queuedCall{kind, body(e.asked)})
	e.sendQueued()
	return e.asked
}

// sendQueued sends calls and reads, up to maxConcurrentCalls at a time.
func (e *engine) sendQueued() {
	for e.pending < maxConcurrentCalls && len(e.queue) > 0 {
		q := e.queue[0]
		e.queue = e.queue[1:]
		e.pending++
		_ = e.child.send(q.kind, q.body)
	}
}

func (e *engine) settleCall(a responseFrame) error {
	e.pending--
	e.sendQueued()
	ok, text := a.Name == "", string(a.Value)
	if !ok {
		text = a.Error
	}
	e.setDeadline(time.Until(e.child.deadline))
	_, err := e.settle.Call(quickjs.UndefinedValue, a.ID, ok, text, a.Name)
	return err
}

// setTimer sets a timer in milliseconds.
func (e *engine) setTimer(id int, ms any) {
	delay, ok := ms.(float64)
	if n, isInt := ms.(int); isInt {
		delay, ok = float64(n), true
	}
	if !ok || !(delay > 1) {
		delay = 1
	}
	delay = min(delay, float64(24*time.Hour/time.Millisecond))
	e.timers.set(id, time.Now().Add(time.Duration(delay*float64(time.Millisecond))))
}

// fire calls the next timer, if it is due.
func (e *engine) fire(now time.Time) error {
	id, ok := e.timers.due(now)
	if !ok {
		return nil
	}
	e.setDeadline(time.Until(e.child.deadline))
	_, err := e.fireTimer.Call(quickjs.UndefinedValue, id)
	return err
}

// timers are the timers of the code, the next one first, equal ones as they were set.
type timers []timer

type timer struct {
	id int
	at time.Time
}

func (t *timers) set(id int, at time.Time) {
	i, _ := slices.BinarySearchFunc(*t, at, func(other timer, at time.Time) int {
		if other.at.After(at) {
			return 1
		}
		return -1
	})
	*t = slices.Insert(*t, i, timer{id, at})
}

func (t *timers) clear(id int) {
	*t = slices.DeleteFunc(*t, func(other timer) bool { return other.id == id })
}

func (t timers) next() (at time.Time, ok bool) {
	if len(t) == 0 {
		return time.Time{}, false
	}
	return t[0].at, true
}

// due removes and returns the next timer, if it is due.
func (t *timers) due(now time.Time) (id int, ok bool) {
	if at, ok := t.next(); !ok || at.After(now) {
		return 0, false
	}
	id, *t = (*t)[0].id, (*t)[1:]
	return id, true
}
