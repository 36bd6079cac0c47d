package registry_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/registry/registrytest"
	"comet/models"
)

// snapshot is everything the registry keeps, as one read transaction sees it.
type snapshot struct {
	agents []models.Agent
	index  []string // "capability agent"
	audit  []models.AuditEntry
	events []models.Event // in the order they were written
}

// snapshot reads the tables past the store, in one transaction.
func (f *fixture) snapshot(t *testing.T) snapshot {
	t.Helper()
	driver, source, opts := "sqlite", "file:"+filepath.Join(f.db.Options.Dir, "comet.db")+"?_pragma=busy_timeout(10000)", (*sql.TxOptions)(nil)
	if f.db.Options.DatabaseURL != "" {
		driver, source, opts = "pgx", f.db.Options.DatabaseURL, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	}
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	tx, err := db.BeginTx(t.Context(), opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	s, err := read(t.Context(), tx)
	require.NoError(t, err)
	return s
}

func read(ctx context.Context, tx *sql.Tx) (snapshot, error) {
	var s snapshot
	err := each(ctx, tx, "SELECT id, name, level, sphere_id, frequency_hz, capabilities, description, type, parent_id, token_budget, budget_scope, is_active, version FROM agents",
		func(rows *sql.Rows) error {
			var a models.Agent
			var capabilities string
			err := rows.Scan(&a.ID, &a.Name, &a.Level, &a.SphereID, &a.FrequencyHz, &capabilities, &a.Description, &a.Type, &a.ParentID,
				&a.TokenBudget, &a.BudgetScope, &a.IsActive, &a.Version)
			s.agents = append(s.agents, a)
			if err != nil {
				return err
			}
			return json.Unmarshal([]byte(capabilities), &s.agents[len(s.agents)-1].Capabilities)
		})
	if err != nil {
		return s, err
	}
	err = each(ctx, tx, "SELECT capability, agent_id FROM agent_capabilities", func(rows *sql.Rows) error {
		var capability, id string
		err := rows.Scan(&capability, &id)
		s.index = append(s.index, capability+" "+id)
		return err
	})
	if err != nil {
		return s, err
	}
	err = each(ctx, tx, "SELECT agent_id, action, version, changes FROM audit ORDER BY id", func(rows *sql.Rows) error {
		var e models.AuditEntry
		var changes string
		if err := rows.Scan(&e.AgentID, &e.Action, &e.Version, &changes); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(changes), &e.Changes)
		s.audit = append(s.audit, e)
		return err
	})
	if err != nil {
		return s, err
	}
	return s, each(ctx, tx, "SELECT coalesce(position, 0), type, key, data FROM events ORDER BY seq", func(rows *sql.Rows) error {
		var e models.Event
		var data string
		err := rows.Scan(&e.Position, &e.Type, &e.Key, &data)
		e.Data = json.RawMessage(data)
		s.events = append(s.events, e)
		return err
	})
}

