package toolsearch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// embeddingsUsed is what Meta.Embeddings says where they counted.
	embeddingsUsed = "used"
	// wordsCount is what the words count where there are vectors, too; the vectors count
	// the rest. A sum keeps what the scores say of how good a hit is, which a fusion of
	// ranks does not, and the words remain what decides between two names.
	wordsCount = 0.6
	// maxEmbedded is how much of a tool's text is embedded, in bytes.
	maxEmbedded = 4000
	// embedBatch is how many tools are embedded before their vectors are kept.
	embedBatch = 64
)

// vectors are those of the tools, where an embedder is configured.
type vectors struct {
	embedder       Embedder
	timeout, pause time.Duration
	changed        chan struct{} // has one when tools have changed
	current        atomic.Pointer[vectorSet]
	mu             sync.Mutex
	until          time.Time // the embedder is left alone
	reason         string
}

// vectorSet is all vectors at one moment, of length 1. It is read only.
type vectorSet struct {
	number uint64
	width  int
	by     map[string][]float32 // by digest
}

func (v *vectors) init(o Options) {
	v.embedder, v.timeout, v.pause = o.Embedder, o.EmbedTimeout, o.EmbedPause
	v.changed = make(chan struct{}, 1)
	v.current.Store(&vectorSet{})
}

