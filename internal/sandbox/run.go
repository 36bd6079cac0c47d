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
	p, warm, err := s.child(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return Result{}, context.Cause(ctx)
	case err != nil:
		s.log.Error("sandbox: a run got no child", "error", err)
		return Result{}, &Failure{Name: Crashed, Message: "no process could be started to run the code"}
	}
	defer s.retire(p)
	return newRun(s, &req, p, files, warm).do(ctx)
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
		Context: req.Context, Servers: serversOf(req.Tools), Timeout: req.Timeout.Milliseconds(), MemoryMB: req.MemoryMB,
		Result: opts.MaxResult, Logs: opts.MaxLogs, Calls: opts.MaxToolCalls,
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
	limit := time.NewTimer(r.request.Timeout + grace)
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
		Execution: time.Since(r.begin), CPU: r.process.cpu() - r.cpu,
		MemoryMB: float64(r.process.memory()) / (1 << 20), ToolCalls: r.toolCalls, Warm: r.warm,
	}
	if f != nil {
		f.Logs, f.Metrics = r.logs, m
		return Result{}, f
	}
	return Result{Value: value, Logs: r.logs, Metrics: m}, nil
}
