package store

import (
	"slices"
	"strings"
	"time"

	"comet/models"
)

// LedgerKey names a reservation of an agent by its id, or a fact by the request_id of its caller.
type LedgerKey struct{ AgentID, ID string }

// RecordedFacts returns the facts that were recorded under these names.
func (r ledgerReader) RecordedFacts(keys []LedgerKey) (map[LedgerKey]models.Fact, error) {
	facts, err := list[models.Fact](r.reader, namedFacts(r.engine), pairs(keys))
	return byKey(facts, func(f models.Fact) LedgerKey { return LedgerKey{f.AgentID, f.RequestID} }), err
}

func namedFacts(on *engine) string {
	return selectRows[models.Fact]("WHERE request_id <> '' AND (agent_id, request_id) " + on.inPairs)
}

// pairs returns keys as the argument of engine.inPairs.
func pairs(keys []LedgerKey) keyPairs {
	return convert(keys, func(k LedgerKey) [2]string { return [2]string{k.AgentID, k.ID} })
}

// InsertFacts stores facts. If a request_id is taken, this call, a later statement or the commit returns errs.Conflict.
func (tx Ledger) InsertFacts(facts []models.Fact) error { return create(tx.reader, "", facts...) }

// AddToWindows adds the tokens of facts to the windows that they count in: sums of use of an agent,
// in an hour, on a chain of ancestors. The caller has locked the agents' accounts. For
// an unknown agent this call, a later statement or the commit returns errs.Conflict.
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

// SubtreeUsed returns the tokens used in a day, in days since 1970 UTC, by the agent
// and by the agents that were below it on that day.
func (r ledgerReader) SubtreeUsed(of Spender, day int64) (int64, error) {
	query, args := subtreeUsed(of, day)
	return one[int64](r.reader, query, args...)
}

// subtreeUsed sums the windows of a day whose path contains the agent: its own, and
// those of agents below it. A path is nova, an L1, an L2 and an L3, so the agent's level
// is its position in the path. The paths below an L1 are one range. The paths below an
// L2 are one range for each L1 that may have been above it on that day.
func subtreeUsed(of Spender, day int64) (query string, args []any) {
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
func (r ledgerReader) OwnUsed(agentID string, day int64) (used, forgiven int64, err error) {
	own, err := one[ownUse](r.reader, ownUsed, agentID, day*24, day*24+24, agentID, day)
	return own.Used, own.Forgiven, err
}

// ownUse is a row of ownUsed.
type ownUse struct{ Used, Forgiven int64 }

const ownUsed = `SELECT (SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= ? AND hour < ?),
	(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`

// LatestDayBelow returns the last day of [day, most] on which the agent or one that
// stood below it used something, day without one.
func (r ledgerReader) LatestDayBelow(agentID string, day, most int64) (int64, error) {
	type window struct {
		Day  int64
		Path string
	}
	latest := day
	err := each(r.reader, func(w window) error {
		if slices.Contains(strings.Split(w.Path, "/"), agentID) {
			latest = max(latest, w.Day)
		}
		return nil
	}, "SELECT hour / 24, path FROM usage_windows WHERE hour / 24 > ? AND hour / 24 <= ?", day, most)
	return latest, err
}

// SubtreeForgiven returns what resets wrote off of an agent's roll-up in a day.
func (r ledgerReader) SubtreeForgiven(agentID string, day int64) (int64, error) {
	return one[int64](r.reader, "SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?", agentID, day)
}

// Path joins the ids from nova down to an agent, as the ledger stores chains of ancestors.
func Path(spenders map[string]Spender, id string) string {
	var chain []string
	for s, ok := spenders[id]; ok; s, ok = spenders[s.ParentID] {
		chain = append(chain, s.ID)
	}
	slices.Reverse(chain)
	return strings.Join(chain, "/")
}

const (
	nextDueQuery = "SELECT due FROM usage_reservations WHERE state = 0 ORDER BY due LIMIT 1"
	heldQuery    = "SELECT path, tokens FROM usage_reservations WHERE state = 0"
)

func namedReservations(on *engine) string {
	return selectRows[reservationRow]("WHERE (agent_id, id) " + on.inPairs)
}

func overdueQuery() string {
	return selectRows[reservationRow]("WHERE state = 0 AND due <= ? ORDER BY due LIMIT ?")
}

// NamedReservations returns the reservations with these names; unknown ones are left
// out. They stay as they are while the caller holds the agents' accounts.
func (r ledgerReader) NamedReservations(keys []LedgerKey) (map[LedgerKey]models.Reservation, error) {
	list, err := listReservations(r.reader, namedReservations(r.engine), pairs(keys))
	return byKey(list, func(r models.Reservation) LedgerKey { return LedgerKey{r.AgentID, r.ID} }), err
}

// reservationRow is a reservation as it is stored.
type reservationRow struct {
	models.Reservation
	Due     time.Time
	Settled int64
	Digest  []byte // NULL unless it was settled
}

func (r reservationRow) reservation() models.Reservation {
	if r.State != models.ReservationHeld {
		r.EndedAt = &r.Due
	}
	if r.State == models.ReservationSettled {
		r.SettledTokens = &r.Settled
	}
	copy(r.Reservation.Digest[:], r.Digest)
	return r.Reservation
}

func listReservations(from reader, query string, args ...any) ([]models.Reservation, error) {
	rows, err := list[reservationRow](from, query, args...)
	return convert(rows, reservationRow.reservation), err
}

// SaveReservations writes reservations, new ones and changed ones. at is when those
// that have ended ended.
func (tx Ledger) SaveReservations(list []models.Reservation, at time.Time) error {
	rows := make([]reservationRow, len(list))
	for i, r := range list {
		row := reservationRow{Reservation: r, Due: r.ExpiresAt}
		if r.State != models.ReservationHeld {
			row.Due = at
		}
		if r.EndedAt != nil {
			row.Due = *r.EndedAt
		}
		if r.SettledTokens != nil {
			row.Settled, row.Digest = *r.SettledTokens, r.Digest[:]
		}
		rows[i] = row
	}
	return create(tx.reader, replacing[reservationRow]("tokens", "state", "due", "settled", "digest"), rows...)
}

// OverdueReservations returns up to limit held reservations whose lease has ended
// by now, the longest overdue first.
func (r ledgerReader) OverdueReservations(now time.Time, limit int) ([]models.Reservation, error) {
	return listReservations(r.reader, overdueQuery(), now, limit)
}

// HeldBelow returns the sum of what is held by the agent and by those that stood
// below it when it was granted.
func (r ledgerReader) HeldBelow(agentID string) (int64, error) {
	return sumOnPath(r.reader, agentID, heldQuery)
}

// sumOnPath adds the sums of those rows of (path, sum) whose path contains an agent.
func sumOnPath(r reader, agentID, query string, args ...any) (total int64, err error) {
	err = each(r, func(s pathSum) error {
		if slices.Contains(strings.Split(s.Path, "/"), agentID) {
			total += s.Tokens
		}
		return nil
	}, query, args...)
	return total, err
}

// pathSum is a sum of tokens on a chain of ancestors.
type pathSum struct {
	Path   string
	Tokens int64
}
