package journal

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// catchUp has what waits written, for somebody who reads. Where that cannot be done he
// reads without it: it is said of the trace that it may lack its last moment.
func (j *Journal) catchUp(ctx context.Context) {
	soon, done := context.WithTimeout(ctx, j.opts.Patience)
	defer done()
	if err := j.Flush(soon); err != nil && ctx.Err() == nil {
		j.log.Warn("the newest lines are not there to be read", "error", err)
	}
}

// ByNumber returns the newest line with a number that was exchanged with peer in a context
// (PROTOCOL_V5 §6.3: #MSG:M3), or errs.NotFound.
func (j *Journal) ByNumber(ctx context.Context, of int64, peer string, number int) (models.LoggedMessage, error) {
	j.catchUp(ctx)
	return j.store.LoggedMessageByNumber(ctx, of, peer, number)
}

// Of returns up to limit lines about a task behind one of them ("" for the first), in the
// order in which they were said. Those of a part that was handed off are those of its
// source that are as deep as it is, or deeper. A task that no line was said about has
// none.
func (j *Journal) Of(ctx context.Context, t models.Task, after string, limit int) ([]models.LoggedMessage, error) {
	depth := t.Depth
	for t.ParentID != nil {
		source, err := j.store.Task(ctx, *t.ParentID)
		if err != nil {
			return nil, err
		}
		t = source
	}
	name, err := j.store.TaskShortID(ctx, t.ID)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j.catchUp(ctx)
	return j.store.LoggedMessages(ctx, models.LoggedMessageQuery{ShortID: name, Depth: min(depth, models.MaxTaskDepth), After: after, Limit: limit})
}
