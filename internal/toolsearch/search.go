package toolsearch

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
)

const (
	// DefaultLimit is how many hits an answer has where nobody says it.
	DefaultLimit = 5
	// MaxLimit is how many it may have.
	MaxLimit = 100
	// MaxText is the longest text of a query, in bytes.
	MaxText = 2000
	// MaxContext is how many tools may be said to have been used.
	MaxContext = 100
	// maxQueryWords is how many words of a query count.
	maxQueryWords = 64
	// maxRanked is how many hits are remembered of one query.
	maxRanked = 500
	// least is the score below which a tool is no hit: it shares a word with the query by
	// accident.
	least = 0.04
	// maxRelated is how many tools a hit names that were used with it.
	maxRelated = 3
)

// Query is what somebody wants to do.
type Query struct {
	// Text says it, in English or French.
	Text string
	// Limit is how many hits are wanted, 0 for DefaultLimit.
	Limit int
	// ContextTools are the ids of tools that were used already: those that are used with
	// them come earlier.
	ContextTools []string
	// IncludeRelated asks for tools, too, that the text does not find and that are used
	// with those it finds, or with ContextTools.
	IncludeRelated bool
	// Allowed says whether the caller may see a tool; nil is yes.
	Allowed func(toolID string) bool
}

// Hit is a tool that was found. Its scores are in 0…1.
type Hit struct {
	ID, Description string
	// Score is Meta.Alpha of SemanticScore and the rest of GraphScore.
	Score         float64
	SemanticScore float64
	GraphScore    float64
	// Related is set where the graph knows the tool and the text did not find it.
	Related bool
	// RelatedTools are the ids of those it is used with most, which the caller may see.
	RelatedTools []string
}

// Meta says how an answer came about.
type Meta struct {
	// Alpha is how much the text counts, and Density how much of the graph there is.
	Alpha, Density float64
	// Tools is how many tools there are, whether the caller may see them or not.
	Tools int
	Took  time.Duration
	// Embeddings is "" where none are used, "used", or "unavailable: " and why.
	Embeddings string
	// Cached is set where the ranking was remembered.
	Cached bool
}

// Answer is what was found, the best first; equals are in the order of their ids.
type Answer struct {
	Hits []Hit
	Meta Meta
}

// Search finds tools. A query without text, or over a limit, is errs.InvalidRequest.
func (x *Index) Search(ctx context.Context, q Query) (Answer, error) {
	start := time.Now()
	if err := q.check(); err != nil {
		return Answer{}, err
	}
	r := x.rank(ctx, &q)
	hits := r.allowed(&q)
	if len(hits) < q.Limit && r.cut { // the rest may be what the caller is allowed to see
		full := x.compute(ctx, &q, r.snap, r.graph, math.MaxInt)
		hits, r.embeddings = full.allowed(&q), full.embeddings
	}
	r.finish(&q, hits)
	if q.IncludeRelated {
		hits = r.related(&q, hits)
	}
	return Answer{Hits: hits, Meta: Meta{
		Alpha: r.alpha, Density: r.graph.density, Tools: len(r.snap.docs), Took: time.Since(start), Embeddings: r.embeddings, Cached: r.cached,
	}}, nil
}

