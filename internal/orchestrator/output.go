package orchestrator

import (
	"comet/internal/errs"
	"comet/models"
)

// MaxOutput is the most that one attempt may put out into each stream, in bytes.
const MaxOutput = 256 << 20

// takeOutput keeps what a progress brings: the log, and a piece of a result.
func (s *step) takeOutput(t *models.Task, a *models.Attempt, p Progress) error {
	if len(p.Log) > 0 {
		if err := s.addOutput(t, a.Attempt, models.Output{Stream: models.StreamLog, Start: t.LogBytes, Data: p.Log}); err != nil {
			return err
		}
	}
	if p.Chunk == nil {
		return nil
	}
	return s.takeChunk(t, a, *p.Chunk)
}

// takeChunk keeps a piece of the newest step's output. The first piece of a further step
// makes what the one before has put out part of the log; a late piece of an earlier step
// goes there too.
func (s *step) takeChunk(t *models.Task, a *models.Attempt, c Chunk) error {
	if c.Step < a.ChunkStep {
		return s.addOutput(t, a.Attempt, models.Output{Stream: models.StreamLog, Start: t.LogBytes, Data: c.Data})
	}
	before := *a
	if c.Step > a.ChunkStep {
		if err := s.resultToLog(t, *a); err != nil {
			return err
		}
		a.ChunkStep, a.ChunkTotal = c.Step, 0
	}
	switch {
	case c.Total != 0 && a.ChunkTotal != 0 && c.Total != a.ChunkTotal:
		return chunkError("the output of step %d is %d bytes long in one message and %d in another", c.Step, a.ChunkTotal, c.Total)
	case c.Total != 0:
		a.ChunkTotal = c.Total
	}
	if end := c.Start + int64(len(c.Data)); a.ChunkTotal != 0 && max(end, t.OutputBytes) > a.ChunkTotal {
		return chunkError("the output of step %d ends at byte %d, behind its total of %d", c.Step, max(end, t.OutputBytes), a.ChunkTotal)
	}
	if *a != before {
		if err := s.tx.SaveAttempt(*a); err != nil {
			return err
		}
	}
	return s.addOutput(t, a.Attempt, models.Output{Stream: models.StreamResult, Start: c.Start, Data: c.Data})
}

// resultToLog makes what was collected as a result part of the log.
func (s *step) resultToLog(t *models.Task, a models.Attempt) error {
	if t.OutputBytes == 0 {
		return nil
	}
	if t.LogBytes+t.OutputBytes > MaxOutput {
		return tooLong()
	}
	if err := s.tx.MoveToLog(t.ID, a.Attempt, t.LogBytes); err != nil {
		return err
	}
	t.LogBytes, t.OutputBytes = t.LogBytes+t.OutputBytes, 0
	return nil
}

// settleOutput makes the result of an attempt that ends: data, or where that is empty
// the pieces of its newest step, of which none may be missing then.
func (s *step) settleOutput(t *models.Task, a models.Attempt, data []byte) error {
	if a.ChunkTotal != 0 || t.OutputBytes != 0 || a.Attempt != t.Attempt {
		ranges, err := s.tx.OutputRanges(t.ID, a.Attempt, models.StreamResult)
		if err != nil {
			return err
		}
		if t.OutputBytes, err = whole(ranges, a.ChunkTotal); err != nil {
			return err
		}
	}
	if a.Attempt != t.Attempt { // an older one, adopted
		ranges, err := s.tx.OutputRanges(t.ID, a.Attempt, models.StreamLog)
		if err != nil {
			return err
		}
		t.LogBytes = 0
		if len(ranges) > 0 {
			t.LogBytes = ranges[len(ranges)-1][1]
		}
	}
	if len(data) == 0 {
		return nil
	}
	if err := s.resultToLog(t, a); err != nil {
		return err
	}
	return s.addOutput(t, a.Attempt, models.Output{Stream: models.StreamResult, Data: data})
}

// whole returns where the ranges end, which are in order and must have no gap.
func whole(ranges [][2]int64, total int64) (end int64, err error) {
	for _, r := range ranges {
		if r[0] > end {
			return end, chunkError("bytes %d-%d of the output are missing", end, r[0])
		}
		end = max(end, r[1])
	}
	if end < total {
		return end, chunkError("bytes %d-%d of the output are missing", end, total)
	}
	return end, nil
}

// chunkError is for pieces that make no whole.
func chunkError(format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, "/output", "chunks", format, args...)
	return v.Err()
}

func tooLong() error {
	return errs.New(errs.LimitReached, "an attempt may put out at most %d bytes", MaxOutput).With("limit", MaxOutput)
}

// addOutput keeps a piece of a stream, less what is there already.
func (s *step) addOutput(t *models.Task, attempt int, o models.Output) error {
	length := &t.OutputBytes
	if o.Stream == models.StreamLog {
		length = &t.LogBytes
	}
	end := o.Start + int64(len(o.Data))
	if end > MaxOutput {
		return tooLong()
	}
	pieces := []models.Output{o}
	if o.Start != *length { // not simply the next one
		ranges, err := s.tx.OutputRanges(t.ID, attempt, o.Stream)
		if err != nil {
			return err
		}
		pieces = missing(o, ranges)
	}
	for _, piece := range pieces {
		if len(piece.Data) == 0 {
			continue
		}
		if err := s.tx.AddOutput(t.ID, attempt, piece); err != nil {
			return err
		}
	}
	*length = max(*length, end)
	return nil
}

// missing cuts from a piece what the ranges, which are in order, have already.
func missing(o models.Output, ranges [][2]int64) (out []models.Output) {
	at, end := o.Start, o.Start+int64(len(o.Data))
	cut := func(to int64) {
		if to = min(to, end); at < to {
			out = append(out, models.Output{Stream: o.Stream, Start: at, Data: o.Data[at-o.Start : to-o.Start]})
		}
	}
	for _, r := range ranges {
		if r[1] <= at {
			continue
		}
		cut(r[0])
		at = max(at, r[1])
	}
	cut(end)
	return out
}
