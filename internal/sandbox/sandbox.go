// Package sandbox runs untrusted TypeScript: code that a model writes to combine tools instead of
// calling them one by one (AgentCards, execute_code).
//
// Each run has its own child process, which is this program started again. The child holds a
// QuickJS engine with the functions listed below and nothing else, under limits of the kernel. It
// exchanges frames with its parent over standard input and output, serves one run and ends. A run
// that loops, exhausts memory or breaks the engine harms only its own process, and two runs share
// nothing. The child also compiles the TypeScript, because a compiler can hang or crash on its
// input (docs/adr/0020-code-runs-in-a-child-process.md). Children are started before they are
// needed, and compiled code is cached.
//
// # Environment of the code
//
// The language is TypeScript up to ES2023 with types ignored, without import and require. A single
// expression is the result; several statements need return. Both may await. Besides the objects of
// the language there are
//
//   - context, the object of the request, and its keys as globals unless the name exists;
//   - mcp, and every server by its own name: mcp.github.list_commits({…}) and
//     github.listCommits({…}) are the same tool. Each call returns a promise;
//   - console.log, info, warn, error and debug;
//   - readTextFile(path), also as Deno.readTextFile, below the allowed paths;
//   - setTimeout, clearTimeout, setInterval, clearInterval, queueMicrotask, structuredClone
//     (of JSON values);
//   - URL, URLSearchParams, TextEncoder, TextDecoder, atob, btoa, crypto.getRandomValues,
//     crypto.randomUUID and performance.now, unless the context or a server has the name.
//
// There is no fetch, process, Buffer, AbortController or Intl: these names are ReferenceErrors. Times
// are in UTC. The result is the value as JSON; undefined is null. A run ends with its result: calls
// that were not awaited are cancelled.
package sandbox

import (
	"cmp"
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
	"golang.org/x/sync/semaphore"

	"comet/internal/background"
)

// ChildArgument is the only argument of a program that acts as a child: see Child.
const ChildArgument = "sandbox-child"

// ErrStopped is the error of a run while the sandbox is not started or is stopping.
var ErrStopped = errors.New("the sandbox is not running")

// Options configures New; nil is the zero value.
type Options struct {
	// Command starts a child, default this program with ChildArgument.
	Command []string
	// Warm is the number of children that are kept ready, default 2; -1 keeps none.
	Warm int
	// MaxRuns is the number of concurrent runs, default twice the processors. Further runs wait
	// up to their timeout.
	MaxRuns int
	// Timeout is the default timeout of a request, default 30 s, and MaxTimeout the longest, 5 min.
	Timeout, MaxTimeout time.Duration
	// MemoryMB is the memory of the engine in MiB for requests without one, and the most that a
	// request may have, default 512.
	MemoryMB int
	// ReadPaths are the directories and files that requests may read, with all below them.
	ReadPaths []string
	// Protected reports whether no request may read a file, given by its clean absolute path.
	Protected func(path string) bool
	// CacheSize is the number of compiled codes in the cache, default 100; -1 disables it.
	CacheSize int
	// Logger receives failures of children; default discards them.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Warm = cmp.Or(out.Warm, 2)
	out.MaxRuns = cmp.Or(out.MaxRuns, 2*runtime.NumCPU())
	out.Timeout = cmp.Or(out.Timeout, 30*time.Second)
	out.MaxTimeout = cmp.Or(out.MaxTimeout, max(5*time.Minute, out.Timeout))
	out.MemoryMB = cmp.Or(out.MemoryMB, 512)
	out.CacheSize = cmp.Or(out.CacheSize, 100)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.Protected == nil {
		out.Protected = func(string) bool { return false }
	}
	return out
}

func (o *Options) check() error {
	switch {
	case o.MaxRuns < 1:
		return errors.New("sandbox: the number of concurrent runs is below 1")
	case o.Timeout < minTimeout, o.MaxTimeout < o.Timeout:
		return errors.New("sandbox: the timeout must be between 1 ms and the longest timeout")
	case o.MemoryMB < minMemoryMB:
		return errors.New("sandbox: the memory must be at least 16 MB")
	case slices.ContainsFunc(o.ReadPaths, func(p string) bool { return !filepath.IsAbs(p) }):
		return errors.New("sandbox: read paths must be absolute")
	}
	return nil
}

// Sandbox is safe for concurrent use.
type Sandbox struct {
	opts  Options
	log   *slog.Logger
	slots *semaphore.Weighted // one for each run
	warm  chan *process       // children that are ready; without a buffer
	cache *lru.Cache[digest, compiled]

	mu         sync.Mutex
	stopping   context.Context // ends with the sandbox; nil before Start
	stop       context.CancelFunc
	running    sync.WaitGroup  // runs and goroutines that keep children ready
	reaping    sync.WaitGroup  // children that are ending
	needed     context.Context // ends with the first run
	markNeeded context.CancelFunc
}

// New returns a sandbox that is not started.
func New(opts *Options) (*Sandbox, error) {
	s := &Sandbox{opts: opts.withDefaults(), warm: make(chan *process)}
	s.needed, s.markNeeded = context.WithCancel(context.Background())
	if err := s.opts.check(); err != nil {
		return nil, err
	}
	s.log = s.opts.Logger
	s.slots = semaphore.NewWeighted(int64(s.opts.MaxRuns))
	if len(s.opts.Command) == 0 {
		program, err := thisProgram()
		if err != nil {
			return nil, err
		}
		s.opts.Command = []string{program, ChildArgument}
	}
	if s.opts.CacheSize > 0 {
		var err error
		if s.cache, err = lru.New[digest, compiled](s.opts.CacheSize); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// thisProgram returns the path of the running program. /proc/self/exe stays valid when the file
// was replaced by a newer version, whose frames may differ.
func thisProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// Start implements background.Service. On Linux this process is not dumpable afterwards (prctl(2)).
func (s *Sandbox) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping == nil {
		protectProcess()
		s.stopping, s.stop = context.WithCancel(context.WithoutCancel(ctx))
		for range s.opts.Warm {
			s.running.Go(func() { s.keepChildReady(s.stopping) })
		}
	}
	return nil
}

// Stop implements background.Service: it ends runs and returns when no child is left.
func (s *Sandbox) Stop(ctx context.Context) error {
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	return background.WaitFor(ctx, func() {
		s.running.Wait()
		s.reaping.Wait()
	})
}

// beginRun registers a run, or returns ErrStopped. The context also ends with the sandbox.
func (s *Sandbox) beginRun(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping == nil || s.stopping.Err() != nil {
		return nil, nil, ErrStopped
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.stopping, func() { cancel(ErrStopped) })
	return ctx, func() {
		unhook()
		cancel(nil)
		s.running.Done()
	}, nil
}
