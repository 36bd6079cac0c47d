package toolsearch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/toolsearch/graphstore"
	"comet/store"
)

const (
	// embeddingsUsed is Meta.Embeddings of a search that used vectors.
	embeddingsUsed = "used"
	// rankConstant is k of reciprocal rank fusion: the higher, the less the first ranks differ.
	rankConstant = 60
	// minSimilarity is the least similarity of a hit: the part of the way from the mean cosine
	// of all tools to 1. Models differ in which cosine is high.
	minSimilarity = 0.1
	// maxEmbedded is how much of a tool's text is embedded, in bytes.
	maxEmbedded = 4000
	// embedBatch is how many tools are embedded before their vectors are stored.
	embedBatch = 64
)

// vectors holds the vectors of the tools, where an embedder is configured.
type vectors struct {
	store   *store.Store
	opts    *Options
	tools   func() []*document // all tools at the moment
	changed background.Signal  // set when tools have changed
	current atomic.Pointer[vectorSet]

	mu     sync.Mutex
	until  time.Time // the embedder is not called before
	reason string    // Meta.Embeddings until then
}

// vectorSet is all vectors at one moment, normalised to length 1. It is read only.
type vectorSet struct {
	number uint64
	width  int
	by     map[string][]float32 // by digest
}

// digest returns the key under which the vector of a text is stored.
func (v *vectors) digest(text string) string {
	sum := sha256.Sum256([]byte(v.opts.Embedder.Model() + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// failed pauses the embedder and returns Meta.Embeddings for the time of the pause.
func (v *vectors) failed(err error) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until, v.reason = time.Now().Add(v.opts.EmbedPause), "unavailable: "+errs.From(err).Detail
	return v.reason
}

// paused returns Meta.Embeddings while the embedder is paused, "" otherwise.
func (v *vectors) paused() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Now().Before(v.until) {
		return v.reason
	}
	return ""
}

// query returns the vector of a query, or the reason why there is none.
func (v *vectors) query(ctx context.Context, text string, width int) (vector []float32, reason string) {
	if reason := v.paused(); reason != "" {
		return nil, reason
	}
	limited, cancel := context.WithTimeout(ctx, v.opts.EmbedTimeout)
	defer cancel()
	list, err := v.opts.Embedder.Embed(limited, []string{text})
	switch {
	case ctx.Err() != nil: // the caller has gone
		return nil, "unavailable: the request has ended"
	case limited.Err() != nil:
		return nil, v.failed(errs.New(errs.Unavailable, "no response within %s", v.opts.EmbedTimeout))
	case err != nil:
		return nil, v.failed(err)
	case len(list) != 1 || len(list[0]) != width:
		return nil, v.failed(errs.New(errs.Unavailable, "the vector of the query does not have the length of those of the tools"))
	}
	return unit(list[0]), ""
}

// unit returns a vector of length 1 in the same direction.
func unit(v []float32) []float32 {
	sum := 0.0
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	out := make([]float32, len(v))
	if sum > 0 {
		for i, f := range v {
			out[i] = float32(float64(f) / math.Sqrt(sum))
		}
	}
	return out
}

// embeddedText returns the text that the vector of a tool is made of.
func embeddedText(t *Tool) string {
	parts := []string{t.Server, strings.Join(tokenize(t.Name), " "), t.Title, t.Description}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ". ")
	return strings.ToValidUTF8(text[:min(len(text), maxEmbedded)], "")
}

// fuse merges the ranking of the text with the ranking by vectors, by reciprocal rank fusion,
// and returns Meta.Embeddings. A tool that is first in both has score 1. Without a vector of the
// query the scores of the text stay as they are.
func (v *vectors) fuse(ctx context.Context, text string, snap *snapshot, acc *accumulator) string {
	if v.opts.Embedder == nil {
		return ""
	}
	set := v.current.Load()
	if len(set.by) == 0 {
		if reason := v.paused(); reason != "" {
			return reason
		}
		return "unavailable: the tools have no vectors yet"
	}
	q, reason := v.query(ctx, text, set.width)
	if reason != "" {
		return reason
	}
	byText := slices.DeleteFunc(slices.Clone(acc.touched), func(doc int32) bool { return acc.total[doc] < minScore })
	sortByScore(byText, acc.total)
	byVector := set.similar(snap, q)
	acc.reset()
	for _, list := range [][]int32{byText, byVector} {
		for i, doc := range list {
			if acc.total[doc] == 0 {
				acc.touched = append(acc.touched, doc)
			}
			acc.total[doc] += (rankConstant + 1) / (rankConstant + 1 + float32(i)) / 2
		}
	}
	return embeddingsUsed
}

