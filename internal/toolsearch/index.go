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
	// InputSchema is a JSON Schema; the names and descriptions of its parameters are indexed.
	// Invalid JSON is ignored.
	InputSchema json.RawMessage
	// Keywords are further words that find the tool, set by an operator.
	Keywords []string
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
	// ReloadInterval is how often the runs of other replicas are read, default 1 min.
	ReloadInterval time.Duration
	// Retention is how long an unused edge is kept, default 30 days, and MaxEdges how many are
	// kept, default 20,000: the least recently used are removed first.
	Retention time.Duration
	MaxEdges  int
	// MaxPending is how many edges may wait to be written, default 10,000; further runs are
	// rejected.
	MaxPending int
	// Embedder makes vectors of texts; without it the text alone counts.
	Embedder Embedder
	// EmbedTimeout is how long a search waits for the vector of its text, default 300 ms.
	EmbedTimeout time.Duration
	// EmbedPause is how long the embedder is not called after a failure, default 10 s.
	EmbedPause time.Duration
	// OnChange receives each change of the graph, one at a time and after it was written. It
	// must not block.
	OnChange func(Change)
	// Logger receives failures to read or write; default discards them.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.CacheSize = cmp.Or(out.CacheSize, 100)
	out.FlushInterval = cmp.Or(out.FlushInterval, time.Second)
	out.RecomputeInterval = cmp.Or(out.RecomputeInterval, 10*time.Second)
	out.ReloadInterval = cmp.Or(out.ReloadInterval, time.Minute)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.MaxEdges = cmp.Or(out.MaxEdges, 20_000)
	out.MaxPending = cmp.Or(out.MaxPending, 10_000)
	out.EmbedTimeout = cmp.Or(out.EmbedTimeout, 300*time.Millisecond)
	out.EmbedPause = cmp.Or(out.EmbedPause, 10*time.Second)
	if out.OnChange == nil {
		out.OnChange = func(Change) {}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// Index is safe for concurrent use.
type Index struct {
	store      *store.Store
	opts       Options
	log        *slog.Logger
	vocabulary *vocabulary
	cache      *rankingCache
	loops      lifecycle.Group

	snap  atomic.Pointer[snapshot]
	graph atomic.Pointer[graph]

	mu      sync.Mutex // held by Replace
	servers map[string][]*document

	pending pendingRuns
	writing chan struct{} // holds one while runs are written
	vectors vectors
}

// New returns an index without tools. It can be searched and recorded to before Start, which
// loads the graph. An index that is only searched needs no store.
func New(db *store.Store, opts *Options) *Index {
	x := &Index{store: db, opts: opts.withDefaults(), vocabulary: newVocabulary(), servers: map[string][]*document{}, writing: make(chan struct{}, 1)}
	x.log = x.opts.Logger
	x.cache = newRankingCache(x.opts.CacheSize)
	x.pending.reset()
	x.vectors.init(x.opts)
	x.snap.Store(newSnapshot(1, nil))
	x.graph.Store(newGraph(nil, nil, time.Time{}))
	x.loops.Add("usage graph", lifecycle.NewLoop(x.maintainGraph))
	if x.opts.Embedder != nil {
		x.loops.Add("vectors of tools", lifecycle.NewLoop(x.maintainVectors))
	}
	return x
}

// Start implements lifecycle.Service.
func (x *Index) Start(ctx context.Context) error { return x.loops.Start(ctx) }

// Stop implements lifecycle.Service: it writes the pending runs.
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
	x.publish()
	x.vectors.wake()
}

// publish makes the next snapshot; the caller holds mu.
func (x *Index) publish() {
	var all []*document
	for _, documents := range x.servers {
		all = append(all, documents...)
	}
	x.snap.Store(newSnapshot(x.snap.Load().number+1, all))
	x.cache.clear()
}
