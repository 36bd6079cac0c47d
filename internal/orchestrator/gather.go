package orchestrator

import (
	"bytes"
	"context"
	"crypto/sha256"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/models"
)

// gather looks at a whole after one of its parts has ended: the job's key. What parts that
// have ended gave never changes, so it is read before the whole is locked; of a part that
// ends meanwhile comes another job.
func (o *Orchestrator) gather(ctx context.Context, job *jobs.Job) error {
	part, err := o.store.Task(ctx, job.Key)
	if errs.Is(err, errs.NotFound) || err == nil && part.ParentID == nil {
		return nil // it is not kept any more
	}
	if err != nil {
		return err
	}
	whole, how, parts, err := o.shares(ctx, *part.ParentID)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	out := outcome{over: true, text: "the results together are too long"}
	if len(parts) > 0 {
		out = judge(how.Aggregate, how.Workers, parts)
	}
	return o.do(ctx, func(s *step) error {
		t, err := s.task(whole.ID)
		if err != nil {
			return err
		}
		if err := job.Finish(s.tx); err != nil || t.State.Ended() {
			return err
		}
		return s.gathered(t, parts, out)
	})
}

// shares reads a whole, how it is put together, and its parts. They are nil where what
// they gave is too long to be put together.
func (o *Orchestrator) shares(ctx context.Context, wholeID string) (whole models.Task, how models.Parallel, parts []share, err error) {
	if whole, err = o.store.Task(ctx, wholeID); err != nil {
		return whole, how, nil, err
	}
	in, err := o.store.TaskInput(ctx, wholeID)
	if err != nil {
		return whole, how, nil, err
	}
	wants, err := override(in)
	if err != nil || wants.Parallel == nil {
		return whole, how, nil, err
	}
	how = *wants.Parallel
	tasks, err := o.store.Children(ctx, wholeID)
	room := int64(maxAggregated)
	for _, t := range tasks {
		p := share{Task: t}
		if err == nil && t.State == models.TaskDone && how.Aggregate != models.AggregateFirst {
			keep := how.Aggregate != models.AggregateMajority
			if room -= t.OutputBytes; keep && room < 0 {
				return whole, how, nil, nil
			}
			err = o.readShare(ctx, &p, keep)
		}
		parts = append(parts, p)
	}
	return whole, how, parts, err
}

// readShare reads what a part gave; it is kept, or only what stands for it.
func (o *Orchestrator) readShare(ctx context.Context, p *share, keep bool) error {
	sum, begun := sha256.New(), false
	var blank []byte // white space that counts only where something follows
	err := o.OutputOf(ctx, p.Task, models.StreamResult, 0, func(out models.Output) error {
		data := out.Data
		if keep {
			p.output = append(p.output, data...)
		}
		if !begun {
			data = bytes.TrimLeft(data, " \t\r\n")
		}
		if begun = begun || len(data) > 0; !begun {
			return nil
		}
		rest := bytes.TrimRight(data, " \t\r\n")
		if len(rest) > 0 {
			sum.Write(blank)
			sum.Write(rest)
			blank = nil
		}
		if blank = append(blank, data[len(rest):]...); len(blank) > maxAggregated {
			return tooLong()
		}
		return nil
	})
	p.output, p.sum = bytes.TrimSpace(p.output), [32]byte(sum.Sum(nil))
	return err
}

// gathered does with a whole what its parts say.
func (s *step) gathered(t models.Task, parts []share, out outcome) error {
	before := t
	ended, tokens := 0, int64(0)
	for _, p := range parts {
		if tokens += p.Tokens; p.State.Ended() {
			ended++
		}
	}
	t.Tokens = max(t.Tokens, tokens)
	if !out.over {
		t.Progress = max(t.Progress, 100*ended/len(parts))
		if err := s.emit(models.EventTaskProgress, t, nil); err != nil {
			return err
		}
		return s.save(before, &t)
	}
	agents, err := s.lockParts(t.ID)
	if err != nil {
		return err
	}
	_, p, err := s.lastTerms(t)
	if err == nil {
		err = s.tx.LockWorkers(agents)
	}
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
