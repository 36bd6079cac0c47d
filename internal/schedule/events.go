package schedule

import (
	"time"

	"comet/models"
	"comet/store"
)

// The events of schedules. Their key is the schedule's id.
const (
	EventCreated models.EventType = "schedule.created"
	EventChanged models.EventType = "schedule.changed"
	EventDeleted models.EventType = "schedule.deleted"
	// EventRun is sent when a schedule has submitted a task or started a workflow, EventFailed when
	// that was refused.
	EventRun    models.EventType = "schedule.run"
	EventFailed models.EventType = "schedule.failed"
)

// EventData is the data of the events of schedules.
type EventData struct {
	ScheduleID string `json:"schedule_id"`
	Actor      string `json:"actor"`              // the name of the token
	AgentID    string `json:"agent_id,omitempty"` // of the token
	Enabled    bool   `json:"enabled"`
	// DueAt belongs to a run; Missed is how many later due times have passed as well. ID is the task or
	// workflow of the run; Error is the reason if there is none.
	DueAt   time.Time `json:"due_at,omitzero"`
	Missed  int       `json:"missed,omitempty"`
	ID      string    `json:"created_id,omitempty"`
	Error   string    `json:"error,omitempty"`
	NextAt  time.Time `json:"next_at,omitzero"`
	Version int64     `json:"version"`
}

// emit emits an event of a schedule. set adds what is known of a run; it may be nil.
func emit(tx *store.Tx, kind models.EventType, by models.Principal, row Schedule, set func(*EventData)) error {
	data := EventData{ScheduleID: row.ID, Actor: by.Name, Enabled: row.Enabled, NextAt: row.NextAt, Version: row.Version}
	if by.AgentID != nil {
		data.AgentID = *by.AgentID
	}
	if set != nil {
		set(&data)
	}
	return tx.Events().Emit(kind, row.ID, data)
}
