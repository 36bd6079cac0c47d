package schema

import "time"

// WorkRequest is the payload of a work_request.
type WorkRequest struct {
	// The task's id, chosen by the sender. With the work type `cancel_task`, the task to cancel.
	TaskID string `json:"task_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440004"`
	// The required capability, with or without `custom:`, or `cancel_task`.
	WorkType string `json:"work_type" validate:"required,min=1,max=128" example:"run_playbook"`
	// The input of the task, which comet does not interpret. Only `cancel_task` needs none.
	Parameters map[string]any `json:"parameters,omitempty"`
	Hints      *Hints         `json:"hints,omitempty"`
}

// Hints are limits of a task that the requester knows. Unknown hints are passed to the
// agent.
type Hints struct {
	// How long an attempt may be silent, in seconds, instead of 30. The attempt ends at most five seconds after this time, even if it reports progress.
	MaxDurationSeconds int64 `json:"max_duration_seconds,omitempty" minimum:"1" maximum:"2147483647" example:"300"`
	MaxMemoryMB        int64 `json:"max_memory_mb,omitempty" minimum:"1" maximum:"2147483647" example:"512"` // Maximum memory of the task in MB.
	// The task's budget in tokens.
	MaxTokens int64 `json:"max_tokens,omitempty" minimum:"1" maximum:"1000000000000" example:"2000"`
} // @name WorkHints

// WorkStatusPayload is progress of a task, or a heartbeat, which names an agent and no task.
type WorkStatusPayload struct {
	Progress  *WorkStatus `json:"progress" extensions:"x-one-of"`
	Heartbeat *Heartbeat  `json:"heartbeat" extensions:"x-one-of"`
}

// WorkStatus is the progress of a task.
type WorkStatus struct {
	TaskID          string `json:"task_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440004"` // The task's id.
	Status          string `json:"status" validate:"required" enums:"running,step_completed,paused" example:"running"`       // The state of the task.
	ProgressPercent int    `json:"progress_percent" validate:"required" minimum:"0" maximum:"100" example:"50"`              // The progress in percent.
	Step            *Step  `json:"step,omitempty"`
}

// Step is the current step of a task.
type Step struct {
	Number int    `json:"number" validate:"required" minimum:"0" maximum:"2147483647" example:"2"` // The number of the step.
	Name   string `json:"name" validate:"required" example:"Configure Kuma settings"`              // The name of the step.
	// The output of the step, or the part of it that output_chunk names.
	Output string `json:"output,omitempty" example:"Added uptime monitors: 3"`
	// The position of the output within the whole output: half-open, at most 262,144 bytes.
	OutputChunk string `json:"output_chunk,omitempty" example:"bytes 0-262144 of 524288"`
} // @name WorkStep

// Heartbeat is the report of an agent that it is alive.
type Heartbeat struct {
	AgentID string `json:"agent_id" validate:"required,min=1,max=64" example:"infra-1"`
	Status  string `json:"status" validate:"required" enums:"online,offline,busy" example:"online"` // Whether the agent accepts tasks.
	// In percent.
	Load *int `json:"load,omitempty" minimum:"0" maximum:"100" example:"40"`
	// How many tasks are waiting at the agent.
	Queue *int `json:"queue,omitempty" minimum:"0" maximum:"2147483647" example:"0"`
}

// WorkResult is the outcome of a task.
type WorkResult struct {
	TaskID string `json:"task_id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440004"` // The task's id.
	// comet sends `success` and `failed`.
	Status string `json:"status" validate:"required" enums:"success,failed,completed,cancelled" example:"success"`
	// 0 for success and completed, not 0 for failed.
	ExitCode int64 `json:"exit_code" validate:"required" minimum:"0" maximum:"4294967295" example:"0"`
	// Empty if it was sent in chunks before or is too long for one message.
	Output    string     `json:"output,omitempty" example:"Deployment completed successfully."`
	Resources *Resources `json:"resources_used,omitempty"`
}

// Resources are what a task used.
type Resources struct {
	DurationSeconds int64 `json:"duration_seconds,omitempty" minimum:"0" example:"87"` // Duration in seconds.
	GPUVRAMMB       int64 `json:"gpu_vram_mb,omitempty" minimum:"0" example:"0"`       // GPU memory in MB.
	CPUTimeMS       int64 `json:"cpu_time_ms,omitempty" minimum:"0" example:"12450"`   // CPU time in milliseconds.
	// Charged to the agent.
	Tokens int64 `json:"tokens,omitempty" minimum:"0" maximum:"1000000000000" example:"1200"`
} // @name ResourcesUsed

// WorkError is a failure (Chiffon §Error Codes).
type WorkError struct {
	// 5001 Timeout, 5002 Agent Unavailable, 5003 Invalid Message, 5004 Authentication Failed, 5005
	// Resource Limit Exceeded, 5006 Unsupported Work Type; agents may send others.
	ErrorCode    int           `json:"error_code" validate:"required" minimum:"5001" maximum:"5999" example:"5005"`
	ErrorMessage string        `json:"error_message" validate:"required" example:"Resource limit exceeded"` // Text of the error.
	ErrorContext *ErrorContext `json:"error_context,omitempty"`
}

// ErrorContext is the context of an error: the members that its code requires, and others.
type ErrorContext struct {
	// For 5001.
	AttemptedRetries *int64 `json:"attempted_retries,omitempty" minimum:"0" example:"3"`
	// For 5001.
	LastAttempt *time.Time `json:"last_attempt,omitempty" example:"2026-01-19T04:21:34Z"`
	// For 5002, an agent or a type, `orchestrator` for comet itself; for 5004, the claimed sender.
	AgentID *string `json:"agent_id,omitempty" example:"infra-1"`
	// For 5002; null if there was none.
	LastHeartbeat *time.Time `json:"last_heartbeat,omitempty" extensions:"x-nullable" example:"2026-01-19T04:20:00Z"`
	// For 5003: every problem of the message.
	ValidationError *string `json:"validation_error,omitempty" example:"payload.task_id must be a UUID"`
	// For 5003: the path of the first invalid field, null for the whole message.
	FieldName *string `json:"field_name,omitempty" extensions:"x-nullable" example:"payload.task_id"`
	// For 5004: always `invalid`.
	TokenStatus *string `json:"token_status,omitempty" example:"invalid"`
	// For 5005: the resource and its unit.
	LimitName *string `json:"limit_name,omitempty" example:"gpu_vram_mb"`
	// For 5005.
	Available *int64 `json:"available,omitempty" example:"128"`
	// For 5005.
	Required *int64 `json:"required,omitempty" example:"512"`
	// For 5006.
	WorkTypeRequested *string `json:"work_type_requested,omitempty" example:"generate_code"`
	// For 5006.
	SupportedTypes *[]string `json:"supported_types,omitempty" example:"deploy_service,run_playbook"`
}
