package models

import (
	"encoding/json"
	"time"
)

// Schedule submits a task or starts a workflow whenever it is due, with the authority of its token.
type Schedule struct {
	ID string
	// TokenID and Actor are the id and the name of the owner's token.
	TokenID, Actor string
	Spec           ScheduleSpec `gorm:"serializer:json"`
	// Request is what it submits or starts, JSON of package schedule.
	Request json.RawMessage
	// NextAt is when it is due, zero for never.
	NextAt time.Time
	// LastAt is when the last run was due, zero before the first. LastID is the id of the task or
	// workflow of that run, and LastError why there is none.
	LastAt            time.Time
	LastID, LastError string
	Enabled           bool
	// Reason is why comet has disabled it, "" if it has not.
	Reason               string
	Version              int64
	CreatedAt, UpdatedAt time.Time
}

// ScheduleSpec is when a schedule is due. Exactly one of At, EveryMS and Cron is set.
type ScheduleSpec struct {
	// At is the only time. It is the first member of the JSON form, by which ended schedules are found.
	At time.Time `json:"at,omitzero"`
	// EveryMS is an interval in milliseconds that begins at From.
	EveryMS int64     `json:"every_ms,omitzero"`
	From    time.Time `json:"from,omitzero"`
	// Cron has five fields, in the IANA time zone TimeZone, "" for UTC.
	Cron     string `json:"cron,omitzero"`
	TimeZone string `json:"time_zone,omitzero"`
}
