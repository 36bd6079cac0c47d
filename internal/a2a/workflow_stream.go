package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/workflow"
	"comet/models"
)

// followWorkflow sends the events of a workflow until it has ended or ctx ends.
func (st *stream) followWorkflow(ctx context.Context, idle func() error) error {
	for seen := true; ; {
		if seen {
			current, err := st.load(ctx, models.System(), st.f.id())
			if err != nil {
				return err
			}
			if current.ended() {
				if ended, err := st.endUnseen(ctx, current, workflow.EventEnded); ended || err != nil {
					return err
				}
			}
		}
		batch, err := st.nextEvents(ctx, st.sub, st.f.id())
		if err != nil {
			return err
		}
		for _, e := range batch {
			if ended, err := st.handleWorkflow(ctx, e); ended || err != nil {
				return err
			}
		}
		if seen = len(batch) == 0; seen {
			if err := idle(); err != nil {
				return err
			}
		}
	}
}

// handleWorkflow sends an event of the workflow, and reports whether the workflow has ended.
func (st *stream) handleWorkflow(ctx context.Context, e models.Event) (ended bool, err error) {
	before := st.at.String()
	st.at.position = e.Position
	if e.Key != st.f.id() {
		return false, st.handleAgent(ctx, e)
	}
	var d workflow.EventData
	if err := json.Unmarshal(e.Data, &d); err != nil || d.Version <= st.at.version { // the snapshot contains it
		return false, err
	}
	st.at.version = 0
	switch {
	case e.Type == workflow.EventPaused, e.Type == workflow.EventEnded:
		if st.f, err = st.load(ctx, models.System(), st.f.id()); err != nil {
			return false, err
		}
	case e.Type == workflow.EventStepEnded && d.StepStatus == "success":
		if err := st.emitStep(ctx, before, d.Step); err != nil {
			return false, err
		}
	}
	out, err := st.workflowUpdate(ctx, st.f, e, d)
	if err != nil || out.Status.State == st.state && d.Step == "" {
		return false, err
	}
	if d.Step != "" && st.state == a2a.TaskStateInputRequired { // an agent may still ask
		_, asking, err := st.awaitingReply(ctx, st.f)
		if err != nil {
			return false, err
		}
		if asking {
			out.Status.State = st.state
		}
	}
	st.state = out.Status.State
	return e.Type == workflow.EventEnded, st.emit(st.at.String(), out)
}

// emitStep sends the result of a step with the id of the event before, because its status follows.
func (st *stream) emitStep(ctx context.Context, at, step string) error {
	result, err := st.Workflows.Result(ctx, models.System(), st.f.id(), step)
	if err != nil {
		return err
	}
	return st.emit(at, &a2a.TaskArtifactUpdateEvent{
		TaskID: st.f.info().TaskID, ContextID: st.f.contextID(), LastChunk: true, Artifact: stepArtifact(st.f.id(), step, result),
	})
}

// handleAgent sends a question of an agent of the workflow, or an update when no question is open any more.
func (st *stream) handleAgent(ctx context.Context, e models.Event) error {
	var d events.TaskData
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return err
	}
	out := &a2a.TaskStatusUpdateEvent{TaskID: st.f.info().TaskID, ContextID: st.f.contextID()}
	out.Status = a2a.TaskStatus{State: a2a.TaskStateWorking, Timestamp: stamp(e.At)}
	if d.Question != "" {
		out.Status.State = a2a.TaskStateInputRequired
		out.Status.Message = questionMessage(st.f.info(), cmp.Or(d.SubtaskID, e.Key), e.At, orchestrator.Question{Text: d.Question, Options: d.Options})
	} else if _, asking, err := st.awaitingReply(ctx, st.f); err != nil || asking {
		return err
	}
	if out.Status.State == st.state && out.Status.Message == nil || st.snapshot != nil && asksSame(st.snapshot.Status, out.Status) {
		return nil
	}
	st.state = out.Status.State
	return st.emit(st.at.String(), out)
}

// workflowUpdate returns the status that an event of a workflow reports. A pause that has its decision already has no question.
func (s *service) workflowUpdate(ctx context.Context, f found, e models.Event, d workflow.EventData) (*a2a.TaskStatusUpdateEvent, error) {
	out := &a2a.TaskStatusUpdateEvent{TaskID: f.info().TaskID, ContextID: f.contextID()}
	out.Status = a2a.TaskStatus{State: workflowState(d.Status), Timestamp: stamp(e.At)}
	switch {
	case d.Step != "":
		out.Metadata = map[string]any{"step": d.Step, "step_status": d.StepStatus}
		text := d.Step + ": " + d.StepStatus
		if d.Error != "" {
			text += ": " + d.Error
		}
		out.Status.Message = agentText(f.id()+"-step-"+strconv.FormatInt(d.Version, 10)+"-"+d.Step, text, f.info())
	case e.Type == workflow.EventEnded, e.Type == workflow.EventPaused && f.flow.CheckpointID == d.CheckpointID:
		status, err := s.workflowStatus(ctx, f)
		out.Status.Message = status.Message
		return out, err
	}
	return out, nil
}
