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
)

// run is one conversation with a child. What the child says is taken for nothing but what a
// frame of its kind may say: behind it is code that may have got hold of it.
type run struct {
	sandbox *Sandbox
	request *Request
	process *process
	files   *files
	key     digest
	warm    bool
	begin   time.Time
	cpu     time.Duration // of the child, before
	memory  int64         // the same

	reading   bool // the child has yet to make JavaScript of the code
	lastID    int
	toolCalls int
	tools     map[Tool]bool
	logs      []Log
	logged    int // bytes
	denied    atomic.Bool

	calls   sync.WaitGroup
	waiting atomic.Int32 // calls and reads that the child awaits
}

func newRun(s *Sandbox, req *Request, p *process, f *files, warm bool) *run {
	r := &run{sandbox: s, request: req, process: p, files: f, key: sha256.Sum256([]byte(req.Code)), warm: warm, tools: map[Tool]bool{}}
	r.reading = s.cache == nil || !s.cache.Contains(r.key)
	for _, t := range req.Tools {
		r.tools[t] = true
	}
	return r
}

// take deals with one frame and says whether the run is over by it.
func (r *run) take(ctx context.Context, f frame) (value json.RawMessage, over bool, failure *Failure) {
	err := errFrame
	switch f.kind {
	case kindCompiled:
		err = r.keep(f)
	case kindLog:
		err = r.hear(f)
	case kindCall, kindRead:
		err = r.ask(ctx, f)
	case kindDone:
		var done doneFrame
		if done, err = decode[doneFrame](f.body); err == nil {
			return r.result(done.Value)
		}
	case kindFailed:
		var failed failedFrame
		if failed, err = decode[failedFrame](f.body); err == nil {
			return nil, true, r.failure(failed)
		}
	}
	switch {
	case errors.Is(err, errTooMany):
		return nil, true, &Failure{Name: ToolCalls, Message: tooMany(r.sandbox.opts.MaxToolCalls)}
	case err != nil:
		r.sandbox.log.Warn("sandbox: a child broke the protocol", "kind", string(rune(f.kind)), "error", err)
		return nil, true, &Failure{Name: Crashed, Message: "the process that ran the code broke its protocol"}
	}
	return nil, false, nil
}

// keep puts compiled code into the cache. It is said before any of the code has run, and
// only then.
func (r *run) keep(f frame) error {
	c, err := decode[compiled](f.body)
	if err != nil || !r.reading {
		return errors.Join(err, errFrame)
	}
	r.reading = false
	if r.sandbox.cache != nil && c.Code != "" && len(c.Code)+len(c.Mappings) <= maxCompiled {
		r.sandbox.cache.Add(r.key, c)
	}
	return nil
}

// hear keeps what was printed. The child keeps the limits; one that does not is no child of
// ours any more.
func (r *run) hear(f frame) error {
	l, err := decode[Log](f.body)
	if err != nil {
		return err
	}
	r.logged += len(l.Message)
	if len(r.logs) > maxLogs || r.logged > r.sandbox.opts.MaxLogs+maxMessage || !slices.Contains(levels(), l.Level) {
		return errFrame
	}
	r.logs = append(r.logs, l)
	return nil
}

func levels() []string { return []string{"log", "info", "warn", "error", "debug"} }

var (
	errTooMany = errors.New("too many calls")
	errDenied  = errors.New("the code may not read this file")
)

func tooMany(limit int) string {
	return fmt.Sprintf("the code made more than %d calls of tools and reads of files", limit)
}

// ask begins a call or a read. The answer is sent when it is there.
func (r *run) ask(ctx context.Context, f frame) error {
	answer, id, err := r.question(ctx, f)
	switch {
	case err != nil:
		return err
	case id != r.lastID+1:
		return errFrame
	case id > r.sandbox.opts.MaxToolCalls:
		return errTooMany
	case r.waiting.Add(1) > outstanding:
		return errFrame
	}
	r.lastID = id
	if f.kind == kindCall {
		r.toolCalls++
	}
	r.calls.Go(func() {
		a := answer()
		a.ID = id
		r.waiting.Add(-1) // before the child knows, and asks the next
		_ = r.process.send(kindAnswer, a)
	})
	return nil
}

// question reads what is asked, and returns how the answer is found.
func (r *run) question(ctx context.Context, f frame) (answer func() answerFrame, id int, err error) {
	if f.kind == kindRead {
		q, err := decode[readFrame](f.body)
		return func() answerFrame { return r.readFile(q.Path) }, q.ID, err
	}
	q, err := decode[callFrame](f.body)
	if err == nil && (!r.tools[Tool{q.Server, q.Tool}] || len(q.Args) > r.sandbox.opts.MaxResult) {
		err = errFrame
	}
	return func() answerFrame { return r.callTool(ctx, q) }, q.ID, err
}

func (r *run) callTool(ctx context.Context, q callFrame) answerFrame {
	value, err := r.request.Call(ctx, q.Server, q.Tool, q.Args)
	switch {
	case err != nil:
		return answerFrame{Name: "ToolError", Error: clip(err.Error(), maxMessage)}
	case len(value) > maxAnswer:
		return answerFrame{Name: "ToolError", Error: fmt.Sprintf("the result has %d bytes, at most %d are allowed", len(value), maxAnswer)}
	case len(value) == 0:
		value = json.RawMessage("null")
	case !json.Valid(value):
		return answerFrame{Name: "ToolError", Error: "the result is not JSON"}
	}
	return answerFrame{Value: value}
}

func (r *run) readFile(path string) answerFrame {
	text, err := r.files.read(path)
	if errors.Is(err, errDenied) {
		r.denied.Store(true)
		return answerFrame{Name: PathDenied, Error: fmt.Sprintf("%s: %s", errDenied, clip(path, 500))}
	}
	var value []byte
	if err == nil {
		value, err = json.Marshal(text)
	}
	if err != nil {
		return answerFrame{Name: "ReadError", Error: clip(err.Error(), maxMessage)}
	}
	return answerFrame{Value: value}
}

func (r *run) result(value json.RawMessage) (json.RawMessage, bool, *Failure) {
	if len(value) > r.sandbox.opts.MaxResult || len(value) == 0 {
		return nil, true, &Failure{Name: Crashed, Message: "the process that ran the code broke its protocol"}
	}
	return value, true, nil
}

// failure is what the child says went wrong, as far as that is for it to say.
func (r *run) failure(f failedFrame) *Failure {
	out := &Failure{Name: f.Name, Message: clip(f.Message, maxMessage), Line: max(0, f.Line), Column: max(0, f.Column), Stack: clip(f.Stack, maxMessage)}
	switch f.Name {
	case Timeout:
		out.Message = tooLong(r.request.Timeout)
	case ToolCalls:
		out.Message = tooMany(r.sandbox.opts.MaxToolCalls)
	case Memory, Syntax, ResultTooLarge:
	case PathDenied:
		if !r.denied.Load() {
			out.Name = Error
		}
	default:
		out.Name = Error
		if f.Null && r.process.memory()-r.memory > int64(r.request.MemoryMB)<<20/2 {
			out.Name, out.Message = Memory, noMemory
		}
	}
	return out
}

// clip cuts a text to so many bytes, between two characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
