package toolsearch

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

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
