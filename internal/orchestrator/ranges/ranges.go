// Package ranges calculates with the ranges of an output that arrives in chunks, in any order and more than once.
package ranges

import (
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// Subtract cuts the stored ranges from a chunk, in order. A chunk whose span differs from
// its length cannot be cut: it is stored completely or not at all.
func Subtract(o models.OutputChunk, there []store.OutputRange) (out []models.OutputChunk, err error) {
	at, end := o.Start, o.End()
	cut := func(to int64) {
		if to = min(to, end); at < to {
			out = append(out, models.OutputChunk{Stream: o.Stream, Start: at, Data: o.Data[at-o.Start : to-o.Start]})
		}
	}
	odd := o.Span != 0 && o.Span != int64(len(o.Data))
	for _, p := range there {
		switch {
		case p.End <= at || odd && p.Start >= end:
			continue
		case odd && p.Start <= at && end <= p.End:
			return nil, nil
		case odd:
			return nil, input.Violated("/output", "chunks", "bytes %d-%d of the output overlap bytes %d-%d and differ in length from their range", o.Start, end, p.Start, p.End)
		}
		cut(p.Start)
		at = max(at, p.End)
	}
	if odd {
		return []models.OutputChunk{o}, nil
	}
	cut(end)
	return out, nil
}

// End returns the end of the chunks, which are in order and must have no gap; odd
// reports whether the span of one differs from its length.
func End(pieces []store.OutputRange, total int64) (end int64, odd bool, err error) {
	for _, p := range pieces {
		if p.Start > end {
			return end, odd, input.Violated("/output", "chunks", "bytes %d-%d of the output are missing", end, p.Start)
		}
		end, odd = max(end, p.End), odd || p.End-p.Start != p.Bytes
	}
	if end < total {
		return end, odd, input.Violated("/output", "chunks", "bytes %d-%d of the output are missing", end, total)
	}
	return end, odd, nil
}
