package registry_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/registrytest"
	"comet/internal/registry/roster"
	"comet/models"
)

// document joins entries to a roster; the first stands on line 3.
func document(entries ...string) string {
	return "version: 1\nagents:\n  - " + strings.Join(entries, "\n  - ") + "\n"
}

func entry(id string, level int, parent, more string) string {
	if more != "" {
		more = ", " + more
	}
	hz := models.Level(level).Frequencies()[0]
	return fmt.Sprintf("{id: %s, name: The %s, level: %d, sphere_id: 1, frequency_hz: %d, parent_id: %s%s}", id, id, level, hz, parent, more)
}

// atLines describes the error of an import: its code, then line:rule@pointer of each field.
func atLines(err error) []string {
	if err == nil {
		return nil
	}
	e := errs.From(err)
	return append([]string{string(e.Code)}, lined(e.Fields)...)
}

func lined(fields []errs.Field) []string {
	out := []string{}
	for _, f := range fields {
		out = append(out, fmt.Sprintf("%d:%s@%s", f.Line, f.Rule, f.Pointer))
	}
	return out
}

func TestImport(t *testing.T) {
	t.Parallel()

	t.Run("ItCreatesChangesAndLeavesAlone", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("kept", "orch-social"), specialist("spec", "orch-social"), assistant("gone", "spec"), specialist("unlisted", "orch-social"))
			f.deactivate(t, "gone")
			report, err := f.load(t, writer(), document(
				entry("fresh", 3, "spec", "capabilities: [email, odd]"),
				entry("kept", 2, "orch-social", ""),
				entry("spec", 2, "orch-business", "token_budget: 30000"),
				entry("gone", 3, "spec", ""),
				entry("retired", 3, "fresh-parent", "is_active: false"),
				entry("fresh-parent", 2, "orch-social", ""),
			))
			require.NoError(t, err)
			require.Equal(t, registry.ImportReport{
				Valid: true, Agents: 6, Created: 3, Updated: 2, Unchanged: 1, Violations: []errs.Field{},
				Changes: []registry.ImportChange{
					{ID: "fresh", Action: models.AuditCreated, Line: 3}, {ID: "spec", Action: models.AuditUpdated, Line: 5},
					{ID: "gone", Action: models.AuditRestored, Line: 6}, {ID: "retired", Action: models.AuditCreated, Line: 7},
					{ID: "fresh-parent", Action: models.AuditCreated, Line: 8},
				},
				Warnings: []errs.Field{{
					Pointer: "/agents/0/capabilities/1", Rule: "custom_prefix", Line: 3,
					Detail: `"odd" is not a predefined capability; write "custom:odd"`,
				}},
			}, report)
			require.Equal(t, "orch-business", *f.agent(t, "spec").ParentID)
			require.True(t, f.agent(t, "gone").IsActive)
			require.False(t, f.agent(t, "retired").IsActive)
			require.True(t, f.agent(t, "unlisted").IsActive)
			require.EqualValues(t, 1, f.agent(t, "kept").Version)
			require.Empty(t, registrytest.BrokenRules(f.all(t)))
		})
	})

	t.Run("EachChangeIsOneLineAndItsEvents", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("a", "orch-social"), specialist("b", "orch-social"), specialist("c", "orch-social"), specialist("same", "orch-social"))
			f.deactivate(t, "c")
			_, err := f.load(t, writer(), document(
				entry("a", 2, "orch-social", "is_active: false"),
				entry("b", 2, "orch-social", "is_active: false, description: text"),
				entry("c", 2, "orch-social", ""),
				entry("same", 2, "orch-social", ""),
				entry("new", 2, "orch-social", "is_active: false"),
			))
			require.NoError(t, err)
			for id, want := range map[string]struct {
				actions []models.AuditAction
				kinds   []models.EventType
			}{
				"a":    {[]models.AuditAction{models.AuditCreated, models.AuditDeactivated}, []models.EventType{events.AgentCreated, events.AgentDeactivated}},
				"b":    {[]models.AuditAction{models.AuditCreated, models.AuditDeactivated}, []models.EventType{events.AgentCreated, events.AgentUpdated, events.AgentDeactivated}},
				"c":    {[]models.AuditAction{models.AuditCreated, models.AuditDeactivated, models.AuditRestored}, []models.EventType{events.AgentCreated, events.AgentDeactivated, events.AgentUpdated}},
				"same": {[]models.AuditAction{models.AuditCreated}, []models.EventType{events.AgentCreated}},
				"new":  {[]models.AuditAction{models.AuditCreated}, []models.EventType{events.AgentCreated}},
			} {
				var actions []models.AuditAction
				for _, line := range f.trail(t, id) {
					actions = append(actions, line.Action)
					require.Equal(t, "writer", line.Actor)
				}
				require.Equal(t, want.actions, actions, id)
				require.Equal(t, want.kinds, kinds(f.events(t, id)), id)
			}
			require.False(t, data[registry.AgentSnapshot](t, f.events(t, "new")[0]).IsActive)
		})
	})

	t.Run("AnEntryDescribesItsAgentAsAWhole", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Description, d.Type, d.Capabilities, d.TokenBudget = "text", "research", []string{"email"}, models.Some(int64(5000))
			d.BudgetScope = models.Some(models.ScopeSubtree)
			f.create(t, d)
			f.deactivate(t, "spec")
			_, err := f.load(t, writer(), document(entry("spec", 2, "orch-social", "")))
			require.NoError(t, err)
			a := f.agent(t, "spec")
			require.Empty(t, a.Description)
			require.Empty(t, a.Type)
			require.Empty(t, a.Capabilities)
			require.EqualValues(t, 25_000, *a.TokenBudget)
			require.Equal(t, models.ScopeOwn, a.BudgetScope)
			require.True(t, a.IsActive)
			require.Empty(t, f.having(t, "email"))
		})
	})

	t.Run("AllOrNothing", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("spec", "orch-social"))
			f.requireUntouched(t, func() {
				_, err := f.load(t, writer(), document(
					entry("good", 2, "orch-social", ""),
					entry("spec", 2, "orch-business", ""),
					entry("bad", 3, "no-such-agent", ""),
				))
				require.Equal(t, []string{"parent-not-found", "5:exists@/agents/2/parent_id"}, atLines(err))
			})
		})
	})

	t.Run("TheOrderOfTheEntriesDoesNotMatter", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			f.create(t, specialist("old", "orch-social"), assistant("help", "old"))
			entries := []string{
				entry("orch-new", 1, "nova", ""), entry("s1", 2, "orch-new", ""), entry("s2", 2, "orch-social", "is_active: false"),
				entry("a1", 3, "s1", ""), entry("a2", 3, "s2", "is_active: false"), entry("old", 2, "orch-new", "is_active: false"), entry("help", 3, "s1", ""),
			}
			var ids []string
			for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, 8} {
				rand.New(rand.NewPCG(seed, 0)).Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
				doc, found := parse(t, document(entries...))
				report, err := f.Import(t.Context(), admin(), doc, found, true, nil)
				require.NoError(t, err)
				require.True(t, report.Valid, report.Violations)
				require.Equal(t, 5, report.Created)
				require.Equal(t, 2, report.Updated)
			}
			_, err := f.load(t, admin(), document(entries...))
			require.NoError(t, err)
			all := f.all(t)
			require.Empty(t, registrytest.BrokenRules(all))
			for _, a := range all {
				ids = append(ids, a.ID)
			}
			require.Subset(t, ids, []string{"orch-new", "s1", "s2", "a1", "a2", "old", "help"})
			require.Equal(t, "s1", *f.agent(t, "help").ParentID)
		})
	})

	t.Run("TheExportOfARegistryChangesNothingAndNeedsNoRank", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			d := specialist("spec", "orch-social")
			d.Description, d.Type, d.Capabilities = "two\nlines: #1 \"é\" 🚀", "research", []string{"email", "custom:x", "1e3"}
			d.BudgetScope = models.Some(models.ScopeSubtree)
			f.create(t, d, assistant("help", "spec"), specialist("yes", "orch-scholar"))
			f.deactivate(t, "help", "spec")
			for format, marshal := range map[input.Format]func(*bytes.Buffer) error{
				input.YAML: func(b *bytes.Buffer) error { return roster.MarshalYAML(b, f.all(t)) },
				input.JSON: func(b *bytes.Buffer) error { return roster.MarshalJSON(b, f.all(t)) },
			} {
				var out bytes.Buffer
				require.NoError(t, marshal(&out))
				doc, found := roster.Parse(out.Bytes(), format)
				f.requireUntouched(t, func() {
					report, err := f.Import(t.Context(), writer(), doc, found, false, nil)
					require.NoError(t, err)
					require.Equal(t, 13, report.Unchanged)
					require.Equal(t, 13, report.Agents)
					require.Empty(t, report.Changes)
				})
			}
		})
	})

	t.Run("ARepeatedImportHasNoSecondEffect", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			once := func() *models.Idempotency {
				return &models.Idempotency{Principal: "token-w", Key: "k", RequestHash: [32]byte{2}, Render: func(result any) (models.StoredResponse, error) {
					return models.StoredResponse{Status: 200, Body: fmt.Append(nil, result.(registry.ImportReport).Created)}, nil
				}}
			}
			doc, found := parse(t, document(entry("spec", 2, "orch-social", "")))
			_, err := f.Import(t.Context(), writer(), doc, found, false, once())
			require.NoError(t, err)
			require.NoError(t, f.patch(t, "spec", registry.AgentPatch{Name: models.Some("changed since")}))
			f.requireUntouched(t, func() {
				again := once()
				_, err = f.Import(t.Context(), writer(), doc, found, false, again)
				require.NoError(t, err)
				require.Equal(t, "1", string(again.Replay.Body))
			})
		})
	})
}
