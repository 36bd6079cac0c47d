package store

import (
	"database/sql"
	"slices"
	"strings"
	"time"

	"comet/models"
)

const factColumns = "agent_id, at, id, path, tokens, model, kind, task_id, request_id, reservation_id, digest"

// LedgerKey names a reservation of an agent by its id, or a fact by the request_id of its caller.
type LedgerKey struct{ AgentID, ID string }

// RecordedFacts returns the facts that were recorded under these names.
func (r LedgerReader) RecordedFacts(keys []LedgerKey) (map[LedgerKey]models.Fact, error) {
	facts, err := listIn(r.from, keys, factDest, namedFacts)
	return byKey(facts, func(f models.Fact) LedgerKey { return LedgerKey{f.AgentID, f.RequestID} }), err
}

const namedFacts = "SELECT " + factColumns + " FROM usage_facts WHERE request_id <> '' AND (agent_id, request_id) IN (keys)"

// factDest returns the scan targets of factColumns.
func factDest(f *models.Fact) []any {
	return []any{
		&f.AgentID, ScanTime{&f.At}, &f.ID, &f.Path, &f.Tokens, &f.Model, &f.Kind, &f.TaskID, &f.RequestID, &f.ReservationID, scanHash{&f.Digest},
	}
}

// InsertFacts stores facts. It returns errs.Conflict for a request_id that is taken.
func (tx Ledger) InsertFacts(facts []models.Fact) error {
	args := make([]any, 0, 11*len(facts))
	for _, f := range facts {
		args = append(args, f.AgentID, Micros(f.At), f.ID, f.Path, f.Tokens, f.Model, f.Kind, f.TaskID, f.RequestID, f.ReservationID, f.Digest[:])
	}
	return tx.insertRows("INSERT INTO usage_facts ("+factColumns+")", "", 11, args)
}

// AddToWindows adds the tokens of facts to the windows that they count in: sums of use of an agent,
// in an hour, on a chain of ancestors. The caller has locked the agents' accounts. It returns
// errs.Conflict for an unknown agent.
func (tx Ledger) AddToWindows(facts []models.Fact) error {
	type window struct {
		agentID string
		hour    int64
		path    string
	}
	sums := map[window]int64{}
	for _, f := range facts {
		sums[window{f.AgentID, hour(f.At), f.Path}] += f.Tokens
	}
	args := make([]any, 0, 4*len(sums))
	for w, tokens := range sums {
		args = append(args, w.agentID, w.hour, w.path, tokens)
	}
	return tx.insertRows("INSERT INTO usage_windows (agent_id, hour, path, tokens)",
		"ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = usage_windows.tokens + excluded.tokens", 4, args)
}

// SubtreeUsed returns what was used in a day, in days since 1970 UTC, by the agent
// and by those that stood below it then.
func (r LedgerReader) SubtreeUsed(of models.Spender, day int64) (int64, error) {
	query, args := subtreeUsed(of, day)
	return value[int64](r.from, query, args...)
}

// subtreeUsed sums the windows of a day whose path holds the agent: its own, and
// those below it. A path is nova, an L1, an L2 and an L3, so the agent's level says
// where in the path it stands. What lies below an L1 is one range of paths, and what
// lies below an L2 is one under each L1 it may have stood under that day.
func subtreeUsed(of models.Spender, day int64) (query string, args []any) {
	if of.Level == models.LevelSystem {
		return "SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE hour / 24 = ?", []any{day}
	}
	query = "SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= ? AND hour < ?"
	args = []any{of.ID, day * 24, (day + 1) * 24}
	switch of.Level {
	case models.LevelOrchestrator:
		path := models.RootAgentID + "/" + of.ID
		query = "SELECT (" + query + ") + (SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE hour / 24 = ? AND path >= ? AND path < ?)"
		args = append(args, day, path+"/", path+"0") // "0" follows "/"
	case models.LevelSpecialist:
		query = "SELECT (" + query + `) + (SELECT coalesce(sum(w.tokens), 0) FROM agents a CROSS JOIN usage_windows w
			WHERE a.level = 1 AND w.hour / 24 = ?
			AND w.path >= '` + models.RootAgentID + `/' || a.id || ? AND w.path < '` + models.RootAgentID + `/' || a.id || ?)`
		args = append(args, day, "/"+of.ID+"/", "/"+of.ID+"0")
	}
	return query, args
}

// OwnUsed returns what an agent itself used in a day and what resets wrote off of it.
func (r LedgerReader) OwnUsed(agentID string, day int64) (used, forgiven int64, err error) {
	err = r.from.queryRow(ownUsed, []any{agentID, day * 24, day*24 + 24, agentID, day}, &used, &forgiven)
	return used, forgiven, err
}

const ownUsed = `SELECT (SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= ? AND hour < ?),
	(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`

