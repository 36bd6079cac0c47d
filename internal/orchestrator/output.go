package orchestrator

import (
	"comet/internal/errs"
	"comet/models"
)

// MaxOutput is the most that one attempt may put out into each stream, in bytes.
const MaxOutput = 256 << 20

// storeOutput keeps what a progress brings: the log, and a piece of a result.
func (op *operation) storeOutput(t *models.Task, a *models.Attempt, p Progress) error {
	if err := op.appendLog(t, a.Attempt, p.Log); err != nil || p.Chunk == nil {
		return err
	}
	return op.storeChunk(t, a, *p.Chunk)
}

// appendLog puts something at the end of an attempt's log.
func (op *operation) appendLog(t *models.Task, attempt int, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	o := models.OutputChunk{Stream: models.StreamLog, Start: t.LogBytes, Data: data}
	if t.LogBytes = o.End(); t.LogBytes > MaxOutput {
		return errOutputTooLong()
	}
	return op.tx.AddOutput(t.ID, attempt, o)
}

// storeChunk keeps a piece of the newest step's output. The first piece of a further step
// makes what the one before has put out part of the log; a late piece of an earlier step
// goes there too.
func (op *operation) storeChunk(t *models.Task, a *models.Attempt, c Chunk) error {
	if c.Step < a.ChunkStep {
		return op.appendLog(t, a.Attempt, c.Data)
	}
	if c.Start < 0 || c.Span < 0 || c.Total < 0 || c.Start > MaxOutput || c.Span > MaxOutput || c.Span > 0 && len(c.Data) == 0 {
		return chunkError("a chunk of step %d with %d bytes cannot stand for bytes %d-%d", c.Step, len(c.Data), c.Start, c.Start+c.Span)
	}
	before := *a
	if c.Step > a.ChunkStep {
		if err := op.moveResultToLog(t, *a); err != nil {
			return err
		}
		a.ChunkStep, a.ChunkTotal = c.Step, 0
	}
	o := models.OutputChunk{Stream: models.StreamResult, Start: c.Start, Span: c.Span, Data: c.Data}
	switch {
	case c.Total != 0 && a.ChunkTotal != 0 && c.Total != a.ChunkTotal:
		return chunkError("the output of step %d is %d bytes long in one message and %d in another", c.Step, a.ChunkTotal, c.Total)
	case c.Total != 0:
		a.ChunkTotal = c.Total
	}
	if a.ChunkTotal != 0 && max(o.End(), t.OutputBytes) > a.ChunkTotal {
		return chunkError("the output of step %d ends at byte %d, behind its total of %d", c.Step, max(o.End(), t.OutputBytes), a.ChunkTotal)
	}
	if *a != before {
		if err := op.tx.SaveAttempt(*a); err != nil {
			return err
		}
	}
	return op.addResultChunk(t, a.Attempt, o)
}

// addResultChunk keeps a piece of a result, less what is there already.
func (op *operation) addResultChunk(t *models.Task, attempt int, o models.OutputChunk) error {
	if o.End() > MaxOutput {
		return errOutputTooLong()
	}
	if o.End() == o.Start { // it would stand in the place of a piece that has something
		return nil
	}
	pieces := []models.OutputChunk{o}
	if o.Start != t.OutputBytes { // not simply the next one
		there, err := op.tx.OutputPieces(t.ID, attempt, o.Stream)
		if err != nil {
			return err
		}
		if pieces, err = subtractRanges(o, there); err != nil {
			return err
		}
	}
	for _, piece := range pieces {
		if err := op.tx.AddOutput(t.ID, attempt, piece); err != nil {
			return err
		}
	}
	t.OutputBytes = max(t.OutputBytes, o.End())
	return nil
}

// subtractRanges cuts from a piece what is there already, in order. A piece that has not as
// many bytes as it stands for cannot be cut: it is kept whole or not at all.
func subtractRanges(o models.OutputChunk, there []models.OutputRange) (out []models.OutputChunk, err error) {
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
			return nil, chunkError("bytes %d-%d of the output overlap bytes %d-%d, and are not as many as they are said to be", o.Start, end, p.Start, p.End)
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

// moveResultToLog makes what was collected as a result part of the log.
func (op *operation) moveResultToLog(t *models.Task, a models.Attempt) error {
	if t.OutputBytes == 0 {
		return nil
	}
	length, err := op.tx.CompactOutput(t.ID, a.Attempt)
	if err != nil {
		return err
	}
	if t.LogBytes+length > MaxOutput {
		return errOutputTooLong()
	}
	if err := op.tx.MoveToLog(t.ID, a.Attempt, t.LogBytes); err != nil {
		return err
	}
	t.LogBytes, t.OutputBytes = t.LogBytes+length, 0
	return nil
}

// finishOutput makes the result of an attempt that ends: data, or where that is empty
// the pieces of its newest step, of which none may be missing then unless it has failed.
func (op *operation) finishOutput(t *models.Task, a models.Attempt, data []byte) error {
	err := op.finishResultChunks(t, a)
	if err != nil && a.State == models.AttemptFailed { // what came of a failure's result is told in its log
		err = op.moveResultToLog(t, a)
	}
	if err != nil || len(data) == 0 {
		return err
	}
	if err := op.moveResultToLog(t, a); err != nil {
		return err
	}
	return op.addResultChunk(t, a.Attempt, models.OutputChunk{Stream: models.StreamResult, Data: data})
}

func (op *operation) finishResultChunks(t *models.Task, a models.Attempt) error {
	newest := a.Attempt == t.Attempt
	if newest && a.ChunkTotal == 0 && t.OutputBytes == 0 {
		return nil // there never was one
	}
	pieces, err := op.tx.OutputPieces(t.ID, a.Attempt, models.StreamResult)
	if err != nil {
		return err
	}
	end, odd, err := contiguousEnd(pieces, a.ChunkTotal)
	if err != nil {
		return err
	}
	if t.OutputBytes = end; odd {
		if t.OutputBytes, err = op.tx.CompactOutput(t.ID, a.Attempt); err != nil {
			return err
		}
	}
	if newest {
		return nil
	}
	t.LogBytes = 0 // that of the older attempt counts now
	if pieces, err = op.tx.OutputPieces(t.ID, a.Attempt, models.StreamLog); err == nil && len(pieces) > 0 {
		t.LogBytes = pieces[len(pieces)-1].End
	}
	return err
}

// contiguousEnd returns where the pieces end, which are in order and must have no gap; odd tells
// whether one of them has another length than it stands for.
func contiguousEnd(pieces []models.OutputRange, total int64) (end int64, odd bool, err error) {
	for _, p := range pieces {
		if p.Start > end {
			return end, odd, chunkError("bytes %d-%d of the output are missing", end, p.Start)
		}
		end, odd = max(end, p.End), odd || p.End-p.Start != p.Bytes
	}
	if end < total {
		return end, odd, chunkError("bytes %d-%d of the output are missing", end, total)
	}
	return end, odd, nil
}

// chunkError is for pieces that make no whole.
func chunkError(format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, "/output", "chunks", format, args...)
	return v.Err()
}

func errOutputTooLong() error {
	return errs.New(errs.LimitReached, "an attempt may put out at most %d bytes", MaxOutput).With("limit", MaxOutput)
}
