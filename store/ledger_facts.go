package store

import (
	"database/sql"
	"slices"
	"strings"

	"comet/models"
)

const factColumns = "agent_id, at, id, path, tokens, model, kind, task_id, request_id, reservation_id, digest"

// FactKey names a fact by what its caller called it.
type FactKey struct{ AgentID, RequestID string }

// RecordedFacts returns the facts that were recorded under these names.
func (tx *Tx) RecordedFacts(keys []FactKey) (map[FactKey]models.Fact, error) {
	out := make(map[FactKey]models.Fact)
	args := make([]any, 0, 2*len(keys))
	for _, k := range keys {
		args = append(args, k.AgentID, k.RequestID)
	}
	err := eachKeys(args, 2, func(list string, args []any) error {
		return tx.query(namedFacts(list), args, func(rows *sql.Rows) error {
			f, err := scanFact(rows)
			out[FactKey{f.AgentID, f.RequestID}] = f
			return err
		})
	})
	return out, err
}

// namedFacts looks up a list of (agent, request_id).
func namedFacts(list string) string {
	return "SELECT " + factColumns + " FROM usage_facts WHERE request_id <> '' AND (agent_id, request_id) IN " + list
}

func scanFact(rows *sql.Rows) (models.Fact, error) {
	var f models.Fact
	var at, tokens any
	var digest []byte
	err := rows.Scan(&f.AgentID, &at, &f.ID, &f.Path, &tokens, &f.Model, &f.Kind, &f.TaskID, &f.RequestID, &f.ReservationID, &digest)
	f.At, f.Tokens = fromMicros(whole(at)), whole(tokens)
	copy(f.Digest[:], digest)
	return f, err
}

// InsertFacts stores facts. It returns errs.Conflict for a request_id that is taken.
func (tx *Tx) InsertFacts(facts []models.Fact) error {
	args := make([]any, 0, 11*len(facts))
	for _, f := range facts {
		args = append(args, f.AgentID, micros(f.At), f.ID, f.Path, f.Tokens, f.Model, f.Kind, f.TaskID, f.RequestID, f.ReservationID, f.Digest[:])
	}
	return tx.insertRows("INSERT INTO usage_facts ("+factColumns+")", "", 11, args)
}

// Window is a place where use is summed up: an agent, an hour since 1970 UTC and the
// chain of ancestors it counts on.
type Window struct {
	AgentID string
	Hour    int64
	Path    string
}

// WindowOf is the window a fact counts in.
func WindowOf(f models.Fact) Window { return Window{f.AgentID, hour(f.At), f.Path} }

// AddToWindows adds tokens to windows. The caller has locked the agents' accounts. It
// returns errs.Conflict for an unknown agent.
func (tx *Tx) AddToWindows(sums map[Window]int64) error {
	args := make([]any, 0, 4*len(sums))
	for w, tokens := range sums {
		args = append(args, w.AgentID, w.Hour, w.Path, tokens)
	}
	return tx.insertRows("INSERT INTO usage_windows (agent_id, hour, path, tokens)",
		"ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = usage_windows.tokens + excluded.tokens", 4, args)
}

// SubtreeUsed returns what was used in a day, in days since 1970 UTC, by the agent
// and by those that stood below it then.
func (tx *Tx) SubtreeUsed(of models.Spender, day int64) (tokens int64, err error) {
	query, args := subtreeUsed(of, day)
	err = tx.queryRow(query, args, &tokens)
	return tokens, err
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
func (tx *Tx) OwnUsed(agentID string, day int64) (used, forgiven int64, err error) {
	err = tx.queryRow(ownUsed, []any{agentID, day * 24, day*24 + 24, agentID, day}, &used, &forgiven)
	return used, forgiven, err
}

const ownUsed = `SELECT (SELECT coalesce(sum(tokens), 0) FROM usage_windows WHERE agent_id = ? AND hour >= ? AND hour < ?),
	(SELECT coalesce(sum(own), 0) FROM usage_resets WHERE agent_id = ? AND day = ?)`

// LatestDayBelow returns the last day of [day, most] on which the agent or one that
// stood below it used something, day without one.
func (tx *Tx) LatestDayBelow(agentID string, day, most int64) (int64, error) {
	latest := day
	err := tx.query("SELECT hour / 24, path FROM usage_windows WHERE hour / 24 > ? AND hour / 24 <= ?", []any{day, most}, func(rows *sql.Rows) error {
		var d int64
		var path string
		err := rows.Scan(&d, &path)
		if err == nil && OnPath(path, agentID) {
			latest = max(latest, d)
		}
		return err
	})
	return latest, err
}

// SubtreeForgiven returns what resets wrote off of an agent's roll-up in a day.
func (tx *Tx) SubtreeForgiven(agentID string, day int64) (tokens int64, err error) {
	err = tx.queryRow("SELECT coalesce(sum(subtree), 0) FROM usage_resets WHERE agent_id = ? AND day = ?", []any{agentID, day}, &tokens)
	return tokens, err
}

// Chain returns the ids from nova down to the agent.
func Chain(spenders map[string]models.Spender, id string) []string {
	var chain []string
	for s, ok := spenders[id]; ok; s, ok = spenders[s.ParentID] {
		chain = append(chain, s.ID)
	}
	slices.Reverse(chain)
	return chain
}

// Path joins a chain as the ledger keeps it.
func Path(chain []string) string { return strings.Join(chain, "/") }
