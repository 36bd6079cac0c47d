package envelope

import (
	"fmt"
	"slices"
	"sort"
)

// maxSpans is how many separate parts of an output may be there at once. Chunks that
// overtake each other make a few; this many are made by somebody who means no good.
const maxSpans = 1024

// chunkField is the member that errors about chunks are about.
const chunkField = "payload.step.output_chunk"

// Assembly puts the chunks of one output together, in whatever order they come. It
// remembers which parts are there and leaves the bytes to its caller. The zero value
// has nothing yet. It is not safe for concurrent use.
type Assembly struct {
	total int64
	spans []Range // sorted, apart from each other, without Total
}

// Resume returns an Assembly that knows a total, 0 for none, and has the parts that
// Parts returned once.
func Resume(total int64, parts []Range) (*Assembly, error) {
	a := &Assembly{}
	for _, p := range parts {
		p.Total = total
		if _, err := a.cover(p); err != nil {
			return nil, err
		}
	}
	a.total = total
	return a, nil
}

// Add takes a chunk and returns the pieces of it that were not there yet, which are
// the caller's to keep: none for a repeated chunk, several where it fills several
// gaps. What came first stays where chunks overlap.
//
// The error is an *Error: the text is not as long as its range says, the range is not
// one, lies beyond the total, or names another total than a chunk before. Nothing
// has changed then.
func (a *Assembly) Add(c Chunk) ([]Chunk, error) {
	if err := c.check(); err != nil {
		return nil, conflict("%s", err)
	}
	if n := int64(len(c.Text)); n != c.To-c.From {
		return nil, conflict("must be as long as the output, %s has %d bytes and the output %d", c.Range, c.To-c.From, n)
	}
	fresh, err := a.cover(c.Range)
	if err != nil {
		return nil, err
	}
	pieces := make([]Chunk, len(fresh))
	for i, r := range fresh {
		pieces[i] = Chunk{Range: r, Text: c.Text[r.From-c.From : r.To-c.From]}
	}
	return pieces, nil
}

// cover marks a range as there and returns the parts of it that were not.
func (a *Assembly) cover(r Range) ([]Range, error) {
	total := max(a.total, r.Total)
	switch {
	case r.From < 0 || r.From >= r.To:
		return nil, conflict("must end behind its beginning, %s does not", r)
	case a.total != 0 && r.Total != 0 && a.total != r.Total:
		return nil, conflict("must keep to one total, %s does not: it was %d before", r, a.total)
	case total != 0 && max(r.To, a.end()) > total:
		return nil, conflict("must end within the total of %d, bytes up to %d were sent", total, max(r.To, a.end()))
	}
	// spans[first:last] touch the range.
	first := sort.Search(len(a.spans), func(i int) bool { return a.spans[i].To >= r.From })
	last := sort.Search(len(a.spans), func(i int) bool { return a.spans[i].From > r.To })
	if len(a.spans)-(last-first) >= maxSpans {
		return nil, conflict("must not leave more than %d gaps", maxSpans)
	}
	fresh, whole := uncovered(r, a.spans[first:last]), Range{From: r.From, To: r.To}
	if first < last {
		whole.From, whole.To = min(r.From, a.spans[first].From), max(r.To, a.spans[last-1].To)
	}
	a.spans = slices.Replace(a.spans, first, last, whole)
	a.total = total
	for i := range fresh {
		fresh[i].Total = total
	}
	return fresh, nil
}

// uncovered returns what of r lies between and beside the spans, which touch it.
func uncovered(r Range, spans []Range) []Range {
	var fresh []Range
	at := r.From
	for _, s := range spans {
		if s.From > at {
			fresh = append(fresh, Range{From: at, To: s.From})
		}
		at = max(at, s.To)
	}
	if at < r.To {
		fresh = append(fresh, Range{From: at, To: r.To})
	}
	return fresh
}

func (a *Assembly) end() int64 {
	if len(a.spans) == 0 {
		return 0
	}
	return a.spans[len(a.spans)-1].To
}

// Total is how long the whole output is, 0 as long as no chunk said so.
func (a *Assembly) Total() int64 { return a.total }

// Parts are the ranges that are there, sorted and apart from each other, for Resume.
func (a *Assembly) Parts() []Range { return slices.Clone(a.spans) }

// Gap returns the first part that is missing; ok is false where there is none. What
// is missing at the end is seen only where the total is known.
func (a *Assembly) Gap() (gap Range, ok bool) {
	at, rest := int64(0), a.spans
	if len(rest) > 0 && rest[0].From == 0 {
		at, rest = rest[0].To, rest[1:]
	}
	if len(rest) > 0 {
		return Range{From: at, To: rest[0].From, Total: a.total}, true
	}
	return Range{From: at, To: a.total, Total: a.total}, at < a.total
}

// Complete returns nil where nothing is missing, else an *Error that names the first
// gap.
func (a *Assembly) Complete() error {
	if gap, ok := a.Gap(); ok {
		return conflict("chunks have a gap: %s never came", gap)
	}
	return nil
}

func conflict(format string, args ...any) error {
	return invalid(Problem{Field: chunkField, Detail: chunkField + " " + fmt.Sprintf(format, args...)})
}
