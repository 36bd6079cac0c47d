package toolsearch

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// ranked is a document and its scores.
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

// rank returns the ranking of a query, from the cache where it has it.
func (x *Index) rank(ctx context.Context, q *Query) ranking {
	snap, g := x.snap.Load(), x.graph.Load()
	key := rankingKey{text: q.Text, snap: snap.number, vectors: x.vectors.current.Load().number}
	if len(q.ContextTools) > 0 {
		key.context, key.graph = strings.Join(q.ContextTools, "\x00"), g.number
	}
	if r, ok := x.cache.get(key); ok {
		r.cached, r.graph = true, g
		return r
	}
	r := x.compute(ctx, q, snap, g, maxRanked)
	if r.embeddings == "" || r.embeddings == embeddingsUsed {
		x.cache.put(key, r)
	}
	return r
}

// compute ranks all tools and returns the first limit.
func (x *Index) compute(ctx context.Context, q *Query, snap *snapshot, g *graph, limit int) ranking {
	r := ranking{snap: snap, graph: g, alpha: 1}
	acc, ok := snap.accumulators.Get().(*accumulator)
	if !ok {
		return r
	}
	defer func() {
		acc.reset()
		snap.accumulators.Put(acc)
	}()
	parsed := x.vocabulary.parse(q.Text)
	terms := snap.correct(x.vocabulary, x.vocabulary.queryTerms(&parsed))
	snap.score(terms, acc)
	snap.demote(x.vocabulary.wantedAction(&parsed, terms), acc)
	r.embeddings = x.fuse(ctx, q.Text, snap, acc)
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

// addRelatedTools sets RelatedTools of each hit.
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
	related := make([]Hit, 0, len(best))
	for _, h := range best {
		related = append(related, h)
	}
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

// rankingCache holds recent rankings. While another search uses it, a search goes on without it:
// waiting costs about as much as computing the ranking.
type rankingCache struct {
	mu  sync.Mutex
	lru *simplelru.LRU[rankingKey, ranking] // nil without a cache
}

func newRankingCache(size int) *rankingCache {
	c := &rankingCache{}
	if size > 0 {
		c.lru, _ = simplelru.NewLRU[rankingKey, ranking](size, nil) // fails only for sizes below 1
	}
	return c
}

func (c *rankingCache) get(key rankingKey) (ranking, bool) {
	if c.lru == nil || !c.mu.TryLock() {
		return ranking{}, false
	}
	defer c.mu.Unlock()
	return c.lru.Get(key)
}

func (c *rankingCache) put(key rankingKey, r ranking) {
	if c.lru == nil || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	r.graph = nil // rank sets the current one
	c.lru.Add(key, r)
}

// clear removes all rankings, because they are of an older snapshot.
func (c *rankingCache) clear() {
	if c.lru == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
}
