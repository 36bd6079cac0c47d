package toolsearch

import (
	"context"
	"math"
	"strings"
	"time"

	"comet/internal/errs"
)

const (
	// DefaultLimit is the number of hits of a query without a limit.
	DefaultLimit = 5
	// MaxLimit is the highest limit of a query.
	MaxLimit = 100
	// MaxText is the longest text of a query, in bytes.
	MaxText = 2000
	// MaxContext is the highest number of tools in Query.ContextTools.
	MaxContext = 100
	// maxRanked is how many hits of a query are ranked and cached.
	maxRanked = 500
	// minScore is the score below which a tool is no hit: it shares a word with the query by
	// accident.
	minScore = 0.04
	// maxRelated is the length of Hit.RelatedTools.
	maxRelated = 3
)

// Query describes what the caller wants to do.
type Query struct {
	// Text is in English or French.
	Text string
	// Limit is the number of hits, 0 for DefaultLimit.
	Limit int
	// ContextTools are the ids of tools that were already used. Tools that are used together
	// with them rank higher.
	ContextTools []string
	// IncludeRelated adds tools that the text does not find and that are used together with
	// those it finds or with ContextTools.
	IncludeRelated bool
	// Allowed reports whether the caller may see a tool; nil allows all.
	Allowed func(toolID string) bool
}

// Hit is a tool that was found. Its scores are in 0…1.
type Hit struct {
	ID, Description string
	// Score is Meta.Alpha of SemanticScore and the rest of GraphScore.
	Score         float64
	SemanticScore float64
	GraphScore    float64
	// Related is true where the usage graph found the tool and the text did not.
	Related bool
	// RelatedTools are the ids of the tools it is used with most, of those the caller may see.
	RelatedTools []string
}

// Meta describes how a result was computed.
type Meta struct {
	// Alpha is the weight of the text, and Density the density of the usage graph, in 0…1.
	Alpha, Density float64
	// Tools is the number of all tools, whether the caller may see them or not.
	Tools int
	Took  time.Duration
	// Embeddings is "" without an embedder, "used", or "unavailable: " and the reason.
	Embeddings string
	// Cached is true where the ranking came from the cache.
	Cached bool
}

// Result is the hits of a query, the best first; equal ones are sorted by id.
type Result struct {
	Hits []Hit
	Meta Meta
}

// Search finds tools. The error is errs.InvalidRequest for a query without text or over a
// limit.
func (x *Index) Search(ctx context.Context, q Query) (Result, error) {
	start := time.Now()
	if err := q.check(); err != nil {
		return Result{}, err
	}
	r := x.rank(ctx, &q)
	hits := r.allowed(&q)
	if len(hits) < q.Limit && r.truncated { // the rest may be what the caller is allowed to see
		full := x.compute(ctx, &q, r.snap, r.graph, math.MaxInt)
		hits, r.embeddings = full.allowed(&q), full.embeddings
	}
	r.addRelatedTools(&q, hits)
	if q.IncludeRelated {
		hits = r.withRelated(&q, hits)
	}
	return Result{Hits: hits, Meta: Meta{
		Alpha: r.alpha, Density: r.graph.density, Tools: len(r.snap.docs), Took: time.Since(start), Embeddings: r.embeddings, Cached: r.cached,
	}}, nil
}

// check rejects a query over a limit and sets the default limit.
func (q *Query) check() error {
	switch {
	case strings.TrimSpace(q.Text) == "":
		return errs.New(errs.InvalidRequest, "query must say what you want to do")
	case len(q.Text) > MaxText:
		return errs.New(errs.InvalidRequest, "query has %d bytes, at most %d are allowed", len(q.Text), MaxText)
	case q.Limit < 0 || q.Limit > MaxLimit:
		return errs.New(errs.InvalidRequest, "limit must be between 1 and %d, not %d", MaxLimit, q.Limit)
	case len(q.ContextTools) > MaxContext:
		return errs.New(errs.InvalidRequest, "context_tools has %d tools, at most %d are allowed", len(q.ContextTools), MaxContext)
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	return nil
}
