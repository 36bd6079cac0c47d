package sandbox

import (
	_ "embed" // the prelude
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"modernc.org/quickjs"
)

// prelude is what the engine is given besides the language.
//
//go:embed prelude.js
var prelude string

var errWaitsForNothing = errors.New("the code waits for something that will never happen")

// engine is a QuickJS with the prelude. Only strings and numbers cross between it and Go:
// what becomes of an object on its way could be changed by the code.
type engine struct {
	child  *child
	vm     *quickjs.VM
	entry  quickjs.Value // the prelude's own object
	start  quickjs.Value
	settle quickjs.Value
	timer  quickjs.Value

	memory  int // bytes
	timers  timers
	asked   int
	awaited int // calls and reads whose answers have not come
	queue   []question
	logs    int
	logged  int  // bytes
	cut     bool // no more output is kept
	busy    bool // it has more jobs than it did
	outcome any  // doneFrame or failedFrame; nil as long as the code runs
	stack   string
}

// question is a call or a read, kept back until fewer are under way.
type question struct {
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
		"__done": e.done, "__failed": e.failed, "__relax": e.relax, "__log": e.log,
		"__call": e.call, "__read": e.read, "__timer": e.setTimer, "__clear": e.timers.clear,
	} {
		if err := vm.RegisterFunc(name, f, false); err != nil {
			return nil, err
		}
	}
	if e.entry, err = vm.EvalValue(prelude, quickjs.EvalGlobal); err != nil {
		return nil, fmt.Errorf("prelude: %w", err)
	}
	for name, field := range map[string]*quickjs.Value{"start": &e.start, "settle": &e.settle, "fire": &e.timer} {
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

// limits sets the engine's memory.
func (e *engine) limits(o runFrame) {
	e.memory = o.MemoryMB << 20
	e.vm.SetMemoryLimit(uintptr(e.memory))
}

// arm gives everything that the engine does from now on, at one go, so much time.
func (e *engine) arm(left time.Duration) {
	_ = e.vm.SetEvalTimeout(max(left, time.Nanosecond)) // it has no error to return
}

// begin runs the code until it first waits.
func (e *engine) begin(js, context string, servers []server) error {
	names, err := json.Marshal(servers)
	if err != nil {
		return err
	}
	started, err := e.start.Call(quickjs.UndefinedValue, js, context, string(names))
	if err == nil && started == false {
		e.outcome = failedFrame{Name: Syntax, Message: "a bracket closes what the code did not open"}
	}
	return err
}

// jobs runs what is ready to go on. The engine stops after very many.
func (e *engine) jobs(left time.Duration) error {
	e.arm(left)
	_, err := e.vm.ExecutePendingJobs()
	var thrown *quickjs.Error
	e.busy = err != nil && !errors.As(err, &thrown)
	if e.busy {
		return nil
	}
	return err
}

// lastWords lets code that was interrupted say where it was.
func (e *engine) lastWords() {
	if e.outcome == nil {
		_ = e.jobs(grace / 10)
	}
	if f, ok := e.outcome.(failedFrame); ok {
		e.stack = f.Stack
	}
}

// relax gives the engine a little more memory, to say that it has none.
func (e *engine) relax() { e.vm.SetMemoryLimit(uintptr(e.memory + 8<<20)) }

func (e *engine) done(value string) {
	if e.outcome != nil {
		return
	}
	if most := e.child.order.Result; len(value) > most {
		e.outcome = failedFrame{Name: ResultTooLarge, Message: fmt.Sprintf("the result has %d bytes as JSON, at most %d are allowed", len(value), most)}
		return
	}
	e.outcome = doneFrame{json.RawMessage(value)}
}

func (e *engine) failed(name, message, stack string) {
	if e.outcome == nil {
		e.outcome = thrown(name, message, stack)
	}
}

// thrown is the failure that an exception is which nobody caught.
func thrown(name, message, stack string) failedFrame {
	f := failedFrame{Name: Error, Message: clip(message, maxMessage), Stack: clip(stack, 4*maxMessage)}
	switch {
	case name == "" && message == "":
		f.Message, f.Null = "it threw null", true
	case name == "InternalError" && message == "out of memory":
		f.Name, f.Message = Memory, noMemory
	case name == PathDenied:
		f.Name = PathDenied
	case name != "":
		f.Message = clip(name, 200) + ": " + f.Message
	}
	return f
}

// failureOf is the failure that an error of the engine's is.
func failureOf(err error) failedFrame {
	var e *quickjs.Error
	switch {
	case !errors.As(err, &e):
		return failedFrame{Name: Error, Message: err.Error()}
	case e.Name == "SyntaxError" && e.LineNumber > 0:
		return failedFrame{Name: Syntax, Message: e.Message, Line: e.LineNumber, Column: e.ColumnNumber}
	}
	return thrown(e.Name, e.Message, e.Stack)
}

// log passes on what was printed, as far as the limits go.
func (e *engine) log(level, message string) {
	if e.cut {
		return
	}
	l := Log{Level: level, Message: clip(message, maxMessage-8)}
	if e.logs++; e.logs > maxLogs || e.logged+len(l.Message) > e.child.order.Logs {
		e.cut = true
		l = Log{Level: "warn", Message: "[further output is left out]"}
	}
	e.logged += len(l.Message)
	_ = e.child.send(kindLog, l) // the parent is gone: so is this process, in a moment
}

// call and read ask the parent; settle brings the answer. They return the question's number,
// or -1 for one that is too large.

func (e *engine) call(server, tool, args string) int {
	if len(args) > e.child.order.Result {
		return -1
	}
	return e.ask(kindCall, func(id int) any { return callFrame{id, server, tool, json.RawMessage(args)} })
}

func (e *engine) read(path string) int {
	return e.ask(kindRead, func(id int) any { return readFrame{id, clip(path, 4<<10)} })
}

func (e *engine) ask(kind byte, body func(id int) any) int {
	e.asked++
	if e.asked > e.child.order.Calls && e.outcome == nil {
		e.outcome = failedFrame{Name: ToolCalls}
	}
	if e.outcome != nil {
		e.vm.Interrupt() // nothing that follows matters
		return e.asked
	}
	e.queue = append(e.queue, question{kind, body(e.asked)})
	e.pass()
	return e.asked
}

// pass sends questions, as many as may be under way.
func (e *engine) pass() {
	for e.awaited < outstanding && len(e.queue) > 0 {
		q := e.queue[0]
		e.queue = e.queue[1:]
		e.awaited++
		_ = e.child.send(q.kind, q.body)
	}
}

// answer settles the promise of a question.
func (e *engine) answer(a answerFrame) error {
	e.awaited--
	e.pass()
	ok, text := a.Name == "", string(a.Value)
	if !ok {
		text = a.Error
	}
	e.arm(time.Until(e.child.deadline))
	_, err := e.settle.Call(quickjs.UndefinedValue, a.ID, ok, text, a.Name)
	return err
}

// setTimer has a timer fire after so many milliseconds.
func (e *engine) setTimer(id int, ms any) {
	delay, ok := ms.(float64)
	if n, whole := ms.(int); whole {
		delay, ok = float64(n), true
	}
	if !ok || !(delay > 1) {
		delay = 1
	}
	delay = min(delay, float64(24*time.Hour/time.Millisecond))
	e.timers.set(id, time.Now().Add(time.Duration(delay*float64(time.Millisecond))))
}

// fire calls the timer that is due next, if one is.
func (e *engine) fire(now time.Time) error {
	id, ok := e.timers.due(now)
	if !ok {
		return nil
	}
	e.arm(time.Until(e.child.deadline))
	_, err := e.timer.Call(quickjs.UndefinedValue, id)
	return err
}