func (v *vectors) wake() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// digest is under what the vector of a text is kept.
func (v *vectors) digest(text string) string {
	sum := sha256.Sum256([]byte(v.embedder.Model() + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

// failed has the embedder left alone for a while, and returns what is said meanwhile.
func (v *vectors) failed(err error) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until, v.reason = time.Now().Add(v.pause), "unavailable: "+errs.From(err).Detail
	return v.reason
}

// paused returns why the embedder is left alone, "" where it is not.
func (v *vectors) paused() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Now().Before(v.until) {
		return v.reason
	}
	return ""
}

// query returns the vector of a query, or says why there is none.
func (v *vectors) query(ctx context.Context, text string, width int) ([]float32, string) {
	if reason := v.paused(); reason != "" {
		return nil, reason
	}
	soon, done := context.WithTimeout(ctx, v.timeout)
	defer done()
	list, err := v.embedder.Embed(soon, []string{text})
	switch {
	case ctx.Err() != nil: // who asked has gone
		return nil, "unavailable: the request has ended"
	case soon.Err() != nil:
		return nil, v.failed(errs.New(errs.Unavailable, "no answer within %s", v.timeout))
	case err != nil:
		return nil, v.failed(err)
	case len(list) != 1 || len(list[0]) != width:
		return nil, v.failed(errs.New(errs.Unavailable, "the vector of the query has another length than those of the tools"))
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

// fuse adds to the scores of the words how near the vectors of the tools are to that of
// the text, and returns what Meta.Embeddings says. Models differ in which cosine is a high
// one: what counts is how much of the way from the mean of all tools to 1 a tool has come.
func (x *Index) fuse(ctx context.Context, text string, snap *snapshot, a *scratch) string {
	if x.opts.Embedder == nil {
		return ""
	}
	set := x.vectors.current.Load()
	if len(set.by) == 0 {
		if reason := x.vectors.paused(); reason != "" {
			return reason
		}
		return "unavailable: the tools have no vectors yet"
	}
	q, reason := x.vectors.query(ctx, text, set.width)
	if reason != "" {
		return reason
	}
	cosines, mean, n := make([]float32, len(snap.docs)), float32(0), 0
	for i, d := range snap.docs {
		v := set.by[d.digest]
		if v == nil {
			continue
		}
		for j, f := range v {
			cosines[i] += f * q[j]
		}
		mean += cosines[i]
		n++
	}
	if n == 0 {
		return "unavailable: the tools have no vectors yet"
	}
	mean /= float32(n)
	for i, d := range snap.docs {
		if a.total[i] > 0 {
			a.total[i] *= wordsCount
		}
		if near := (cosines[i] - mean) / (1 - mean + 1e-6); set.by[d.digest] != nil && near > 0 {
			if a.total[i] == 0 {
				a.touched = append(a.touched, int32(i))
			}
			a.total[i] += (1 - wordsCount) * min(near, 1)
		}
	}
	return embeddingsUsed
}

// keepVectors has vectors made of the tools until ctx ends.
func (x *Index) keepVectors(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.vectors.changed:
		case <-again.C:
		}
		wait := x.opts.Keep / 4 // to say that they are in use
		if err := x.embedTools(ctx); err != nil && ctx.Err() == nil {
			x.log.Warn("tools cannot be embedded, which is tried again", "error", err)
			x.vectors.failed(err)
			wait = x.opts.EmbedPause
		}
		again.Reset(wait)
	}
}

// embedTools reads the vectors of all tools, and has those made that are missing. What is
// there already counts at once. Where the model makes others than it did, all are made anew.
func (x *Index) embedTools(ctx context.Context) error {
	texts := map[string]string{}
	for _, d := range x.snap.Load().docs {
		texts[d.digest] = d.text
	}
	digests := slices.Sorted(maps.Keys(texts))
	kept, err := x.store.ToolVectors(ctx, digests)
	if err != nil {
		return err
	}
	err = x.complete(ctx, texts, digests, kept)
	if errors.Is(err, errWidth) && len(kept) > 0 {
		err = x.complete(ctx, texts, digests, nil)
	}
	if err != nil {
		return err
	}
	return x.store.Write(ctx, func(tx *store.Tx) error { return tx.UseToolVectors(digests) })
}

// complete has made, kept and shown what is missing of the vectors.
func (x *Index) complete(ctx context.Context, texts map[string]string, digests []string, kept []models.ToolVector) error {
	set := &vectorSet{number: x.vectors.current.Load().number, by: map[string][]float32{}}
	if err := set.fits(kept); err != nil {
		return err
	}
	set = x.show(set, kept)
	var missing []string
	for _, d := range digests {
		if set.by[d] == nil {
			missing = append(missing, d)
		}
	}
	for some := range slices.Chunk(missing, embedBatch) {
		made, err := x.embed(ctx, some, texts)
		if err == nil {
			err = set.fits(made)
		}
		if err != nil {
			return err
		}
		if err := x.store.Write(ctx, func(tx *store.Tx) error { return tx.SaveToolVectors(made) }); err != nil {
			return err
		}
		set = x.show(set, made)
	}
	return nil
}

func (x *Index) embed(ctx context.Context, digests []string, texts map[string]string) ([]models.ToolVector, error) {
	list := make([]string, len(digests))
	for i, d := range digests {
		list[i] = texts[d]
	}
	made, err := x.opts.Embedder.Embed(ctx, list)
	if err != nil {
		return nil, err
	}
	if len(made) != len(list) {
		return nil, errs.New(errs.Unavailable, "the embedder made %d vectors of %d texts", len(made), len(list))
	}
	out := make([]models.ToolVector, len(made))
	for i, v := range made {
		out[i] = models.ToolVector{Digest: digests[i], Vector: v}
	}
	return out, nil
}

// errWidth is what vectors of different lengths end with.
var errWidth = errors.New("vectors of different lengths")

// fits returns an error unless more vectors have one length, which is that of the others.
func (v *vectorSet) fits(more []models.ToolVector) error {
	width := v.width
	for _, m := range more {
		if width == 0 {
			width = len(m.Vector)
		}
		if len(m.Vector) != width || width == 0 {
			return errs.Wrap(errs.Unavailable, errWidth, "the vectors of the tools have different lengths")
		}
	}
	return nil
}

// show has more vectors count, and returns all that do.
func (x *Index) show(before *vectorSet, more []models.ToolVector) *vectorSet {
	next := &vectorSet{number: before.number + 1, width: before.width, by: maps.Clone(before.by)}
	for _, m := range more {
		next.width, next.by[m.Digest] = len(m.Vector), unit(m.Vector)
	}
	x.vectors.current.Store(next)
	return next
}
