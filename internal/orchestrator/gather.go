package orchestrator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"strings"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/models"
)

// lateMark stands behind the id of a part in the key of a job that looks at the whole again
// because of what the part used that had ended before.
const lateMark = "/"

// gather looks at a whole after one of its parts has ended: the job's key. What parts that
// have ended gave never changes, so it is read before the whole is locked; of a part that
// ends meanwhile comes another job.
func (o *Orchestrator) gather(ctx context.Context, job *jobs.Job) error {
	id, _, _ := strings.Cut(job.Key, lateMark)
	part, err := o.store.Task(ctx, id)
	if errs.Is(err, errs.NotFound) || err == nil && part.ParentID == nil {
		return nil // it is not kept any more
	}
	if err != nil {
		return err
	}
	how, parts, fit, err := o.shares(ctx, *part.ParentID)
	if errs.Is(err, errs.NotFound) || err == nil && how == nil {
		return nil // the whole is not kept any more, or handed parts of it off
	}
	if err != nil {
		return err
	}
	out := outcome{over: true, text: "the results together are too long"}
	if fit {
		out = judge(how.Aggregate, how.Workers, parts)
	}
	return o.do(ctx, func(s *step) error {
		t, err := s.task(*part.ParentID)
		if err != nil {
			return err
		}
		if err := job.Finish(s.tx); err != nil {
			return err
		}
		if t.State.Ended() { // what came late was used all the same
			return s.tx.AddTokens(t.ID, max(spent(parts)-t.Tokens, 0))
		}
		return s.gathered(t, parts, out)
	})
}

// spent is what parts have used, in tokens.
func spent(parts []share) (tokens int64) {
	for _, p := range parts {
		tokens += p.Tokens
	}
	return tokens
}

// shares reads how a whole is put together, nil where it is not, and its parts, with what
// they gave as far as that is needed now; fit is false where that is too long.
func (o *Orchestrator) shares(ctx context.Context, wholeID string) (how *models.Parallel, parts []share, fit bool, err error) {
	whole, err := o.store.Task(ctx, wholeID)
	if err != nil {
		return nil, nil, false, err
	}
	in, err := o.store.TaskInput(ctx, wholeID)
	if err != nil {
		return nil, nil, false, err
	}
	wants, err := override(in)
	if err != nil || wants.Parallel == nil {
		return nil, nil, false, err
	}
	tasks, err := o.store.Children(ctx, wholeID)
	if err != nil {
		return nil, nil, false, err
	}
	for _, t := range tasks {
		parts = append(parts, share{Task: t})
	}
	if how = wants.Parallel; !whole.State.Ended() {
		fit, err = o.readShares(ctx, how.Aggregate, parts)
	}
	return how, parts, fit, err
}

// readShares reads what the parts gave that have succeeded: for a majority what stands for
// it, and what is put together once nothing is open any more.
func (o *Orchestrator) readShares(ctx context.Context, how models.Aggregate, parts []share) (fit bool, err error) {
	keep, room := how == models.AggregateAll || how == models.AggregateMerge, int64(maxAggregated)
	for _, p := range parts {
		if keep && !p.State.Ended() || how == models.AggregateFirst {
			return true, nil
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.State != models.TaskDone {
			continue
		}
		if room -= p.OutputBytes; keep && room < 0 {
			return false, nil
		}
		if err := o.readShare(ctx, p, keep); err != nil {
			return false, err
		}
	}
	return true, nil
}

// readShare reads what a part gave; it is kept, or only what stands for it, without the
// white space at its ends.
func (o *Orchestrator) readShare(ctx context.Context, p *share, keep bool) error {
	all := sha256.New()
	upTo, begun := all, false // upTo stands for all but the white space at the end
	err := o.OutputOf(ctx, p.Task, models.StreamResult, 0, func(out models.OutputChunk) (err error) {
		data := out.Data
		if keep {
			p.output = append(p.output, data...)
		}
		if !begun {
			data = bytes.TrimLeft(data, blanks)
		}
		if begun = begun || len(data) > 0; !begun {
			return nil
		}
		rest := bytes.TrimRight(data, blanks)
		if len(rest) > 0 {
			all.Write(rest)
			if upTo, err = all.(hash.Cloner).Clone(); err != nil {
				return err
			}
		}
		all.Write(data[len(rest):])
		return nil
	})
	p.output, p.sum = bytes.Trim(p.output, blanks), [32]byte(upTo.Sum(nil))
	return err
}

// blanks are what does not count at the ends of a result.
const blanks = " \t\r\n"

// gathered does with a whole what its parts say.
func (s *step) gathered(t models.Task, parts []share, out outcome) error {
	before := t
	ended := 0
	for _, p := range parts {
		if p.State.Ended() {
			ended++
		}
	}
	t.Tokens = max(t.Tokens, spent(parts))
	if !out.over {
		t.Progress = max(t.Progress, 100*ended/len(parts))
		if err := s.emit(models.EventTaskProgress, t, nil); err != nil {
			return err
		}
		return s.save(before, &t)
	}
	_, p, err := s.lastTerms(t)
	if err != nil {
		return err
	}
	if err := s.cancelParts(t.ID, "what it was for has ended"); err != nil {
		return err
	}
	a, err := s.tx.Attempt(t.ID, t.Attempt)
	if err == nil {
		err = s.concludeWhole(before, &t, a, out, p)
	}
	return err
}

// lockAgents locks several workers, and what they may spend, in the order in which that is
// done everywhere.
func (s *step) lockAgents(ids []string) error {
	if err := s.tx.LockWorkers(ids); err != nil {
		return err
	}
	return s.ledger.LockIn(s.tx, ids)
}

// concludeWhole ends a whole with what its parts gave.
func (s *step) concludeWhole(before models.Task, t *models.Task, a models.Attempt, out outcome, p Policy) error {
	r := report{state: models.AttemptSucceeded, outcome: models.OutcomeSuccess}
	if out.text != "" || out.failed != nil {
		r = report{state: models.AttemptFailed, failure: FailureWork, text: out.text, outcome: models.OutcomeFailed}
	}
	if out.failed != nil {
		t.ExitCode, t.Detail = out.failed.ExitCode, out.failed.Detail
		if r.failure = Failure(out.failed.ErrorCode); r.failure == "" { // it was taken back
			r.failure = FailureUnavailable
		}
	}
	if err := s.endAttempt(t, &a, r, p); err != nil {
		return err
	}
	if r.failure != "" {
		if err := s.fail(t, r.failure, r.text); err != nil {
			return err
		}
		return s.save(before, t)
	}
	if out.taken != nil {
		length, err := s.tx.CopyOutput(out.taken.ID, t.ID, t.Attempt)
		if err != nil {
			return err
		}
		t.OutputBytes, t.ExitCode = length, out.taken.ExitCode
	}
	t.State, t.Progress, t.EndedAt = models.TaskDone, 100, new(s.tx.Now())
	if err := s.settleOutput(t, a, out.output); err != nil {
		return err
	}
	if err := s.emit(models.EventTaskCompleted, *t, func(d *models.TaskChanged) { d.ExitCode, d.Tokens = t.ExitCode, t.Tokens }); err != nil {
		return err
	}
	return s.save(before, t)
}
