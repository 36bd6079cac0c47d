package registry_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// fixture is a registry with its ten founders on a fresh database.
type fixture struct {
	*registry.Registry
	db *storetest.DB
}

func setup(t *testing.T, db *storetest.DB, opts *registry.Options) *fixture {
	t.Helper()
	f := &fixture{Registry: registry.New(db.Store, opts), db: db}
	require.NoError(t, f.Bootstrap(t.Context()))
	return f
}

// onEveryDatabase runs a test of the rules on each database.
func onEveryDatabase(t *testing.T, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		fn(t, setup(t, db, nil))
	})
}

// The two who change agents: writer has agents:write, admin everything.
func writer() models.Principal {
	return models.Principal{TokenID: "token-w", Name: "writer", Scopes: []models.Scope{models.ScopeAgentsWrite}}
}

func admin() models.Principal {
	return models.Principal{TokenID: "token-a", Name: "admin", Scopes: []models.Scope{models.ScopeAdmin}}
}

// draft is a request for an agent that breaks no rule by itself.
func draft(id string, level models.Level, parent string) models.AgentDraft {
	d := models.AgentDraft{ID: &id, Name: new("The " + id), Level: &level, SphereID: new(1), FrequencyHz: new(level.Frequencies()[0])}
	if parent != "" {
		d.ParentID = &parent
	}
	return d
}

func specialist(id, parent string) models.AgentDraft {
	return draft(id, models.LevelSpecialist, parent)
}
func assistant(id, parent string) models.AgentDraft { return draft(id, models.LevelAssistant, parent) }

func (f *fixture) create(t *testing.T, drafts ...models.AgentDraft) {
	t.Helper()
	for _, d := range drafts {
		_, err := f.Create(t.Context(), writer(), d, nil)
		require.NoError(t, err)
	}
}

func (f *fixture) deactivate(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, f.Deactivate(t.Context(), writer(), id, nil))
	}
}

func (f *fixture) patch(t *testing.T, id string, p registry.AgentPatch) error {
	t.Helper()
	_, err := f.Update(t.Context(), writer(), id, p, nil)
	return err
}

func (f *fixture) agent(t *testing.T, id string) models.Agent {
	t.Helper()
	a, err := f.db.Agents(t.Context()).Get(id)
	require.NoError(t, err)
	return a
}

func (f *fixture) all(t *testing.T) []models.Agent {
	t.Helper()
	all, err := f.Export(t.Context(), models.RootAgentID)
	require.NoError(t, err)
	return all
}

// trail is an agent's history, oldest line first.
func (f *fixture) trail(t *testing.T, id string) []models.AuditEntry {
	t.Helper()
	lines, err := f.AuditTrail(t.Context(), id, 0, 10_000)
	require.NoError(t, err)
	slices.Reverse(lines)
	return lines
}

// events returns the events of an agent, in order.
func (f *fixture) events(t *testing.T, id string) []models.Event {
	t.Helper()
	require.NoError(t, f.number(t.Context()))
	all, err := f.db.Events(t.Context()).After(0, 1_000_000)
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(e models.Event) bool { return e.Key != id })
}

// number gives every committed event its position.
func (f *fixture) number(ctx context.Context) error {
	for more := true; more; {
		err := f.db.Write(ctx, func(tx *store.Tx) error {
			after, upTo, err := tx.Events().Number(1000)
			more = upTo > after
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// traces counts the audit entries of all agents and the events.
func (f *fixture) traces(t *testing.T) (lines, events int) {
	t.Helper()
	for _, a := range f.all(t) {
		lines += len(f.trail(t, a.ID))
		events += len(f.events(t, a.ID))
	}
	return lines, events
}

// requireUntouched runs fn and proves that it left no trace.
func (f *fixture) requireUntouched(t *testing.T, fn func()) {
	t.Helper()
	before := f.all(t)
	lines, events := f.traces(t)
	fn()
	require.Equal(t, before, f.all(t))
	linesAfter, eventsAfter := f.traces(t)
	require.Equal(t, lines, linesAfter, "audit lines")
	require.Equal(t, events, eventsAfter, "events")
}

// parse reads a roster that is at least well-formed.
func parse(t *testing.T, yaml string) (*roster.Document, errs.Violations) {
	t.Helper()
	doc, found := roster.Parse([]byte(strings.TrimPrefix(yaml, "\n")), input.YAML)
	for _, v := range found {
		require.NotEqual(t, errs.MalformedYAML, v.Code, v.Detail)
	}
	return doc, found
}

// load imports a roster as by.
func (f *fixture) load(t *testing.T, by models.Principal, yaml string) (registry.ImportReport, error) {
	t.Helper()
	doc, found := parse(t, yaml)
	return f.Import(t.Context(), by, doc, found, false, nil)
}

// broken describes an error: its code, then rule@pointer of each field.
func broken(err error) []string {
	if err == nil {
		return nil
	}
	e := errs.From(err)
	out := []string{string(e.Code)}
	for _, f := range e.Fields {
		out = append(out, f.Rule+"@"+f.Pointer)
	}
	return out
}

func data[T any](t *testing.T, e models.Event) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(e.Data, &v))
	return v
}
