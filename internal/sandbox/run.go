package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"
)

// grace is how much longer than its time a run may take to say where it was. Then its
// process is killed.
const grace = 500 * time.Millisecond

// digest names code in the cache.
type digest [sha256.Size]byte

// Run runs code and returns what it returned. The error is a *Failure where the code or the
// request is to blame, or the child; the context's cause where the context ended; or
// ErrStopped. When it returns, no call of this run is under way, and its child is killed.
func (s *Sandbox) Run(ctx context.Context, req Request) (Result, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if f := s.prepare(&req); f != nil {
		return Result{}, f
	}
	s.first.Do(func() { close(s.wanted) })
	files, f := s.openFiles(req.ReadPaths)
	if f != nil {
		return Result{}, f
	}
	defer files.close()
	free, err := s.place(ctx, req.Timeout)
	if err != nil {
		return Result{}, err
	}
	defer free()
	if s.reader == s.runner {
		return s.converse(ctx, s.runner, &req, func(r *run) { r.files = files })
	}
	return s.readAndRun(ctx, &req, files)
}

// converse has a child of a kind work on a request.
func (s *Sandbox) converse(ctx context.Context, k *kind, req *Request, about func(*run)) (Result, error) {
	p, warm, err := s.child(ctx, k, req.MemoryMB)
	switch {
	case ctx.Err() != nil && err != nil:
		return Result{}, context.Cause(ctx)
	case err != nil:
		s.log.Error("sandbox: a run got no child", "error", err)
		return Result{}, &Failure{Name: Crashed, Message: "no process could be started to run the code"}
	}
	defer s.retire(p)
	r := newRun(s, req, p, warm)
	about(r)
	return r.do(ctx)
}

// readAndRun has the code read by one child and run by another. Their time is one.
func (s *Sandbox) readAndRun(ctx context.Context, req *Request, files *files) (Result, error) {
	var read Result
	var js *compiled
	if c, ok := s.kept(sha256.Sum256([]byte(req.Code))); ok {
		js = &c
	} else {
		var reading *run
		var err error
		read, err = s.converse(ctx, s.reader, req, func(r *run) { r.only, reading = true, r })
		if err != nil {
			return Result{}, err
		}
		js = reading.js
	}
	return s.converse(ctx, s.runner, req, func(r *run) {
		r.files, r.js, r.earlier, r.reading = files, js, read.Metrics, false
		r.left -= read.Metrics.Execution
	})
}

// kept is the code as it was compiled before.
func (s *Sandbox) kept(key digest) (compiled, bool) {
	if s.cache == nil {
		return compiled{}, false
	}
	return s.cache.Get(key)
}

// order is the frame that tells the child what to do.
func (r *run) order() runFrame {
	opts, req := &r.sandbox.opts, r.request
	f := runFrame{
		Context: req.Context, Servers: serversOf(req.Tools), Timeout: r.left.Milliseconds(), MemoryMB: req.MemoryMB,
		Result: opts.MaxResult, Logs: opts.MaxLogs, Calls: opts.MaxToolCalls,
	}
	if r.only {
		f.Context, f.Servers, f.Read = json.RawMessage("{}"), []server{}, true
	}
	if r.js != nil {
		f.Compiled = r.js
		return f
	}
	if c, ok := r.sandbox.kept(r.key); ok {
		f.Compiled = &c
		return f
	}
	f.Code = req.Code
	return f
}

// do talks with the child until the run is over.
func (r *run) do(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer r.calls.Wait() // after everything that makes them end
	defer r.process.kill()
	defer cancel()
	r.begin, r.cpu, r.memory = time.Now(), r.process.cpu(), r.process.memory()
	if err := r.process.confine(r.request.MemoryMB, r.left); err != nil {
		r.sandbox.log.Error("sandbox: a child could not be limited", "error", err)
		return r.over(nil, &Failure{Name: Crashed, Message: "no process could be made ready to run the code"})
	}
	limit := time.NewTimer(r.left + r.process.kind.grace)
	defer limit.Stop()
	order := r.order()
	r.calls.Go(func() { // a child that does not read must not keep the run
		_ = r.process.send(kindRun, order) // it has died: its frames end
	})
	for {
		select {
		case f, ok := <-r.process.frames:
			if !ok {
				return r.died()
			}
			if value, over, err := r.take(ctx, f); over {
				return r.over(value, err)
			}
		case <-limit.C:
			return r.over(nil, &Failure{Name: Timeout, Message: tooLong(r.request.Timeout)})
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
	}
}

func tooLong(limit time.Duration) string { return "the code was not done after " + limit.String() }

// died ends a run whose child has, or has said what is no frame.
func (r *run) died() (Result, error) {
	name, why := r.process.fate()
	if name == Syntax && r.reading {
		return r.over(nil, &Failure{Name: name, Message: why})
	}
	if name == Crashed || name == Syntax {
		r.sandbox.log.Warn("sandbox: a child ended in the middle of a run", "why", why, "stderr", r.process.stderr.String())
		return r.over(nil, &Failure{Name: Crashed, Message: why})
	}
	return r.over(nil, &Failure{Name: name, Message: why})
}

// over is the end of a run: its result, or its failure with what it said and took.
func (r *run) over(value json.RawMessage, f *Failure) (Result, error) {
	m := Metrics{
		Execution: time.Since(r.begin) + r.earlier.Execution, CPU: r.process.cpu() - r.cpu + r.earlier.CPU,
		MemoryMB: float64(r.process.memory()) / (1 << 20), ToolCalls: r.toolCalls, Warm: r.warm,
	}
	if f != nil {
		f.Logs, f.Metrics = r.logs, m
		return Result{}, f
	}
	return Result{Value: value, Logs: r.logs, Metrics: m}, nil
}
