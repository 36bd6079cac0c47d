// Package toolsearch finds tools by what somebody wants to do, in English or French, and
// by which tools were used together before. An agent that is given three hundred tools
// chooses badly and pays for their descriptions with each request; one that is given a
// search has to find the right tool with its first attempt. The text is scored without a
// model, so the answer costs less than a millisecond, needs nothing that is not in this
// process and is the same on every machine; embeddings can be added and are never needed.
//
// What is searched is an immutable snapshot behind an atomic pointer: searches wait for
// nobody, neither for each other nor for a server whose tools change. The usage graph is
// kept in SQL, where replicas add to it, and is another such snapshot here. Whoever calls
// decides who may see which tool; nothing that depends on the caller is remembered.
package toolsearch

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/lifecycle"
	"comet/store"
)

// Tool is a tool as its server describes it.
type Tool struct {
	// ID is serverId:toolName, of at most 256 bytes.
	ID string
	// Server and Name are its two halves.
	Server, Name string
	Title        string
	Description  string
	// InputSchema is its JSON Schema; the names and descriptions of its parameters are
	// searched. What is not JSON is not searched.
	InputSchema json.RawMessage
	// Keywords are further words by which the tool is found, as an operator gave them.
	Keywords []string
}

// Embedder turns texts into vectors of one length, whose cosine says how near they are.
type Embedder interface {
	// Model names what makes the vectors: those of different models are never compared.
	Model() string
	// Embed returns a vector for each text.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Options configures New; nil is the zero value.
type Options struct {
	// Cache is how many answers are remembered, default 100; -1 remembers none.
	Cache int
	// Every is how long a run waits to be written to the graph at most, default 1 s.
	Every time.Duration
	// Recompute is the least time between two computations of ranks and communities,
	// default 10 s; they follow a change of the graph.
	Recompute time.Duration
	// Reload is how often what other replicas recorded is read, default 1 min.
	Reload time.Duration
	// Keep is how long an edge is kept that nobody uses, default 30 days, and MaxEdges
	// how many are kept, default 20,000: the least recently used go first.
	Keep     time.Duration
	MaxEdges int
	// MaxPending is how many edges may wait to be written, default 10,000; further runs are
	// refused.
	MaxPending int
	// Embedder is asked for vectors; default none is, and the text alone counts.
	Embedder Embedder
	// EmbedTimeout is how long a search waits for the vector of its text, default 300 ms.
	EmbedTimeout time.Duration
	// EmbedPause is how long the embedder is left alone after it has failed, default 10 s.
	EmbedPause time.Duration
	// Changed hears of each change of the graph, one at a time and after it is written. It
	// must not block.
	Changed func(Change)
	// Logger hears of what cannot be read or written; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Cache == 0 {
		out.Cache = 100
	}
	out.Every = orElse(out.Every, time.Second)
	out.Recompute = orElse(out.Recompute, 10*time.Second)
	out.Reload = orElse(out.Reload, time.Minute)
	out.Keep = orElse(out.Keep, 30*24*time.Hour)
	if out.MaxEdges <= 0 {
		out.MaxEdges = 20_000
	}
	if out.MaxPending <= 0 {
		out.MaxPending = 10_000
	}
	out.EmbedTimeout = orElse(out.EmbedTimeout, 300*time.Millisecond)
	out.EmbedPause = orElse(out.EmbedPause, 10*time.Second)
	if out.Changed == nil {
		out.Changed = func(Change) {}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Index is safe for concurrent use.
type Index struct {
	store *store.Store
	opts  Options
	log   *slog.Logger
	words *words
	cache *cache
	loops lifecycle.Group

	snap  atomic.Pointer[snapshot]
	graph atomic.Pointer[graph]

	mu      sync.Mutex // who replaces
	servers map[string][]*document

	pending pending // runs that are not written yet
	writing chan struct{}
	vectors vectors
}

// New returns an index without tools. It can be searched and recorded to before it is
// started; the graph is there when it has been. One that is only searched needs no store.
func New(db *store.Store, opts *Options) *Index {
	x := &Index{store: db, opts: opts.orDefaults(), words: newWords(), servers: map[string][]*document{}, writing: make(chan struct{}, 1)}
	x.log = x.opts.Logger
	x.cache = newCache(x.opts.Cache)
	x.pending.init()
	x.vectors.init(x.opts)
	x.snap.Store(newSnapshot(1, nil))
	x.graph.Store(newGraph(nil, nil, time.Time{}))
	x.loops.Add("usage graph", lifecycle.NewLoop(x.keepGraph))
	if x.opts.Embedder != nil {
		x.loops.Add("vectors of tools", lifecycle.NewLoop(x.keepVectors))
	}
	return x
}

// Start implements lifecycle.Service.
func (x *Index) Start(ctx context.Context) error { return x.loops.Start(ctx) }

// Stop implements lifecycle.Service: runs that wait are written first.
func (x *Index) Stop(ctx context.Context) error {
	if err := x.loops.Stop(ctx); err != nil {
		return err
	}
	return x.Flush(ctx)
}

// Replace sets all tools of a server in place of those before; nil removes it. Searches
// that are under way see those before.
func (x *Index) Replace(server string, tools []Tool) {
	documents := make([]*document, 0, len(tools))
	common := sharedBy(tools)
	for i := range tools {
		d := newDocument(x.words, &tools[i], common)
		if x.opts.Embedder != nil {
			d.text = textOf(&tools[i])
			d.digest = x.vectors.digest(d.text)
		}
		documents = append(documents, d)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(documents) == 0 {
		delete(x.servers, server)
	} else {
		x.servers[server] = documents
	}
	x.publish()
	x.vectors.wake()
}

// publish makes the next snapshot; whoever calls holds the lock.
func (x *Index) publish() {
	var all []*document
	for _, documents := range x.servers {
		all = append(all, documents...)
	}
	x.snap.Store(newSnapshot(x.snap.Load().number+1, all))
	x.cache.forget()
}
