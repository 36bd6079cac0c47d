package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// MaxOutput is the most that one attempt may put out into each stream, in bytes.
const MaxOutput = 256 << 20

// Progress is what an agent says while it works.
type Progress struct {
	// Percent is 0 to 100, nil where it was not said.
	Percent *int
	Step    int
	Name    string
	// Output is a piece of a stream. A negative Start puts it at the end.
	Output *models.Output
}

// Accept notes that an agent has its attempt and works on it; any progress says so too.
// It returns errs.NotFound for a task the agent never had and errs.TaskState for an
// attempt that has ended.
func (o *Orchestrator) Accept(ctx context.Context, agentID, taskID string) (models.Task, error) {
	return o.Progress(ctx, agentID, taskID, Progress{})
}

// Progress notes how far an agent is, and that it is alive: the attempt's deadline
// moves. It returns what Accept returns, and errs.LimitReached for output that is too
// long, of which nothing is kept.
func (o *Orchestrator) Progress(ctx context.Context, agentID, taskID string, p Progress) (out models.Task, err error) {
	err = o.do(ctx, func(s *step) error {
		out, err = s.progress(agentID, taskID, p)
		return err
	})
	return out, err
}

func (s *step) progress(agentID, taskID string, p Progress) (models.Task, error) {
	t, err := s.task(taskID)
	if err != nil {
		return t, err
	}
	a, err := s.current(t, agentID)
	if err != nil {
		return t, err
	}
	if t.State.Ended() || a.State.Ended() || a.Attempt != t.Attempt {
		return t, over(t)
	}
	before := t
	_, policy, err := s.terms(t)
	if err != nil {
		return t, err
	}
	if err := s.accept(&before, &t, &a); err != nil {
		return t, err
	}
	if p.Output != nil {
		if err := s.addOutput(&t, a.Attempt, *p.Output); err != nil {
			return t, err
		}
	}
	told := p.Percent != nil || p.Step != 0 || p.Name != ""
	if p.Percent != nil {
		t.Progress = *p.Percent
	}
	if p.Step != 0 || p.Name != "" {
		t.Step, t.StepName = p.Step, p.Name
	}
	if t.Waits == models.WaitNothing {
		t.Deadline = s.tx.Now().Add(policy.Timeout)
	}
	if told {
		err = s.emit(models.EventTaskProgress, t, func(d *models.TaskChanged) { d.Step, d.StepName = t.Step, t.StepName })
	}
	if err != nil {
		return t, err
	}
	return t, s.save(before, &t)
}

// accept makes an assigned attempt a running one. It is a step of its own, which before
// has then behind it.
func (s *step) accept(before, t *models.Task, a *models.Attempt) error {
	if a.State != models.AttemptAssigned {
		return nil
	}
	now := s.tx.Now()
	a.State, a.AcceptedAt = models.AttemptRunning, &now
	if err := s.tx.SaveAttempt(*a); err != nil {
		return err
	}
	if err := s.tx.Untell(t.ID, a.Attempt); err != nil { // it has it
		return err
	}
	if t.State = models.TaskRunning; t.StartedAt == nil {
		t.StartedAt = &now
	}
	if err := s.tx.SaveTask(*before, t); err != nil {
		return err
	}
	*before = *t
	return s.emit(models.EventTaskStarted, *t, nil)
}

// addOutput keeps a piece of a stream, less what is there already.
func (s *step) addOutput(t *models.Task, attempt int, o models.Output) error {
	length := &t.OutputBytes
	if o.Stream == models.StreamLog {
		length = &t.LogBytes
	}
	if o.Start < 0 {
		o.Start = *length
	}
	end := o.Start + int64(len(o.Data))
	if end > MaxOutput {
		return errs.New(errs.LimitReached, "an attempt may put out at most %d bytes", MaxOutput).With("limit", MaxOutput)
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

// replaceOutput makes this the whole result of an attempt.
func (s *step) replaceOutput(t *models.Task, attempt int, data []byte) error {
	if len(data) == 0 { // it came in pieces before, or there is none
		return nil
	}
	if t.OutputBytes > 0 {
		if err := s.tx.DropOutput(t.ID, attempt, models.StreamResult); err != nil {
			return err
		}
	}
	t.OutputBytes = 0
	return s.addOutput(t, attempt, models.Output{Stream: models.StreamResult, Data: data})
}
