package orchestrator

import (
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator/ranges"
	"comet/models"
)

// MaxOutput is the maximum size of each output stream of an attempt, in bytes.
const MaxOutput = 256 << 20

// maxInlineOutput is the largest result, in bytes, that is stored in the row of its task.
const maxInlineOutput = 4 << 10

// appendLog appends data to the log of an attempt.
func (op *operation) appendLog(t *models.Task, attempt int, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	o := models.OutputChunk{Stream: models.StreamLog, Start: t.LogBytes, Data: data}
	if t.LogBytes = o.End(); t.LogBytes > MaxOutput {
		return errOutputTooLong()
	}
	return op.tx.Tasks().AddOutput(t.ID, attempt, o)
}

// storeChunk stores a chunk of output of the newest step. The first chunk of a new step moves the
// output of the previous one to the log; late chunks of earlier steps are appended to the log.
func (op *operation) storeChunk(t *models.Task, a *models.Attempt, c Chunk) error {
	if c.Step < a.ChunkStep {
		return op.appendLog(t, a.Attempt, c.Data)
	}
	if c.Start < 0 || c.Span < 0 || c.Total < 0 || c.Start > MaxOutput || c.Span > MaxOutput || c.Span > 0 && len(c.Data) == 0 {
		return input.Violated("/output", "chunks", "a chunk of step %d with %d bytes cannot be bytes %d-%d", c.Step, len(c.Data), c.Start, c.Start+c.Span)
	}
	if c.Step > a.ChunkStep {
		if err := op.moveResultToLog(t, *a); err != nil {
			return err
		}
		a.ChunkStep, a.ChunkTotal = c.Step, 0
	}
	o := models.OutputChunk{Stream: models.StreamResult, Start: c.Start, Span: c.Span, Data: c.Data}
	switch {
	case c.Total != 0 && a.ChunkTotal != 0 && c.Total != a.ChunkTotal:
		return input.Violated("/output", "chunks", "the output of step %d is %d bytes long in one message and %d in another", c.Step, a.ChunkTotal, c.Total)
	case c.Total != 0:
		a.ChunkTotal = c.Total
	}
	if a.ChunkTotal != 0 && max(o.End(), t.OutputBytes) > a.ChunkTotal {
		return input.Violated("/output", "chunks", "the output of step %d ends at byte %d, after its total of %d", c.Step, max(o.End(), t.OutputBytes), a.ChunkTotal)
	}
	t.SetNewestAttempt(*a)
	return op.addResultChunk(t, a.Attempt, o)
}

// addResultChunk stores a chunk of a result without the ranges that are stored already.
func (op *operation) addResultChunk(t *models.Task, attempt int, o models.OutputChunk) error {
	if o.End() > MaxOutput {
		return errOutputTooLong()
	}
	if o.End() == o.Start { // it would replace a chunk with data
		return nil
	}
	pieces := []models.OutputChunk{o}
	if o.Start != t.OutputBytes { // not the next chunk in order
		there, err := op.tx.Tasks().OutputPieces(t.ID, attempt, o.Stream)
		if err != nil {
			return err
		}
		if pieces, err = ranges.Subtract(o, there); err != nil {
			return err
		}
	}
	for _, piece := range pieces {
		if err := op.tx.Tasks().AddOutput(t.ID, attempt, piece); err != nil {
			return err
		}
	}
	t.OutputBytes = max(t.OutputBytes, o.End())
	return nil
}

// moveResultToLog appends the collected result to the log.
func (op *operation) moveResultToLog(t *models.Task, a models.Attempt) error {
	if t.OutputBytes == 0 {
		return nil
	}
	length, err := op.tx.Tasks().CompactOutput(t.ID, a.Attempt)
	if err != nil {
		return err
	}
	if t.LogBytes+length > MaxOutput {
		return errOutputTooLong()
	}
	if err := op.tx.Tasks().MoveToLog(t.ID, a.Attempt, t.LogBytes); err != nil {
		return err
	}
	t.LogBytes, t.OutputBytes = t.LogBytes+length, 0
	return nil
}

// finishOutput sets the result of an attempt that ends: data or, if that is empty, the chunks of
// its newest step. Unless the attempt has failed, no chunk may be missing.
func (op *operation) finishOutput(t *models.Task, a models.Attempt, data []byte) error {
	err := op.finishResultChunks(t, a)
	if err != nil && a.State == models.AttemptFailed { // an incomplete result of a failure goes to the log
		err = op.moveResultToLog(t, a)
	}
	if err != nil || len(data) == 0 {
		return err
	}
	if err := op.moveResultToLog(t, a); err != nil {
		return err
	}
	if len(data) <= maxInlineOutput {
		t.Output, t.OutputBytes = data, int64(len(data))
		return nil
	}
	return op.addResultChunk(t, a.Attempt, models.OutputChunk{Stream: models.StreamResult, Data: data})
}

func (op *operation) finishResultChunks(t *models.Task, a models.Attempt) error {
	newest := a.Attempt == t.Attempt
	if newest && a.ChunkTotal == 0 && t.OutputBytes == 0 {
		return nil // there is no output
	}
	pieces, err := op.tx.Tasks().OutputPieces(t.ID, a.Attempt, models.StreamResult)
	if err != nil {
		return err
	}
	end, odd, err := ranges.End(pieces, a.ChunkTotal)
	if err != nil {
		return err
	}
	if t.OutputBytes = end; odd {
		if t.OutputBytes, err = op.tx.Tasks().CompactOutput(t.ID, a.Attempt); err != nil {
			return err
		}
	}
	if newest {
		return nil
	}
	t.LogBytes = 0 // the log of the older attempt counts
	if pieces, err = op.tx.Tasks().OutputPieces(t.ID, a.Attempt, models.StreamLog); err == nil && len(pieces) > 0 {
		t.LogBytes = pieces[len(pieces)-1].End
	}
	return err
}

func errOutputTooLong() error {
	return errs.New(errs.LimitReached, "an attempt may write at most %d bytes of output", MaxOutput).With("limit", MaxOutput)
}
