// Package sandbox runs TypeScript that nobody has read: what a model writes to work with
// tools instead of asking for them one by one (AgentCards, execute_code).
//
// A run has a process to itself, which is this program started again. It holds a QuickJS
// engine that was given nothing but the functions below, under limits of the kernel's; it
// is asked by frames over its standard input and output, serves one run and ends. So a run
// that loops, eats memory or breaks the engine costs its own process, and two runs share
// nothing. Reading the TypeScript is part of that: a compiler can be kept busy or driven
// into the ground by its input too (docs/adr/0020-code-runs-in-a-child-process.md). What
// makes it fast is that children are started before they are needed, and that compiled code
// is kept.
//
// # What the code sees
//
// The language is TypeScript, its types ignored, as far as ES2023; no import and no
// require. A single expression is the result by itself; several statements say return. Both
// may await. Besides the language's own objects there are
//
//   - context, the request's object, and its keys where they hide no other name;
//   - mcp, and every server by its own name: mcp.github.list_commits({…}) and
//     github.listCommits({…}) are the same tool. Each call answers with a promise;
//   - console.log, info, warn, error and debug;
//   - readTextFile(path), also as Deno.readTextFile, below the paths that were allowed;
//   - setTimeout, clearTimeout, setInterval, clearInterval, queueMicrotask, structuredClone
//     (of what JSON can say).
//
// There is no fetch, no process, no URL, no TextEncoder and no Intl: such a name is a
// ReferenceError. Times are in UTC. The result is what JSON makes of the value; undefined
// is null. A run ends with its result: calls that nobody awaited are cancelled.
package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// ChildArgument is the only argument of a program that is to be a child: see Child.
const ChildArgument = "sandbox-child"

// MaxCode is how many bytes of code a request may have (AgentCards, limits).
const MaxCode = 102_400

// ErrStopped is what a run answers with when the sandbox does not run, or stops meanwhile.
var ErrStopped = errors.New("the sandbox does not run")

// Options configures New; nil is the zero value.
type Options struct {
	// Command starts a child; default is this program with ChildArgument.
	Command []string
	// Warm is how many children are kept ready, default 2; negative keeps none.
	Warm int
	// Running is how many runs there are at a time, default twice the processors. Further
	// ones wait for as long as their timeout is.
	Running int
	// Timeout is what a run has that asks for none, default 30 s; MaxTimeout is the most it
	// may ask for, default 5 min.
	Timeout, MaxTimeout time.Duration
	// MemoryMB is the engine's memory in MiB for a run that asks for none, default 512;
	// MaxMemoryMB is the most it may ask for, default MemoryMB.
	MemoryMB, MaxMemoryMB int
	// ReadPaths are the directories and files that requests may ask for, and what is below
	// them; none by default.
	ReadPaths []string
	// Protected reports whether no request may read a file, even below ReadPaths; default none
	// is. The path is absolute and clean.
	Protected func(path string) bool
	// MaxResult is how many bytes a result may have as JSON, and the arguments of a call;
	// default 1 MiB. MaxLogs is how many bytes of output are kept, default 64 KiB.
	MaxResult, MaxLogs int
	// MaxToolCalls is how many calls of tools and reads of files a run may make together,
	// default 1,000.
	MaxToolCalls int
	// Cache is how many compiled codes are kept, default 100; negative keeps none.
	Cache int
	// Logger hears of children that do not start or die; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&out.Warm, 2}, {&out.Running, 2 * runtime.NumCPU()}, {&out.MemoryMB, 512}, {&out.MaxResult, 1 << 20},
		{&out.MaxLogs, 64 << 10}, {&out.MaxToolCalls, 1000}, {&out.Cache, 100},
	} {
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	if out.MaxMemoryMB == 0 {
		out.MaxMemoryMB = out.MemoryMB
	}
	if out.Timeout == 0 {
		out.Timeout = 30 * time.Second
	}
	if out.MaxTimeout == 0 {
		out.MaxTimeout = max(5*time.Minute, out.Timeout)
	}
	if out.Protected == nil {
		out.Protected = func(string) bool { return false }
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// check reports options that make no sense.
func (o *Options) check() error {
	switch {
	case o.Running < 1, o.MaxResult < 1, o.MaxLogs < 1, o.MaxToolCalls < 1:
		return errors.New("sandbox: a limit is negative")
	case o.Timeout < minTimeout, o.MaxTimeout < o.Timeout:
		return errors.New("sandbox: the timeout must be at least a millisecond and not above its bound")
	case o.MemoryMB < minMemoryMB, o.MaxMemoryMB < o.MemoryMB:
		return errors.New("sandbox: the memory must be at least 16 MB and not above its bound")
	case o.MaxResult > mostResult:
		return errors.New("sandbox: a result may have 64 MiB at most")
	case slices.ContainsFunc(o.ReadPaths, func(p string) bool { return !filepath.IsAbs(p) }):
		return errors.New("sandbox: a path that may be read must be absolute")
	}
	return nil
}

// Sandbox is safe for concurrent use.
type Sandbox struct {
	opts   Options
	log    *slog.Logger
	places chan struct{}  // has one for each run
	warm   chan *process  // children that are ready, handed over without a buffer
	launch chan launching // to the thread that starts processes
	cache  *lru.Cache[digest, compiled]

	mu       sync.Mutex
	stopping context.Context // done when the sandbox stops; nil before the start
	stop     context.CancelFunc
	work     sync.WaitGroup // runs, and goroutines that keep children ready
	reaping  sync.WaitGroup // children that are ending
	ended    chan struct{}
	wanted   chan struct{} // closed with the first run
	first    sync.Once
}

// New returns a sandbox that has yet to be started.
func New(opts *Options) (*Sandbox, error) {
	s := &Sandbox{
		opts: opts.orDefaults(), warm: make(chan *process), launch: make(chan launching),
		ended: make(chan struct{}), wanted: make(chan struct{}),
	}
	if err := s.opts.check(); err != nil {
		return nil, err
	}
	s.log = s.opts.Logger
	s.places = make(chan struct{}, s.opts.Running)
	if len(s.opts.Command) == 0 {
		program, err := thisProgram()
		if err != nil {
			return nil, err
		}
		s.opts.Command = []string{program, ChildArgument}
	}
	if s.opts.Cache > 0 {
		var err error
		if s.cache, err = lru.New[digest, compiled](s.opts.Cache); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// thisProgram is the path of the running program. The system's own name for it also holds
// when the file was replaced by a newer one, whose frames may be others.
func thisProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// Start implements lifecycle.Service: children are made ready.
func (s *Sandbox) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping != nil {
		return nil
	}
	s.stopping, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		s.launchChildren()
	}()
	for range s.opts.Warm {
		s.work.Go(func() { s.keepWarm(s.stopping) })
	}
	go func() {
		defer close(s.ended)
		<-s.stopping.Done()
		s.work.Wait()
		s.reaping.Wait()
		close(s.launch) // nobody is left who asks
		<-launched
	}()
	return nil
}

// Stop implements lifecycle.Service: runs are ended, and their children. It returns when no
// child is left.
func (s *Sandbox) Stop(ctx context.Context) error {
	s.mu.Lock()
	started := s.stopping != nil
	if started {
		s.stop()
	}
	s.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a run in, unless the sandbox does not run. The context ends with the caller's
// and with the sandbox.
func (s *Sandbox) enter(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping == nil || s.stopping.Err() != nil {
		return nil, nil, ErrStopped
	}
	s.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.stopping, func() { cancel(ErrStopped) })
	return ctx, func() {
		unhook()
		cancel(nil)
		s.work.Done()
	}, nil
}