// LatestDayBelow returns the last day of [day, most] on which the agent or one that
// stood below it used something, day without one.
func (r LedgerReader) LatestDayBelow(agentID string, day, most int64) (int64, error) {
	latest := day
	err := r.from.query("SELECT hour / 24, path FROM usage_windows WHERE hour / 24 > ? AND hour / 24 <= ?", []any{day, most}, func(rows *sql.Rows) error {
		var d int64
		var path string
		err := rows.Scan(&d, &path)
		if err == nil && slices.Contains(strings.Split(path, "/"), agentID) {
			latest = max(latest, d)
		}
		return err
	})
	return latest, err
}

// SubtreeForgiven returns what resets wrote off of an agent's roll-up in a day.
func (r LedgerReader) SubtreeForgiven(agentID string, day int64) (int64, error) {
	return value[int64](r.from, "SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?", agentID, day)
}

// Path joins the ids from nova down to an agent, as the ledger stores chains of ancestors.
func Path(spenders map[string]models.Spender, id string) string {
	var chain []string
	for s, ok := spenders[id]; ok; s, ok = spenders[s.ParentID] {
		chain = append(chain, s.ID)
	}
	slices.Reverse(chain)
	return strings.Join(chain, "/")
}

const (
	reservationColumns = "agent_id, id, path, tokens, state, due, expires_at, created_at, settled, digest"

	namedReservations = "SELECT " + reservationColumns + " FROM usage_reservations WHERE (agent_id, id) IN (keys)"
	overdueQuery      = "SELECT " + reservationColumns + " FROM usage_reservations WHERE state = 0 AND due <= ? ORDER BY due LIMIT ?"
	nextDueQuery      = "SELECT due FROM usage_reservations WHERE state = 0 ORDER BY due LIMIT 1"
	heldQuery         = "SELECT path, tokens FROM usage_reservations WHERE state = 0"
)

// reservationStates are numbered by their place.
func reservationStates() [4]models.ReservationState {
	return [4]models.ReservationState{models.ReservationHeld, models.ReservationSettled, models.ReservationReleased, models.ReservationExpired}
}

// stateNumber is -1 for what is no state.
func stateNumber(s models.ReservationState) int {
	states := reservationStates()
	return slices.Index(states[:], s)
}

// NamedReservations returns the reservations with these names; unknown ones are left
// out. They stay as they are while the caller holds the agents' accounts.
func (r LedgerReader) NamedReservations(keys []LedgerKey) (map[LedgerKey]models.Reservation, error) {
	rows, err := listIn(r.from, keys, (*reservationRow).dest, namedReservations)
	list := convert(rows, reservationRow.reservation)
	return byKey(list, func(r models.Reservation) LedgerKey { return LedgerKey{r.AgentID, r.ID} }), err
}

// reservationRow is a row of reservationColumns.
type reservationRow struct {
	models.Reservation
	due     time.Time
	settled int64
}

func (r *reservationRow) dest() []any {
	states := reservationStates()
	return []any{
		&r.AgentID, &r.ID, &r.Path, &r.Tokens, enumInto(&r.State, states[:]), ScanTime{&r.due}, ScanTime{&r.ExpiresAt}, ScanTime{&r.CreatedAt},
		&r.settled, scanHash{&r.Digest},
	}
}

func (r reservationRow) reservation() models.Reservation {
	if r.State != models.ReservationHeld {
		r.EndedAt = &r.due
	}
	if r.State == models.ReservationSettled {
		r.SettledTokens = &r.settled
	}
	return r.Reservation
}

func listReservations(from reader, query string, args ...any) ([]models.Reservation, error) {
	rows, err := list(from, query, args, (*reservationRow).dest)
	return convert(rows, reservationRow.reservation), err
}

// SaveReservations writes reservations, new ones and changed ones. at is when those
// that have ended ended.
func (tx Ledger) SaveReservations(list []models.Reservation, at time.Time) error {
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
		args = append(args, r.AgentID, r.ID, r.Path, r.Tokens, stateNumber(r.State), Micros(due),
			Micros(r.ExpiresAt), Micros(r.CreatedAt), settled, digest)
	}
	return tx.insertRows("INSERT INTO usage_reservations ("+reservationColumns+")",
		"ON CONFLICT (agent_id, id) DO UPDATE SET state = excluded.state, due = excluded.due, settled = excluded.settled, digest = excluded.digest", 10, args)
}

// OverdueReservations returns up to limit held reservations whose lease has ended
// by now, the longest overdue first.
func (r LedgerReader) OverdueReservations(now time.Time, limit int) ([]models.Reservation, error) {
	return listReservations(r.from, overdueQuery, Micros(now), limit)
}

// HeldBelow returns the sum of what is held by the agent and by those that stood
// below it when it was granted.
func (r LedgerReader) HeldBelow(agentID string) (int64, error) {
	return sumOnPath(r.from, agentID, heldQuery)
}

// sumOnPath adds the sums of those rows of (path, sum) whose path contains an agent.
func sumOnPath(r reader, agentID, query string, args ...any) (total int64, err error) {
	err = r.query(query, args, func(rows *sql.Rows) error {
		var path string
		var n int64
		err := rows.Scan(&path, &n)
		if slices.Contains(strings.Split(path, "/"), agentID) {
			total += n
		}
		return err
	})
	return total, err
}
