package a2a

import (
	"context"
	"slices"

	"comet/internal/events"
	"comet/internal/workflow"
	"comet/models"
)

// taskEvents are the types of the events that a stream follows.
func taskEvents() []models.EventType {
	return []models.EventType{
		events.TaskCreated, events.TaskWaiting, events.TaskAssigned, events.TaskStarted, events.TaskProgress, events.TaskQuestion, events.TaskReplied, events.TaskRetried,
		events.TaskSubtask, events.TaskCompleted, events.TaskFailed, events.TaskCancelled,
	}
}

// endEvents are the types of the last events of tasks.
var endEvents = map[models.TaskState]models.EventType{ //nolint:gochecknoglobals // a constant table
	models.TaskDone: events.TaskCompleted, models.TaskFailed: events.TaskFailed, models.TaskCancelled: events.TaskCancelled,
}

// workflowEvents are the types of the events that the stream of a workflow follows: its own, and questions of its agents.
func workflowEvents() []models.EventType {
	return []models.EventType{
		workflow.EventStarted, workflow.EventStepStarted, workflow.EventStepEnded, workflow.EventPaused, workflow.EventResumed, workflow.EventEnded,
		events.TaskQuestion, events.TaskReplied, events.TaskSubtask,
	}
}

// maxEvents is how many events are read together.
const maxEvents = 100

// nextEvents returns the next events of a task or a workflow, or of an agent of the workflow, but none if there are none within the
// interval of idle. It returns the error of ctx.
func (s *service) nextEvents(ctx context.Context, from *events.Subscription, id string) ([]models.Event, error) {
	wait, stop := context.WithTimeout(ctx, s.opts.Heartbeat)
	defer stop()
	for {
		all, err := from.Next(wait, maxEvents)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case wait.Err() != nil:
			return nil, nil
		case err != nil:
			return nil, err
		}
		var failed error
		own := slices.DeleteFunc(slices.Clone(all), func(e models.Event) bool {
			if e.Key == id || failed != nil || !slices.Contains([]models.EventType{events.TaskQuestion, events.TaskReplied, events.TaskSubtask}, e.Type) {
				return e.Key != id
			}
			is, err := s.Workflows.HasTask(ctx, id, e.Key)
			failed = err
			return !is
		})
		if len(own) > 0 || failed != nil {
			return own, failed
		}
	}
}
