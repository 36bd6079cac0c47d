package toolsearch

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
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
	// maxRelated is the length of Hit.RelatedTools.
	maxRelated = 3
)

// Query describes what the caller wants to do.
type Query struct {
	// Text is in English or French.
	Text string
	// Limit is the number of hits, 0 for DefaultLimit.
	Limit int
	// ContextTools are the ids of tools in use. Tools that are used together with them rank higher.
	ContextTools []string
	// IncludeRelated adds tools that are used together with those found or with ContextTools.
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

// Search finds tools; errs.InvalidRequest for a query without text or over a limit.
func (x *Index) Search(ctx context.Context, q Query) (Result, error) {
	start := time.Now()
	if err := q.check(); err != nil {
		return Result{}, err
	}
	r := x.findRanking(ctx, &q)
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
		return errs.New(errs.InvalidRequest, "query must describe what you want to do")
	case len(q.Text) > MaxText:
		return errs.New(errs.InvalidRequest, "query has %d bytes, at most %d are allowed", len(q.Text), MaxText)
	case q.Limit < 0 || q.Limit > MaxLimit:
		return errs.New(errs.InvalidRequest, "limit must be between 1 and %d, not %d", MaxLimit, q.Limit)
	case len(q.ContextTools) > MaxContext:
		return errs.New(errs.InvalidRequest, "context_tools has %d tools, at most %d are allowed", len(q.ContextTools), MaxContext)
	}
	q.Limit = cmp.Or(q.Limit, DefaultLimit)
	return nil
}

type ranked struct {
	doc                    int32
	score, semantic, graph float64
}

// ranking is the result of a text and a context, before the caller's limit and permissions.
type ranking struct {
	snap       *snapshot
	graph      *graph
	alpha      float64
	hits       []ranked
	truncated  bool
	embeddings string
	cached     bool
}

// findRanking returns the ranking of a query, from the cache where it has it.
func (x *Index) findRanking(ctx context.Context, q *Query) ranking {
	snap, g := x.snap.Load(), x.graph.Load()
	key := rankingKey{text: q.Text, snap: snap.number, vectors: x.vectors.current.Load().number}
	if len(q.ContextTools) > 0 {
		key.context, key.graph = strings.Join(q.ContextTools, "\x00"), g.number
	}
	if x.cache != nil {
		if r, ok := x.cache.Get(key); ok {
			r.cached, r.graph = true, g
			return r
		}
	}
	r := x.compute(ctx, q, snap, g, maxRanked)
	if x.cache != nil && (r.embeddings == "" || r.embeddings == embeddingsUsed) {
		kept := r
		kept.graph = nil // the current one is set when it is used
		x.cache.Add(key, kept)
	}
	return r
}

// compute ranks all tools and returns the first limit.
func (x *Index) compute(ctx context.Context, q *Query, snap *snapshot, g *graph, limit int) ranking {
	r := ranking{snap: snap, graph: g, alpha: 1}
	acc := snap.accumulators.Get().(*accumulator)
	defer func() {
		acc.reset()
		snap.accumulators.Put(acc)
	}()
	parsed := x.vocabulary.parse(q.Text)
	terms := snap.correct(x.vocabulary, x.vocabulary.queryTerms(&parsed))
	snap.score(terms, acc)
	snap.demote(x.vocabulary.wantedAction(&parsed), acc)
	r.embeddings = x.vectors.fuse(ctx, q.Text, snap, acc)
	contextTools := g.known(q.ContextTools)
	if len(contextTools) > 0 {
		r.alpha = g.alpha()
	}
	r.hits = make([]ranked, 0, len(acc.touched))
	for _, doc := range acc.touched {
		h := ranked{doc: doc, semantic: round(float64(acc.total[doc]))}
		if h.semantic < minScore {
			continue
		}
		if len(contextTools) > 0 {
			h.graph = round(g.near(contextTools, snap.docs[doc].id))
		}
		h.score = round(r.alpha*h.semantic + (1-r.alpha)*h.graph)
		r.hits = append(r.hits, h)
	}
	slices.SortFunc(r.hits, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.doc, b.doc)) })
	if len(r.hits) > limit {
		r.hits, r.truncated = slices.Clone(r.hits[:limit]), true
	}
	return r
}

// round keeps four decimals of a score, so that hits are sorted by the scores they show.
func round(score float64) float64 { return math.Round(min(max(score, 0), 1)*1e4) / 1e4 }

// allowed returns the hits that the caller may see, up to the limit.
func (r *ranking) allowed(q *Query) []Hit {
	out := make([]Hit, 0, min(q.Limit, len(r.hits)))
	for _, h := range r.hits {
		if len(out) == q.Limit {
			break
		}
		d := r.snap.docs[h.doc]
		if q.Allowed == nil || q.Allowed(d.id) {
			out = append(out, Hit{ID: d.id, Description: d.description, Score: h.score, SemanticScore: h.semantic, GraphScore: h.graph})
		}
	}
	return out
}

func (r *ranking) addRelatedTools(q *Query, hits []Hit) {
	for i := range hits {
		for _, n := range r.graph.neighbours(hits[i].ID) {
			if len(hits[i].RelatedTools) == maxRelated {
				break
			}
			if r.visible(q, n.id) {
				hits[i].RelatedTools = append(hits[i].RelatedTools, n.id)
			}
		}
	}
}

// visible reports whether a tool exists and the caller may see it.
func (r *ranking) visible(q *Query, id string) bool {
	_, exists := r.snap.byID[id]
	return exists && (q.Allowed == nil || q.Allowed(id))
}

// withRelated adds tools to the hits that are used together with them or with the context, and
// that the text did not find. Their score is that of the hit times the proximity in the graph.
// At most a third of the limit is added, and the result stays within the limit.
func (r *ranking) withRelated(q *Query, hits []Hit) []Hit {
	found := map[string]bool{}
	for _, h := range r.hits {
		found[r.snap.docs[h.doc].id] = true
	}
	for _, id := range q.ContextTools {
		found[id] = true // the caller knows it
	}
	best := map[string]Hit{}
	addNeighbours := func(of string, score float64) {
		for _, n := range r.graph.neighbours(of) {
			near := round(n.near)
			h := Hit{ID: n.id, Score: round(score * near), GraphScore: near, Related: true}
			if !found[n.id] && h.Score > best[n.id].Score && r.visible(q, n.id) {
				h.Description = r.snap.docs[r.snap.byID[n.id]].description
				best[n.id] = h
			}
		}
	}
	for _, h := range hits {
		addNeighbours(h.ID, h.Score)
	}
	for _, id := range q.ContextTools {
		addNeighbours(id, 1-r.alpha)
	}
	related := slices.Collect(maps.Values(best))
	sortHits(related)
	related = related[:min(len(related), (q.Limit+2)/3)]
	r.addRelatedTools(q, related)
	hits = append(hits, related...)
	sortHits(hits)
	return hits[:min(len(hits), q.Limit)]
}

func sortHits(hits []Hit) {
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
}

// rankingKey is everything a ranking depends on. The caller and the limit are not part of it:
// both are applied to what the cache returns.
type rankingKey struct {
	text, context        string
	snap, graph, vectors uint64
}
