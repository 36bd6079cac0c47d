// Package toolsearch finds tools by what a client wants to do, in English or French, and by
// which tools were used together before. A model that receives three hundred tool descriptions
// chooses badly and pays for them with each request; with a search it needs the right tool among
// the first hits. Text is scored by BM25F with stemming and a table of synonyms: a search takes
// less than a millisecond, needs no network and gives the same result on every machine. An
// embeddings server is optional (docs/adr/0021-tool-search.md).
//
// Searches read an immutable snapshot behind an atomic pointer and never block. The usage graph
// is stored in SQL, where all replicas add to it, and held here as another snapshot. Callers
// decide who may see which tool; nothing that depends on the caller is cached.
package toolsearch

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/background"
	"comet/store"
)

// Index is safe for concurrent use.
type Index struct {
	*usageGraph
	opts       Options
	vocabulary *vocabulary
	cache      *lru.Cache[rankingKey, ranking] // nil without a cache
	vectors    *vectors
	loops      background.Group
	snap       atomic.Pointer[snapshot]

	mu      sync.Mutex // held by Replace
	servers map[string][]*document
}

// New returns an index without tools. It can be searched and recorded to before Start, which
// loads the graph. An index that is only searched needs no store.
func New(db *store.Store, opts *Options) *Index {
	x := &Index{opts: opts.withDefaults(), vocabulary: newVocabulary(), servers: map[string][]*document{}}
	if x.opts.CacheSize > 0 {
		x.cache, _ = lru.New[rankingKey, ranking](x.opts.CacheSize) // fails only for sizes below 1
	}
	x.usageGraph = newUsageGraph(db, &x.opts)
	x.vectors = &vectors{store: db, opts: &x.opts, tools: func() []*document { return x.snap.Load().docs }, changed: background.NewSignal()}
	x.vectors.current.Store(&vectorSet{})
	x.snap.Store(newSnapshot(1, nil))
	x.loops.Add("usage graph", background.NewLoop(x.usageGraph.maintain))
	if x.opts.Embedder != nil {
		x.loops.Add("vectors of tools", background.NewLoop(x.vectors.maintain))
	}
	return x
}

// Start implements background.Service.
func (x *Index) Start(ctx context.Context) error { return x.loops.Start(ctx) }

// Stop implements background.Service: it writes the pending runs.
func (x *Index) Stop(ctx context.Context) error {
	if err := x.loops.Stop(ctx); err != nil {
		return err
	}
	return x.Flush(ctx)
}

// Replace sets all tools of a server in place of the earlier ones; nil removes the server.
// Searches that have begun see the earlier tools.
func (x *Index) Replace(server string, tools []Tool) {
	documents := make([]*document, 0, len(tools))
	for i := range tools {
		d := newDocument(x.vocabulary, &tools[i])
		if x.opts.Embedder != nil {
			d.embedded = embeddedText(&tools[i])
			d.digest = x.vectors.digest(d.embedded)
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
	all := slices.Concat(slices.Collect(maps.Values(x.servers))...)
	x.snap.Store(newSnapshot(x.snap.Load().number+1, all))
	if x.cache != nil {
		x.cache.Purge() // its rankings are of the earlier snapshot
	}
	x.vectors.changed.Set()
}

// Embedder turns texts into vectors of equal length whose cosine is their similarity.
type Embedder interface {
	// Model returns the name of the model. Vectors of different models are never compared.
	Model() string
	// Embed returns a vector for each text.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Options configures New; nil is the zero value.
type Options struct {
	// CacheSize is how many rankings are cached, default 100; -1 disables the cache.
	CacheSize int
	// FlushInterval is the longest time until a run is written to the graph, default 1 s.
	FlushInterval time.Duration
	// RecomputeInterval is the least time between two computations of ranks and communities,
	// default 10 s; they follow a change of the graph.
	RecomputeInterval time.Duration
	// MaxEdges is how many edges are kept, default 20,000: the least recently used are removed first.
	MaxEdges int
	// MaxPending limits the edges that wait to be written, default 10,000; then runs are rejected.
	MaxPending int
	// Embedder makes vectors of texts; without it the text alone counts.
	Embedder Embedder
	// EmbedTimeout is how long a search waits for the vector of its text, default 300 ms.
	EmbedTimeout time.Duration
	// EmbedPause is how long the embedder is not called after a failure, default 10 s.
	EmbedPause time.Duration
	// OnChange receives each written change of the graph in order, and must not block.
	OnChange func(Change)
	// Logger receives failures to read or write; default discards them.
	Logger *slog.Logger
}

// retention is how long an unused edge, node or vector is kept.
const retention = 30 * 24 * time.Hour

func (o *Options) withDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.CacheSize = cmp.Or(out.CacheSize, 100)
	out.FlushInterval = cmp.Or(out.FlushInterval, time.Second)
	out.RecomputeInterval = cmp.Or(out.RecomputeInterval, 10*time.Second)
	out.MaxEdges = cmp.Or(out.MaxEdges, 20_000)
	out.MaxPending = cmp.Or(out.MaxPending, 10_000)
	out.EmbedTimeout = cmp.Or(out.EmbedTimeout, 300*time.Millisecond)
	out.EmbedPause = cmp.Or(out.EmbedPause, 10*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.OnChange == nil {
		out.OnChange = func(Change) {}
	}
	return out
}