func each(ctx context.Context, tx *sql.Tx, query string, scan func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// broken lists violations of the tree's rules, and contradictions between agents, audit entries
// and events.
func (s snapshot) broken() []string {
	out := registrytest.BrokenRules(s.agents)
	want := map[string]bool{}
	for _, a := range s.agents {
		for _, c := range a.Capabilities {
			want[models.CapabilityKey(c)+" "+a.ID] = true
		}
	}
	if wanted := slices.Sorted(maps.Keys(want)); !slices.Equal(wanted, slices.Sorted(slices.Values(s.index))) {
		out = append(out, fmt.Sprintf("the index of capabilities is %v, the agents say %v", s.index, wanted))
	}
	agents := map[string]models.Agent{}
	for _, a := range s.agents {
		agents[a.ID] = a
	}
	history, told := s.replay()
	for id := range maps.Keys(history) {
		if _, ok := agents[id]; !ok {
			out = append(out, "the history of "+id+" is that of no agent")
		}
	}
	for id, a := range agents {
		out = append(out, contradictions(a, history[id])...)
		if got := s.eventsOf(id); !slices.Equal(told[id], got) {
			out = append(out, fmt.Sprintf("the events of %s are %v, its history says %v", id, got, told[id]))
		}
		delete(told, id)
	}
	return out
}

// past is an agent as reconstructed from its audit log.
type past struct {
	fields  map[string]any
	version int64
	broken  []string
}

// replay applies every audit entry and returns the resulting agents and the events that must
// exist.
func (s snapshot) replay() (map[string]past, map[string][]string) {
	history, told := map[string]past{}, map[string][]string{}
	for _, line := range s.audit {
		p := history[line.AgentID]
		if p.fields == nil {
			p.fields = map[string]any{}
		}
		if line.Version != p.version+1 || (line.Action == models.AuditCreated) != (p.version == 0) {
			p.broken = append(p.broken, fmt.Sprintf("line %q at version %d follows version %d", line.Action, line.Version, p.version))
		}
		p.version = line.Version
		active := ""
		for _, c := range line.Changes {
			if was := p.fields[c.Field]; fmt.Sprint(was) != fmt.Sprint(c.From) && line.Action != models.AuditCreated && (was != nil || c.From != "") {
				p.broken = append(p.broken, fmt.Sprintf("version %d changes %s from %v, it was %v", line.Version, c.Field, c.From, was))
			}
			p.fields[c.Field] = c.To
			if c.Field == "is_active" {
				active = fmt.Sprint(c.To)
			}
		}
		if wanted := map[string]models.AuditAction{"": models.AuditUpdated, "true": models.AuditRestored, "false": models.AuditDeactivated}[active]; line.Action != wanted && line.Action != models.AuditCreated {
			p.broken = append(p.broken, fmt.Sprintf("version %d is %q, not %q", line.Version, line.Action, wanted))
		}
		history[line.AgentID] = p
		told[line.AgentID] = append(told[line.AgentID], eventsFor(line)...)
	}
	return history, told
}

func eventsFor(line models.AuditEntry) []string {
	at := func(kind models.EventType) string { return fmt.Sprintf("%s@%d", kind, line.Version) }
	switch {
	case line.Action == models.AuditCreated:
		return []string{at(events.AgentCreated)}
	case line.Action != models.AuditDeactivated:
		return []string{at(events.AgentUpdated)}
	case len(line.Changes) == 1:
		return []string{at(events.AgentDeactivated)}
	}
	return []string{at(events.AgentUpdated), at(events.AgentDeactivated)}
}

// contradictions compares an agent with what its history makes of it.
func contradictions(a models.Agent, p past) []string {
	out := p.broken
	if a.Version != p.version {
		out = append(out, fmt.Sprintf("version %d after %d lines", a.Version, p.version))
	}
	for field, is := range map[string]any{
		"name": a.Name, "level": a.Level, "sphere_id": a.SphereID, "frequency_hz": a.FrequencyHz, "capabilities": a.Capabilities, "parent_id": a.ParentID,
		"token_budget": a.TokenBudget, "budget_scope": a.BudgetScope, "is_active": a.IsActive, "description": a.Description, "type": a.Type,
	} {
		text, _ := json.Marshal(is)
		told, _ := json.Marshal(p.fields[field])
		if string(text) != string(told) && (string(text) != `""` || string(told) != "null") {
			out = append(out, fmt.Sprintf("%s is %s, its history says %s", field, text, told))
		}
	}
	for i := range out {
		out[i] = a.ID + ": " + out[i]
	}
	return out
}

func (s snapshot) eventsOf(id string) []string {
	var out []string
	for _, e := range s.events {
		if e.Key == id {
			var d struct{ Version int64 }
			if err := json.Unmarshal(e.Data, &d); err != nil {
				return []string{err.Error()}
			}
			out = append(out, fmt.Sprintf("%s@%d", e.Type, d.Version))
		}
	}
	return out
}
