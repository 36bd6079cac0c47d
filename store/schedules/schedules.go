// Package schedules has the statements on schedules.
package schedules

import (
	"encoding/json"
	"time"

	"comet/models"
	"comet/store"
	"comet/store/columns"
	"comet/store/filter"
)

const (
	rowColumns = "id, token_id, actor, spec, request, next_at, last_at, last_id, last_error, enabled, reason, version, created_at, updated_at"
	// ended is the condition on schedules with a single time that have run.
	ended = `enabled = FALSE AND last_at > 0 AND spec LIKE '{"at"%'`
	// maxText is the longest error or reason that is stored, in bytes.
	maxText = 1000
)

// The events of schedules. Their key is the schedule's id.
const (
	EventCreated models.EventType = "schedule.created"
	EventChanged models.EventType = "schedule.changed"
	EventDeleted models.EventType = "schedule.deleted"
	// EventRun is sent when a schedule has submitted a task or started a workflow, EventFailed when that was refused.
	EventRun    models.EventType = "schedule.run"
	EventFailed models.EventType = "schedule.failed"
)

// Schedule submits a task or starts a workflow whenever it is due, with the authority of its token.
type Schedule struct {
	ID string
	// TokenID and Actor are the id and the name of the owner's token.
	TokenID, Actor string
	Spec           Spec `gorm:"serializer:json"`
	// Request is what it submits or starts, JSON.
	Request json.RawMessage
	// NextAt is when it is due, zero for never.
	NextAt time.Time
	// LastAt is the due time of the last run, zero before the first one. LastID is the id of the task or
	// workflow of that run; LastError is the reason if there is none.
	LastAt            time.Time
	LastID, LastError string
	Enabled           bool
	// Reason is why comet disabled it, "" if comet did not.
	Reason               string
	Version              int64
	CreatedAt, UpdatedAt time.Time
}

// Spec is when a schedule is due. Exactly one of At, EveryMS and Cron is set.
type Spec struct {
	// At is the only time. It is the first member of the JSON form, by which ended schedules are found.
	At time.Time `json:"at,omitzero"`
	// EveryMS is an interval in milliseconds that begins at From.
	EveryMS int64     `json:"every_ms,omitzero"`
	From    time.Time `json:"from,omitzero"`
	// Cron has five fields, in the IANA time zone TimeZone, "" for UTC.
	Cron     string `json:"cron,omitzero"`
	TimeZone string `json:"time_zone,omitzero"`
}

// Insert stores a new schedule.
func Insert(tx *store.Tx, s Schedule) error { return store.Insert(tx, "", s) }

// Get returns a schedule, or errs.NotFound.
func Get(from store.Source, id string) (Schedule, error) {
	return store.Row[Schedule](from, "SELECT "+rowColumns+" FROM schedules WHERE id = ?", id)
}

// Lock locks and returns a schedule, or errs.NotFound.
func Lock(tx *store.Tx, id string) (Schedule, error) {
	return store.Row[Schedule](tx, "SELECT "+rowColumns+" FROM schedules WHERE id = ?"+store.ForUpdate(tx), id)
}

// List returns up to limit schedules of a token, of all tokens for "", in the order of creation, that follow the id after.
func List(from store.Source, tokenID, after string, limit int) ([]Schedule, error) {
	var where filter.Clause
	where.Optional("token_id = ?", tokenID)
	where.And("id > ?", after)
	return store.Rows[Schedule](from, "SELECT "+rowColumns+" FROM schedules"+where.SQL()+" ORDER BY id LIMIT ?", append(where.Args, limit)...)
}

// Count returns the number of schedules of a token without those that have ended. Transactions that count
// the schedules of the same stored token run one after the other.
func Count(tx *store.Tx, tokenID string) (int, error) {
	if _, err := store.Rows[string](tx, "SELECT id FROM tokens WHERE id = ?"+store.ForUpdate(tx), tokenID); err != nil {
		return 0, err
	}
	return store.Row[int](tx, "SELECT count(*) FROM schedules WHERE token_id = ? AND NOT ("+ended+")", tokenID)
}

// Save writes a schedule if its version is the stored one, and increments the version. ok is false if it
// is not.
func Save(tx *store.Tx, s *Schedule) (ok bool, err error) {
	s.UpdatedAt, s.LastError, s.Reason = tx.Now(), columns.Text(s.LastError, maxText), columns.Text(s.Reason, maxText)
	n, err := tx.Exec(`UPDATE schedules SET spec = ?, next_at = ?, last_at = ?, last_id = ?, last_error = ?, enabled = ?, reason = ?, version = version + 1, updated_at = ?
		WHERE id = ? AND version = ?`, s.Spec, s.NextAt, s.LastAt, s.LastID, s.LastError, s.Enabled, s.Reason, s.UpdatedAt, s.ID, s.Version)
	s.Version++
	return n > 0, err
}

// Delete deletes a schedule.
func Delete(tx *store.Tx, id string) error {
	return tx.Run("DELETE FROM schedules WHERE id = ?", id)
}

// Purge deletes up to limit schedules that ended before a time.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM schedules WHERE id IN (SELECT id FROM schedules WHERE "+ended+" AND updated_at < ? LIMIT ?)", before, limit)
}
