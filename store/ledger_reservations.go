package store

import (
	"database/sql"
	"slices"
	"strings"
	"time"

	"comet/models"
)

const (
	reservationColumns = "agent_id, id, path, tokens, state, due, expires_at, created_at, settled, digest"

	overdueQuery = "SELECT " + reservationColumns + " FROM usage_reservations WHERE state = 0 AND due <= ? ORDER BY due LIMIT ?"
	nextDueQuery = "SELECT due FROM usage_reservations WHERE state = 0 ORDER BY due LIMIT 1"
	heldQuery    = "SELECT path, tokens FROM usage_reservations WHERE state = 0"
)

// namedReservations looks up a list of (agent, id).
func namedReservations(list string) string {
	return "SELECT " + reservationColumns + " FROM usage_reservations WHERE (agent_id, id) IN " + list
}

// reservationStates are numbered by their place.
func reservationStates() [4]models.ReservationState {
	return [4]models.ReservationState{models.ReservationHeld, models.ReservationSettled, models.ReservationReleased, models.ReservationExpired}
}

// stateNumber is -1 for what is no state.
func stateNumber(s models.ReservationState) int {
	states := reservationStates()
	return slices.Index(states[:], s)
}

// ReservationKey names a reservation.
type ReservationKey struct{ AgentID, ID string }

// Reservations returns the reservations with these names; unknown ones are left
// out. They stay as they are while the caller holds the agents' accounts.
func (tx *Tx) Reservations(keys []ReservationKey) (map[ReservationKey]models.Reservation, error) {
	out := make(map[ReservationKey]models.Reservation, len(keys))
	args := make([]any, 0, 2*len(keys))
	for _, k := range keys {
		args = append(args, k.AgentID, k.ID)
	}
	err := eachKeys(args, 2, func(list string, args []any) error {
		return tx.query(namedReservations(list), args, func(rows *sql.Rows) error {
			r, err := scanReservation(rows)
			out[ReservationKey{r.AgentID, r.ID}] = r
			return err
		})
	})
	return out, err
}

func scanReservation(rows *sql.Rows) (models.Reservation, error) {
	var r models.Reservation
	var tokens, state, due, expires, created, settled any
	var digest []byte
	if err := rows.Scan(&r.AgentID, &r.ID, &r.Path, &tokens, &state, &due, &expires, &created, &settled, &digest); err != nil {
		return r, err
	}
	r.Tokens, r.State = whole(tokens), reservationStates()[whole(state)]
	r.ExpiresAt, r.CreatedAt = fromMicros(whole(expires)), fromMicros(whole(created))
	if r.State != models.ReservationHeld {
		r.EndedAt = new(fromMicros(whole(due)))
	}
	if r.State == models.ReservationSettled {
		r.SettledTokens = new(whole(settled))
	}
	copy(r.Digest[:], digest)
	return r, nil
}

// SaveReservations writes reservations, new ones and changed ones. at is when those
// that have ended ended.
func (tx *Tx) SaveReservations(list []models.Reservation, at time.Time) error {
	args := make([]any, 0, 10*len(list))
	for _, r := range list {
		due, settled, digest := r.ExpiresAt, int64(0), []byte(nil)
		if r.State != models.ReservationHeld {
			due = at
		}
		if r.EndedAt != nil {
			due = *r.EndedAt
		}
		if r.SettledTokens != nil {
			settled, digest = *r.SettledTokens, r.Digest[:]
		}
		args = append(args, r.AgentID, r.ID, r.Path, r.Tokens, stateNumber(r.State), micros(due),
			micros(r.ExpiresAt), micros(r.CreatedAt), settled, digest)
	}
	return tx.insertRows("INSERT INTO usage_reservations ("+reservationColumns+")",
		"ON CONFLICT (agent_id, id) DO UPDATE SET state = excluded.state, due = excluded.due, settled = excluded.settled, digest = excluded.digest", 10, args)
}

// OverdueReservations returns up to limit held reservations whose lease has ended
// by now, the longest overdue first.
func (tx *Tx) OverdueReservations(now time.Time, limit int) ([]models.Reservation, error) {
	var out []models.Reservation
	err := tx.query(overdueQuery, []any{micros(now), limit}, func(rows *sql.Rows) error {
		r, err := scanReservation(rows)
		out = append(out, r)
		return err
	})
	return out, err
}

// HeldBelow returns the sum of what is held by the agent and by those that stood
// below it when it was granted.
func (tx *Tx) HeldBelow(agentID string) (tokens int64, err error) {
	err = tx.query(heldQuery, nil, func(rows *sql.Rows) error {
		var path string
		var n int64
		if err := rows.Scan(&path, &n); err != nil {
			return err
		}
		if OnPath(path, agentID) {
			tokens += n
		}
		return nil
	})
	return tokens, err
}

// OnPath reports whether the agent is a link of the path.
func OnPath(path, agentID string) bool {
	for link := range strings.SplitSeq(path, "/") {
		if link == agentID {
			return true
		}
	}
	return false
}
