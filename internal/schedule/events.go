package schedule

import (
	"time"

	"comet/models"
	"comet/store"
)

// EventData is the data of the events of schedules.
type EventData struct {
	ScheduleID string    `json:"schedule_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`          // The schedule's id.
	Actor      string    `json:"actor" example:"ops"`                                                 // The name of the token.
	AgentID    string    `json:"agent_id,omitempty" example:"finance-personal"`                       // The agent of the token; absent for none.
	Enabled    bool      `json:"enabled" example:"true"`                                              // Whether the schedule has a next due time.
	DueAt      time.Time `json:"due_at,omitzero" example:"2026-01-10T09:00:00Z"`                      // The due time of a run; absent for other events.
	Missed     int       `json:"missed,omitempty" example:"1"`                                        // Number of later due times that had passed at the run; absent for 0.
	ID         string    `json:"created_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8058"` // The task or workflow of a run.
	Error      string    `json:"error,omitempty" example:"no agent offers web_search"`                // Why a run created none.
	NextAt     time.Time `json:"next_at,omitzero" example:"2026-01-11T09:00:00Z"`                     // The next due time; absent for none.
	Version    int64     `json:"version" example:"2"`                                                 // The version of the schedule.
} // @name ScheduleEvent

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