// similar returns the documents with vectors similar to a query's, the most similar first.
func (v *vectorSet) similar(snap *snapshot, query []float32) []int32 {
	cosines := make([]float32, len(snap.docs))
	var out []int32
	mean := float32(0)
	for i, d := range snap.docs {
		vector := v.by[d.digest]
		if vector == nil {
			continue
		}
		for j, f := range vector {
			cosines[i] += f * query[j]
		}
		mean += cosines[i]
		out = append(out, int32(i))
	}
	mean /= float32(max(len(out), 1))
	out = slices.DeleteFunc(out, func(doc int32) bool { return cosines[doc]-mean < minSimilarity*(1-mean) })
	sortByScore(out, cosines)
	return out
}

// sortByScore sorts documents by score, the best first.
func sortByScore(docs []int32, score []float32) {
	slices.SortFunc(docs, func(a, b int32) int { return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(a, b)) })
}

// maintain embeds tools until ctx ends, and marks the vectors as used, so that purge keeps them.
func (v *vectors) maintain(ctx context.Context) {
	failures := background.NewFailureLog(v.opts.Logger)
	background.NewPollLoop(background.PollOptions{Signal: v.changed}, func(ctx context.Context) (time.Duration, error) {
		err := v.embedTools(ctx)
		failures.Report(ctx, "embedding tools", err)
		if err != nil && ctx.Err() == nil {
			v.failed(err)
			return v.opts.EmbedPause, nil
		}
		return retention / 4, nil
	}).Run(ctx)
}

// embedTools reads the vectors of all tools and embeds those that have none. Stored vectors are
// used at once. When the model now makes vectors of another length, all tools are embedded again.
func (v *vectors) embedTools(ctx context.Context) error {
	texts := map[string]string{}
	for _, d := range v.tools() {
		texts[d.digest] = d.embedded
	}
	digests := slices.Sorted(maps.Keys(texts))
	stored, err := graphstore.Vectors(ctx, v.store, digests)
	if err != nil {
		return err
	}
	err = v.embedMissing(ctx, texts, digests, stored)
	if errors.Is(err, errWidth) && len(stored) > 0 {
		err = v.embedMissing(ctx, texts, digests, nil)
	}
	if err != nil {
		return err
	}
	return v.store.Write(ctx, func(tx *store.Tx) error { return graphstore.UseVectors(tx, digests) })
}

// embedMissing embeds, stores and publishes the vectors that are missing.
func (v *vectors) embedMissing(ctx context.Context, texts map[string]string, digests []string, stored []graphstore.Vector) error {
	set := &vectorSet{number: v.current.Load().number, by: map[string][]float32{}}
	if err := set.checkWidth(stored); err != nil {
		return err
	}
	set = v.publish(set, stored)
	var missing []string
	for _, d := range digests {
		if set.by[d] == nil {
			missing = append(missing, d)
		}
	}
	for batch := range slices.Chunk(missing, embedBatch) {
		made, err := v.embed(ctx, batch, texts)
		if err == nil {
			err = set.checkWidth(made)
		}
		if err != nil {
			return err
		}
		if err := v.store.Write(ctx, func(tx *store.Tx) error { return graphstore.SaveVectors(tx, made) }); err != nil {
			return err
		}
		set = v.publish(set, made)
	}
	return nil
}

func (v *vectors) embed(ctx context.Context, digests []string, texts map[string]string) ([]graphstore.Vector, error) {
	list := make([]string, len(digests))
	for i, d := range digests {
		list[i] = texts[d]
	}
	made, err := v.opts.Embedder.Embed(ctx, list)
	if err != nil {
		return nil, err
	}
	if len(made) != len(list) {
		return nil, errs.New(errs.Unavailable, "the embedder returned %d vectors for %d texts", len(made), len(list))
	}
	out := make([]graphstore.Vector, len(made))
	for i, v := range made {
		out[i] = graphstore.Vector{Digest: digests[i], Vector: v}
	}
	return out, nil
}

// errWidth is the error of vectors of different lengths.
var errWidth = errors.New("vectors of different lengths")

// checkWidth returns an error unless more vectors have the length of the others.
func (v *vectorSet) checkWidth(more []graphstore.Vector) error {
	width := v.width
	for _, m := range more {
		width = cmp.Or(width, len(m.Vector))
		if len(m.Vector) != width || width == 0 {
			return errs.Wrap(errs.Unavailable, errWidth, "the vectors of the tools have different lengths")
		}
	}
	return nil
}

// publish adds vectors to those that searches use.
func (v *vectors) publish(before *vectorSet, more []graphstore.Vector) *vectorSet {
	next := &vectorSet{number: before.number + 1, width: before.width, by: maps.Clone(before.by)}
	for _, m := range more {
		next.width, next.by[m.Digest] = len(m.Vector), unit(m.Vector)
	}
	v.current.Store(next)
	return next
}
