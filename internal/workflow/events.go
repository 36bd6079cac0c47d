package workflow

import (
	"comet/internal/events"
	"comet/models"
)

// The events of workflows, whose key is the workflow's id.
const (
	EventStarted = events.WorkflowStarted
	EventPaused  = events.WorkflowPaused
	EventResumed = events.WorkflowResumed
	EventEnded   = events.WorkflowEnded

	EventStepStarted models.EventType = "workflow.step_started"
	// EventStepEnded is sent when a step has succeeded or failed, was skipped, or its result was lost.
	EventStepEnded models.EventType = "workflow.step_ended"
	// EventReplanned is sent when steps were added.
	EventReplanned models.EventType = "workflow.replanned"
	// EventDefinitionSaved and EventDefinitionRemoved are sent for stored workflows; the key is the name.
	EventDefinitionSaved   models.EventType = "workflow.definition_saved"
	EventDefinitionRemoved models.EventType = "workflow.definition_removed"
)

// EventData is the data of the events of workflows.
type EventData struct {
	WorkflowID string `json:"workflow_id" example:"wf_034530bbngmsf6j6dh3xtmbr4g"` // The workflow's id.
	AgentID    string `json:"agent_id" example:"finance-personal"`                 // The agent that is charged.
	// Who can approve tasks; absent if the token that started the workflow can.
	Approver string `json:"approver,omitempty" enums:"other,human" example:"other"`
	Status   string `json:"status" enums:"running,paused,complete,aborted,error" example:"paused"`      // The state of the workflow.
	Pause    string `json:"pause,omitempty" enums:"layer,approval,uncertain,budget" example:"approval"` // What a paused workflow waits for.
	// The checkpoint that waits for a decision; only of a paused workflow.
	CheckpointID string `json:"checkpoint_id,omitempty" example:"cp_034530bbngmsf6j6dh3xtmbr50"`
	Layer        int    `json:"layer,omitempty" example:"1"`                                                             // Number of the completed layer; only for the pause `layer`.
	Step         string `json:"step,omitempty" example:"t1"`                                                             // The task, in the events of tasks.
	StepStatus   string `json:"step_status,omitempty" enums:"running,success,error,skipped,uncertain" example:"success"` // The state of the task.
	Attempt      int    `json:"attempt,omitempty" example:"1"`                                                           // Number of the attempt of the task, from 1.
	DurationMS   int64  `json:"duration_ms,omitempty" example:"120"`                                                     // Duration of the attempt in milliseconds.
	Error        string `json:"error,omitempty" example:"the disk is full"`                                              // Why the task failed.
	Tokens       int64  `json:"tokens,omitempty" example:"120"`                                                          // The tokens of all attempts of the task, in a workflow with a budget.
	Reason       string `json:"reason,omitempty" example:"not needed"`                                                   // Why the workflow ended, or why tasks were added.
	Revision     int    `json:"revision,omitempty" example:"1"`                                                          // The number of replans; only in workflow.replanned.
	Added        int    `json:"added,omitempty" example:"2"`                                                             // Number of added tasks; only in workflow.replanned.
	Version      int64  `json:"version" example:"3"`                                                                     // The version of the workflow; it increases with each change.
} // @name WorkflowEvent
