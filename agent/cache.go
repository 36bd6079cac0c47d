package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

// The lifetime of results in a DirCache, and the default number of results in a cache.
const (
	cacheTTL  = 24 * time.Hour
	cacheSize = 10_000
)

// Key identifies a request: two requesters may use the same request id for different tasks.
// Another attempt at a task has the same key.
type Key struct{ Request, Task uuid.UUID }

// Cache stores the results of requests (Chiffon §Idempotency). Its methods may be called
// concurrently, but not for the same request.
type Cache interface {
	// Begin returns the entry of a request, and records that its work starts unless there is a
	// result.
	Begin(request Key) (CacheEntry, error)
	// End stores the result of a request. It returns when the result is durable: the result is
	// sent after that.
	End(request Key, result []byte) error
	// Forget removes the entry of a request.
	Forget(request Key) error
}

// CacheEntry is what a Cache has about a request.
type CacheEntry struct {
	// Result is what End was given, nil if the request has not ended.
	Result []byte
	// Interrupted is whether an earlier process started the work and did not end it.
	Interrupted bool
}

// MemoryCache is a Cache in memory.
type MemoryCache struct{ results *lru.Cache[Key, []byte] }

// NewMemoryCache returns a cache of the newest count results; 0 is 10,000.
func NewMemoryCache(count int) *MemoryCache {
	if count <= 0 {
		count = cacheSize
	}
	results, _ := lru.New[Key, []byte](count) // fails only for a count below 1
	return &MemoryCache{results}
}

// Begin implements Cache.
func (c *MemoryCache) Begin(request Key) (CacheEntry, error) {
	result, _ := c.results.Peek(request)
	return CacheEntry{Result: result}, nil
}

// End implements Cache.
func (c *MemoryCache) End(request Key, result []byte) error {
	c.results.Add(request, result)
	return nil
}

// Forget implements Cache.
func (c *MemoryCache) Forget(request Key) error {
	c.results.Remove(request)
	return nil
}

// A file is named after the ids of a request and of its task, with one of these suffixes.
const (
	suffixRunning = ".running"
	suffixResult  = ".json"
	suffixNew     = ".new"
	// separator is between the ids. Files without it, of older versions, are not read and are
	// removed when they are old.
	separator = "_"
)

// DirCache is a Cache in a directory, with a small file for each request. It survives the
// process, and stored results survive the machine. Only one process at a time may use a
// directory; the caller ensures it.
type DirCache struct {
	dir        string
	maxResults int
	now        func() time.Time

	mu     sync.Mutex
	stored int // results since the directory was last pruned, at least
}

// OpenCache opens the cache in a directory, and creates the directory if it does not exist. It
// keeps up to count results, for 24 hours; 0 is 10,000.
func OpenCache(dir string, count int) (*DirCache, error) {
	if count <= 0 {
		count = cacheSize
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &DirCache{dir: dir, maxResults: count, now: time.Now}
	return c, c.prune()
}

// String is the key in file names and logs.
func (k Key) String() string { return k.Request.String() + separator + k.Task.String() }

func parseKey(text string) (k Key, err error) {
	request, task, _ := strings.Cut(text, separator)
	if k.Request, err = uuid.Parse(request); err == nil {
		k.Task, err = uuid.Parse(task)
	}
	return k, err
}

func (c *DirCache) path(request Key, suffix string) string {
	return filepath.Join(c.dir, request.String()+suffix)
}

// Begin implements Cache.
func (c *DirCache) Begin(request Key) (CacheEntry, error) {
	name := c.path(request, suffixResult)
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return CacheEntry{}, err
	}
	if info, statErr := os.Stat(name); err == nil && statErr == nil && c.now().Sub(info.ModTime()) < cacheTTL {
		return CacheEntry{Result: data}, nil
	}
	if _, err := os.Stat(c.path(request, suffixRunning)); err == nil {
		return CacheEntry{Interrupted: true}, nil
	}
	return CacheEntry{}, c.write(request, suffixRunning, nil)
}

// Interrupted returns the requests whose work an earlier process started and did not end.
func (c *DirCache) Interrupted() (requests []Key, err error) {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		ids, running := strings.CutSuffix(e.Name(), suffixRunning)
		if request, err := parseKey(ids); running && err == nil {
			requests = append(requests, request)
		}
	}
	return requests, err
}

// End implements Cache.
func (c *DirCache) End(request Key, result []byte) error {
	if err := c.write(request, suffixResult, result); err != nil {
		return err
	}
	if err := remove(c.path(request, suffixRunning)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored++; c.stored <= c.maxResults+c.maxResults/10 {
		return nil
	}
	return c.prune()
}

// Forget implements Cache.
func (c *DirCache) Forget(request Key) error {
	return errors.Join(remove(c.path(request, suffixRunning)), remove(c.path(request, suffixResult)))
}

// remove removes a file, which may already be missing.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// write replaces a file, atomically.
func (c *DirCache) write(request Key, suffix string, data []byte) error {
	name := c.path(request, suffix)
	f, err := os.OpenFile(name+suffixNew, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(name+suffixNew, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store request %s: %w", request, err), os.Remove(name+suffixNew))
	}
	return syncDir(c.dir)
}

// syncDir makes the names in a directory durable. Not every system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}

// prune removes files that are too old, too many, or incomplete.
func (c *DirCache) prune() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var results []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !isCacheFile(e.Name()) {
			continue
		}
		switch late := c.now().Sub(info.ModTime()) >= cacheTTL; {
		case late:
			err = remove(filepath.Join(c.dir, e.Name()))
		case strings.HasSuffix(e.Name(), suffixResult):
			results = append(results, info)
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(results, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, info := range results[:max(len(results)-c.maxResults, 0)] {
		if err := remove(filepath.Join(c.dir, info.Name())); err != nil {
			return err
		}
	}
	c.stored = min(len(results), c.maxResults)
	return nil
}

func isCacheFile(name string) bool {
	ids, suffix, ok := strings.Cut(name, ".")
	if _, err := parseKey(ids); !ok || err != nil && uuid.Validate(ids) != nil {
		return false
	}
	return slices.Contains([]string{suffixRunning, suffixResult}, "."+strings.TrimSuffix(suffix, suffixNew))
}