func (q *Query) check() error {
	switch {
	case strings.TrimSpace(q.Text) == "":
		return errs.New(errs.InvalidRequest, "query must say what you want to do")
	case len(q.Text) > MaxText:
		return errs.New(errs.InvalidRequest, "query has %d bytes, the most is %d", len(q.Text), MaxText)
	case q.Limit < 0 || q.Limit > MaxLimit:
		return errs.New(errs.InvalidRequest, "limit must be between 1 and %d, not %d", MaxLimit, q.Limit)
	case len(q.ContextTools) > MaxContext:
		return errs.New(errs.InvalidRequest, "context_tools has %d tools, the most is %d", len(q.ContextTools), MaxContext)
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	return nil
}

// ranked is a tool and its scores.
type ranked struct {
	doc                    int32
	score, semantic, graph float64
}

// ranking is what was found for a text and a context, for whoever asked.
type ranking struct {
	snap       *snapshot
	graph      *graph
	alpha      float64
	hits       []ranked
	cut        bool // there are more
	embeddings string
	cached     bool
}

// rank returns the ranking for a query, from memory where it is there. It returns a copy.
func (x *Index) rank(ctx context.Context, q *Query) ranking {
	snap, g := x.snap.Load(), x.graph.Load()
	key := answerKey{text: q.Text, snap: snap.number, vectors: x.vectors.current.Load().number}
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

// compute ranks all tools and keeps the first most.
func (x *Index) compute(ctx context.Context, q *Query, snap *snapshot, g *graph, most int) ranking {
	r := ranking{snap: snap, graph: g, alpha: 1}
	a, ok := snap.scratch.Get().(*scratch)
	if !ok {
		return r
	}
	defer func() {
		a.clear()
		snap.scratch.Put(a)
	}()
	heard := x.words.listen(q.Text)
	list := snap.resolve(x.words, x.words.wanted(&heard))
	snap.score(list, a)
	snap.order(list, a)
	r.embeddings = x.fuse(ctx, q.Text, snap, a)
	snap.putBack(x.words, list, a)
	snap.compare(x.words.asks(&heard, list), a)
	context := g.known(q.ContextTools)
	if len(context) > 0 {
		r.alpha = g.alpha()
	}
	r.hits = make([]ranked, 0, len(a.touched))
	for _, doc := range a.touched {
		h := ranked{doc: doc, semantic: round(float64(a.total[doc]))}
		if h.semantic < least {
			continue
		}
		if len(context) > 0 {
			h.graph = round(g.near(context, snap.docs[doc].id))
		}
		h.score = round(r.alpha*h.semantic + (1-r.alpha)*h.graph)
		r.hits = append(r.hits, h)
	}
	slices.SortFunc(r.hits, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.doc, b.doc)) })
	if len(r.hits) > most {
		r.hits, r.cut = slices.Clone(r.hits[:most]), true
	}
	return r
}

// round keeps four decimals of a score, so that what is told and what is sorted by is the
// same.
func round(score float64) float64 { return math.Round(min(max(score, 0), 1)*1e4) / 1e4 }

// allowed returns the hits that the caller may see, as many as he wants.
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

// finish names with each hit what it is used with.
func (r *ranking) finish(q *Query, hits []Hit) {
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

// visible reports whether a tool is there and the caller may see it.
func (r *ranking) visible(q *Query, id string) bool {
	_, there := r.snap.byID[id]
	return there && (q.Allowed == nil || q.Allowed(id))
}

// related puts tools among the hits that are used with them, or with what was used
// before, and that the text did not find. They are as good as what leads to them and as
// near as the graph has it, and at most a third of the answer, which has no more than was
// asked for.
func (r *ranking) related(q *Query, hits []Hit) []Hit {
	found := map[string]bool{}
	for _, h := range r.hits {
		found[r.snap.docs[h.doc].id] = true
	}
	for _, id := range q.ContextTools {
		found[id] = true // whoever used it knows it
	}
	best := map[string]Hit{}
	lead := func(from string, score float64) {
		for _, n := range r.graph.neighbours(from) {
			near := round(n.near)
			h := Hit{ID: n.id, Score: round(score * near), GraphScore: near, Related: true}
			if !found[n.id] && h.Score > best[n.id].Score && r.visible(q, n.id) {
				h.Description = r.snap.docs[r.snap.byID[n.id]].description
				best[n.id] = h
			}
		}
	}
	for _, h := range hits {
		lead(h.ID, h.Score)
	}
	for _, id := range q.ContextTools {
		lead(id, 1-r.alpha)
	}
	extra := make([]Hit, 0, len(best))
	for _, h := range best {
		extra = append(extra, h)
	}
	sortHits(extra)
	extra = extra[:min(len(extra), (q.Limit+2)/3)]
	r.finish(q, extra)
	hits = append(hits, extra...)
	sortHits(hits)
	return hits[:min(len(hits), q.Limit)]
}

func sortHits(hits []Hit) {
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
}
