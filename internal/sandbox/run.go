package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/input"
)

// grace is how long a run may exceed its timeout to report its position before it is killed.
const grace = 500 * time.Millisecond

// digest is the cache key of code.
type digest [sha256.Size]byte

// Run runs code and returns its result. The error is a *Failure caused by the code, the request or
// the child, the context's cause, or ErrStopped. When Run returns, no call of this run is in
// progress and its child is killed.
func (s *Sandbox) Run(ctx context.Context, req Request) (Result, error) {
	ctx, leave, err := s.beginRun(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if f := req.validate(&s.opts); f != nil {
		return Result{}, f
	}
	s.markNeeded()
	files, f := openFiles(req.ReadPaths, s.opts.ReadPaths, s.opts.Protected)
	if f != nil {
		return Result{}, f
	}
	defer files.close()
	if err := s.acquireSlot(ctx, req.Timeout); err != nil {
		return Result{}, err
	}
	defer s.slots.Release(1)
	p, warm, err := s.takeChild(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return Result{}, context.Cause(ctx)
	case err != nil:
		s.log.Error("sandbox: start a child", "error", err)
		return Result{}, &Failure{Name: Crashed, Message: "no process could be started to run the code"}
	}
	defer s.retire(p)
	return newRun(s, &req, p, files, warm).converse(ctx)
}

func (r *run) runFrame() runFrame {
	req := r.request
	f := runFrame{Context: req.Context, Servers: serversOf(req.Tools), Timeout: req.Timeout.Milliseconds(), MemoryMB: req.MemoryMB}
	if r.compiling {
		f.Code = req.Code
	} else {
		f.Compiled = &r.cached
	}
	return f
}

// converse exchanges frames with the child until the run ends.
func (r *run) converse(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer r.calls.Wait() // after cancel and kill, which end them
	defer r.process.kill()
	defer cancel()
	r.begin, r.cpu, r.memory = time.Now(), r.process.cpu(), r.process.memory()
	limit := time.After(r.request.Timeout + grace)
	start := r.runFrame()
	r.calls.Go(func() { // in the background, because the child may not read it
		_ = r.process.send(kindRun, start) // an error means that the child has ended, and so its frames
	})
	for {
		select {
		case f, ok := <-r.process.frames:
			if !ok {
				return r.childEnded()
			}
			if value, done, failure := r.handleFrame(ctx, f); done {
				return r.finish(value, failure)
			}
		case <-limit:
			return r.finish(nil, &Failure{Name: Timeout, Message: timeoutMessage(r.request.Timeout)})
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
}

func timeoutMessage(limit time.Duration) string {
	return "the code did not finish within " + limit.String()
}

// childEnded ends a run whose child has ended or sent an invalid frame.
func (r *run) childEnded() (Result, error) {
	name, why := r.process.exitReason()
	if name == Syntax && !r.compiling {
		name = Crashed
	}
	if name == Crashed {
		r.sandbox.log.Warn("sandbox: a child ended during a run", "reason", why, "stderr", r.process.stderr.String())
	}
	return r.finish(nil, &Failure{Name: name, Message: why})
}

// finish returns the result, or the failure with logs and metrics.
func (r *run) finish(value json.RawMessage, f *Failure) (Result, error) {
	m := Metrics{
		Execution: time.Since(r.begin), CPU: r.process.cpu() - r.cpu,
		MemoryMB: float64(r.process.memory()) / (1 << 20), ToolCalls: r.toolCalls, Warm: r.warm,
	}
	if f != nil {
		f.Logs, f.Metrics = r.logs, m
		return Result{}, f
	}
	return Result{Value: value, Logs: r.logs, Metrics: m}, nil
}

// run is one run in a child, whose frames are not trusted: the code may control it.
type run struct {
	sandbox *Sandbox
	request *Request
	process *process
	files   *files
	key     digest
	warm    bool
	begin   time.Time
	cpu     time.Duration // of the child before the run
	memory  int64         // the same

	cached    compiled
	compiling bool // the code is not cached, and the child has not compiled it yet
	lastID    int
	toolCalls int
	tools     map[Tool]bool
	logs      []Log
	logBytes  int
	denied    atomic.Bool

	calls   sync.WaitGroup
	pending atomic.Int32 // calls and reads without a response
}

func newRun(s *Sandbox, req *Request, p *process, f *files, warm bool) *run {
	known := false
	r := &run{sandbox: s, request: req, process: p, files: f, key: sha256.Sum256([]byte(req.Code)), warm: warm, tools: map[Tool]bool{}}
	if s.cache != nil {
		r.cached, known = s.cache.Get(r.key)
	}
	r.compiling = !known
	for _, t := range req.Tools {
		r.tools[t] = true
	}
	return r
}

// handleFrame handles one frame and reports whether it ends the run.
func (r *run) handleFrame(ctx context.Context, f frame) (value json.RawMessage, done bool, failure *Failure) {
	err := errFrame
	switch f.kind {
	case kindCompiled:
		err = r.cacheCode(f)
	case kindLog:
		err = r.addLog(f)
	case kindCall, kindRead:
		err = r.startCall(ctx, f)
	case kindDone:
		var result doneFrame
		if result, err = decode[doneFrame](f.body); err == nil && len(result.Value) > 0 && len(result.Value) <= maxResult {
			return result.Value, true, nil
		}
		err = errors.Join(err, errFrame)
	case kindFailed:
		var failed failedFrame
		if failed, err = decode[failedFrame](f.body); err == nil {
			return nil, true, r.failureOf(failed)
		}
	}
	switch {
	case errors.Is(err, errTooMany):
		return nil, true, &Failure{Name: ToolCalls, Message: toolCallsMessage()}
	case err != nil:
		r.sandbox.log.Warn("sandbox: a child violated the protocol", "kind", string(rune(f.kind)), "error", err)
		return nil, true, &Failure{Name: Crashed, Message: "the process that ran the code violated its protocol"}
	}
	return nil, false, nil
}

// cacheCode caches compiled code. The frame is valid only once and before the code runs.
func (r *run) cacheCode(f frame) error {
	c, err := decode[compiled](f.body)
	if err != nil || !r.compiling {
		return errors.Join(err, errFrame)
	}
	r.compiling = false
	if r.sandbox.cache != nil && c.Code != "" && len(c.Code)+len(c.Mappings) <= maxCompiled {
		r.sandbox.cache.Add(r.key, c)
	}
	return nil
}

// addLog adds a log entry. One that exceeds the limits of the child violates the protocol.
func (r *run) addLog(f frame) error {
	l, err := decode[Log](f.body)
	if err != nil {
		return err
	}
	r.logBytes += len(l.Message)
	if len(r.logs) > maxLogs || r.logBytes > maxLogBytes+maxMessage || !slices.Contains([]string{"log", "info", "warn", "error", "debug"}, l.Level) {
		return errFrame
	}
	r.logs = append(r.logs, l)
	return nil
}

var errTooMany = errors.New("too many calls")

func toolCallsMessage() string {
	return fmt.Sprintf("the code made more than %d tool calls and file reads", maxToolCalls)
}

// startCall starts a call or a read, whose response is sent later.
func (r *run) startCall(ctx context.Context, f frame) error {
	do, id, err := r.parseCall(ctx, f)
	switch {
	case err != nil:
		return err
	case id != r.lastID+1:
		return errFrame
	case id > maxToolCalls:
		return errTooMany
	case r.pending.Add(1) > maxConcurrentCalls:
		return errFrame
	}
	r.lastID = id
	if f.kind == kindCall {
		r.toolCalls++
	}
	r.calls.Go(func() {
		response := do()
		response.ID = id
		r.pending.Add(-1) // before the child learns of it and starts the next call
		_ = r.process.send(kindResponse, response)
	})
	return nil
}

// parseCall decodes a call or a read and returns the function that does it.
func (r *run) parseCall(ctx context.Context, f frame) (do func() responseFrame, id int, err error) {
	if f.kind == kindRead {
		q, err := decode[readFrame](f.body)
		return func() responseFrame { return r.readFile(q.Path) }, q.ID, err
	}
	q, err := decode[callFrame](f.body)
	if err == nil && (!r.tools[Tool{q.Server, q.Tool}] || len(q.Args) > maxResult) {
		err = errFrame
	}
	return func() responseFrame { return r.callTool(ctx, q) }, q.ID, err
}

func (r *run) callTool(ctx context.Context, q callFrame) responseFrame {
	value, err := r.request.Call(ctx, q.Server, q.Tool, q.Args)
	switch {
	case err != nil:
		return responseFrame{Name: "ToolError", Error: input.ClipBytes(err.Error(), maxMessage)}
	case len(value) > maxResponse:
		return responseFrame{Name: "ToolError", Error: fmt.Sprintf("the result has %d bytes, at most %d are allowed", len(value), maxResponse)}
	case len(value) == 0:
		value = json.RawMessage("null")
	case !json.Valid(value):
		return responseFrame{Name: "ToolError", Error: "the result is not JSON"}
	}
	return responseFrame{Value: value}
}

func (r *run) readFile(path string) responseFrame {
	text, err := r.files.read(path)
	if errors.Is(err, errDenied) {
		r.denied.Store(true)
		return responseFrame{Name: PathDenied, Error: fmt.Sprintf("%s: %s", errDenied, input.ClipBytes(path, 500))}
	}
	var value []byte
	if err == nil {
		value, err = json.Marshal(text)
	}
	if err != nil {
		return responseFrame{Name: "ReadError", Error: input.ClipBytes(err.Error(), maxMessage)}
	}
	return responseFrame{Value: value}
}

// failureOf returns the failure that the child reports, restricted to what a child may report.
func (r *run) failureOf(f failedFrame) *Failure {
	out := &Failure{Name: f.Name, Message: input.ClipBytes(f.Message, maxMessage), Line: max(0, f.Line), Column: max(0, f.Column), Stack: input.ClipBytes(f.Stack, maxMessage)}
	switch f.Name {
	case Timeout:
		out.Message = timeoutMessage(r.request.Timeout)
	case ToolCalls:
		out.Message = toolCallsMessage()
	case Memory, Syntax, ResultTooLarge:
	case PathDenied:
		if !r.denied.Load() {
			out.Name = Error
		}
	default:
		out.Name = Error
		if f.Null && r.process.memory()-r.memory > int64(r.request.MemoryMB)<<20/2 {
			out.Name, out.Message = Memory, outOfMemory
		}
	}
	return out
}
