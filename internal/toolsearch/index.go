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
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	x.vectors = newVectors(db, &x.opts, func() []*document { return x.snap.Load().docs })
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
