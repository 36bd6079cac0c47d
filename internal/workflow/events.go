package workflow

import "comet/models"

// The events of workflows, whose key is the workflow's id.
const (
	EventStarted     models.EventType = "workflow.started"
	EventStepStarted models.EventType = "workflow.step_started"
	// EventStepEnded is sent when a step has succeeded or failed, was skipped, or its result was lost.
	EventStepEnded models.EventType = "workflow.step_ended"
	// EventReplanned is sent when steps were added.
	EventReplanned models.EventType = "workflow.replanned"
	// EventPaused is sent with the checkpoint that waits for a decision.
	EventPaused  models.EventType = "workflow.paused"
	EventResumed models.EventType = "workflow.resumed"
	EventEnded   models.EventType = "workflow.ended"
	// EventDefinitionSaved and EventDefinitionRemoved are sent for stored workflows; the key is the name.
	EventDefinitionSaved   models.EventType = "workflow.definition_saved"
	EventDefinitionRemoved models.EventType = "workflow.definition_removed"
)

// EventData is the data of the events of workflows.
type EventData struct {
	WorkflowID string `json:"workflow_id"`
	// AgentID is the agent that is charged.
	AgentID string `json:"agent_id"`
	// Status is that of the workflow: running, paused, complete, aborted or error.
	Status string `json:"status"`
	// Pause and CheckpointID belong to workflow.paused, and Layer to a pause after a layer.
	Pause        string `json:"pause,omitempty"`
	CheckpointID string `json:"checkpoint_id,omitempty"`
	Layer        int    `json:"layer,omitempty"`
	// Step and the members below belong to the events of steps.
	Step       string `json:"step,omitempty"`
	StepStatus string `json:"step_status,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	Error      string `json:"error,omitempty"`
	// Tokens are those of all attempts, in a workflow with a budget.
	Tokens int64  `json:"tokens,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Revision and Added, the number of new steps, belong to workflow.replanned.
	Revision int   `json:"revision,omitempty"`
	Added    int   `json:"added,omitempty"`
	Version  int64 `json:"version"`
}
