package registry_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/internal/registry/registrytest"
	"comet/models"
)

// planned is a document and the expected violations of its import.
type planned struct {
	rule     string
	document string
	by       models.Principal
	want     []string // nil for an import that goes through
}

// given creates the tree of the cases below: two specialists with an assistant
// each, a third that is inactive with an inactive assistant.
func given(t *testing.T, f *fixture) {
	t.Helper()
	f.create(t, specialist("s1", "orch-social"), specialist("s2", "orch-social"), specialist("s3", "orch-social"),
		assistant("a1", "s1"), assistant("a2", "s2"), assistant("a3", "s3"))
	f.deactivate(t, "a3", "s3")
}

func moves() []planned {
	return []planned{
		{"a parent is deactivated while its child moves away", document(entry("s1", 2, "orch-social", "is_active: false"), entry("a1", 3, "s2", "")), writer(), nil},
		{"a parent is deactivated with its child", document(entry("a1", 3, "s1", "is_active: false"), entry("s1", 2, "orch-social", "is_active: false")), writer(), nil},
		{"two children change places", document(entry("a1", 3, "s2", ""), entry("a2", 3, "s1", "")), writer(), nil},
		{"a child moves under an agent of the same document", document(entry("a1", 3, "new", ""), entry("new", 2, "orch-social", "")), writer(), nil},
		{"a parent is restored with its child", document(entry("a3", 3, "s3", ""), entry("s3", 2, "orch-social", "")), writer(), nil},
		{"a budget is held against the subtree", document(entry("s1", 2, "orch-social", "budget_scope: subtree")), writer(), nil},
		{"an inactive agent is created under an inactive one", document(entry("new", 3, "s3", "is_active: false")), writer(), nil},
		{
			"a parent is deactivated above a child that is not listed", document(entry("s1", 2, "orch-social", "is_active: false")), writer(),
			[]string{"active-children", "3:active_children@/agents/0/is_active"},
		},
		{
			"a parent is deactivated above a child that stays", document(entry("s1", 2, "orch-social", "is_active: false"), entry("a1", 3, "s1", "")), writer(),
			[]string{"parent-inactive", "4:parent_active@/agents/1/parent_id"},
		},
		{
			"a child moves under an agent the document deactivates", document(entry("s1", 2, "orch-social", "is_active: false"), entry("a1", 3, "s2", ""), entry("a2", 3, "s1", "")), writer(),
			[]string{"parent-inactive", "5:parent_active@/agents/2/parent_id"},
		},
		{
			"an agent is created under an inactive one", document(entry("new", 3, "s3", "")), writer(),
			[]string{"parent-inactive", "3:parent_active@/agents/0/parent_id"},
		},
		{
			"a child is restored under a parent that stays inactive", document(entry("a3", 3, "s3", "")), writer(),
			[]string{"parent-inactive", "3:parent_active@/agents/0/parent_id"},
		},
		{
			"agents under parents of another level, and of none", document(entry("a1", 3, "a2", ""), entry("s1", 2, "s2", ""), entry("a2", 3, "no-such-agent", "")), writer(),
			[]string{"invalid-parent-level", "3:parent_level@/agents/0/parent_id", "4:parent_level@/agents/1/parent_id", "5:exists@/agents/2/parent_id"},
		},
	}
}

func ofMembers() []planned {
	return []planned{
		{
			"immutable members", "version: 1\nagents:\n  - id: s1\n    name: S\n    level: 3\n    sphere_id: 1\n    frequency_hz: 444\n    parent_id: s2\n" +
				"  - id: s2\n    name: S\n    level: 2\n    sphere_id: 1\n    frequency_hz: 666\n    parent_id: orch-social\n", writer(),
			[]string{"immutable-field", "5:immutable@/agents/0/level", "7:immutable@/agents/0/frequency_hz", "13:immutable@/agents/1/frequency_hz"},
		},
		{
			"every class at once, and the lowest names it", document(
				entry("s1", 2, "orch-social", "is_active: false"), entry("new", 3, "s2", "token_budget: 50001"),
				"{id: odd, name: Odd, level: 2, sphere_id: 1, frequency_hz: 777, parent_id: no-such-agent}", entry("bad", 3, "s2", "token_budget: 999"),
			), writer(),
			[]string{
				"invalid-frequency", "3:active_children@/agents/0/is_active", "4:level_max@/agents/1/token_budget",
				"5:frequency_level@/agents/2/frequency_hz", "5:exists@/agents/2/parent_id", "6:min@/agents/3/token_budget",
			},
		},
		{
			"a budget above its level's maximum", document(entry("new", 3, "s2", "token_budget: 50001")), writer(),
			[]string{"token-budget-exceeds-maximum", "3:level_max@/agents/0/token_budget"},
		},
		{
			"a budget scope that is none", document(entry("s1", 2, "orch-social", "budget_scope: everything")), writer(),
			[]string{"invalid-request", "3:oneof@/agents/0/budget_scope"},
		},
		{
			"members that are missing", document("{id: new, name: New, level: 3, frequency_hz: 444}"), writer(),
			[]string{"invalid-request", "3:required@/agents/0/sphere_id", "3:required@/agents/0/parent_id"},
		},
		{
			"an agent listed twice", document(entry("new", 2, "orch-social", ""), entry("new", 2, "orch-business", "")), writer(),
			[]string{"invalid-request", "4:unique@/agents/1/id"},
		},
	}
}

func ranks() []planned {
	root := "{id: nova, name: NOVA, level: 0, frequency_hz: 999, description: \"L0 System agent, root of the hierarchy\"}"
	orchestrator := "{id: orch-social, name: Social Orchestrator, level: 1, sphere_id: 6, frequency_hz: 888, parent_id: nova, " +
		"description: L1 Orchestrator of the Social sphere}"
	return []planned{
		{"founders that stay as they are", document(root, orchestrator), writer(), nil},
		{"an orchestrator changed by an admin", document(entry("orch-social", 1, "nova", "")), admin(), nil},
		{"a new orchestrator with its specialist by an admin", document(entry("new", 2, "orch-new", ""), entry("orch-new", 1, "nova", "")), admin(), nil},
		{"the root renamed by an admin", document("{id: nova, name: Nova, level: 0, sphere_id: null, frequency_hz: 999, parent_id: null, token_budget: null, budget_scope: own}"), admin(), nil},
		{"an orchestrator's budget scope by a writer", document("{id: orch-social, name: Social Orchestrator, level: 1, sphere_id: 6, frequency_hz: 888, " +
			"description: L1 Orchestrator of the Social sphere, budget_scope: subtree}"), writer(), []string{"missing-scope"}},
		{"an orchestrator changed by a writer", document(entry("orch-social", 1, "nova", "")), writer(), []string{"missing-scope"}},
		{"a new orchestrator by a writer", document(entry("orch-new", 1, "nova", "")), writer(), []string{"missing-scope"}},
		{"the root changed by a writer", document("{id: nova, name: Nova, level: 0, frequency_hz: 999}"), writer(), []string{"missing-scope"}},
		{
			"a second root", document("{id: nova-2, name: Nova, level: 0, frequency_hz: 999}"), admin(),
			[]string{"system-agent-exists", "3:single_root@/agents/0/level"},
		},
		{
			"a root with what only others have", document("{id: nova, name: Nova, level: 0, frequency_hz: 999, sphere_id: 1, parent_id: nova, token_budget: 5000}"), admin(),
			[]string{"invalid-request", "3:null_for_l0@/agents/0/sphere_id", "3:null_for_l0@/agents/0/parent_id", "3:null_for_l0@/agents/0/token_budget"},
		},
		{
			"a root that counts its subtree", document("{id: nova, name: Nova, level: 0, frequency_hz: 999, budget_scope: subtree}"), admin(),
			[]string{"invalid-request", "3:own_for_l0@/agents/0/budget_scope"},
		},
		{
			"a root with a budget scope that is none", document("{id: nova, name: Nova, level: 0, frequency_hz: 999, budget_scope: all}"), admin(),
			[]string{"invalid-request", "3:oneof@/agents/0/budget_scope"},
		},
		{
			"founders deactivated", document("{id: nova, name: Nova, level: 0, frequency_hz: 999, is_active: false}", entry("orch-social", 1, "nova", "is_active: false")), admin(),
			[]string{"protected-agent", "3:protected@/agents/0/is_active", "4:protected@/agents/1/is_active"},
		},
		{
			"an orchestrator under another", document(entry("orch-social", 1, "orch-business", "")), admin(),
			[]string{"invalid-parent-level", "3:parent_level@/agents/0/parent_id"},
		},
	}
}

// TestPlan proves for each case that a dry run changes nothing and foretells
// what the import then does.
func TestPlan(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(moves(), ofMembers(), ranks())
	t.Run("Refused", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			given(t, f)
			for _, c := range cases {
				if c.want == nil {
					continue
				}
				t.Run(c.rule, func(t *testing.T) {
					f.foretell(t, c)
					f.requireUntouched(t, func() {
						_, err := f.load(t, c.by, c.document)
						require.Equal(t, c.want, atLines(err))
					})
				})
			}
		})
	})
	for _, c := range cases {
		if c.want != nil {
			continue
		}
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			onEveryDatabase(t, func(t *testing.T, f *fixture) {
				given(t, f)
				foretold := f.foretell(t, c)
				done, err := f.load(t, c.by, c.document)
				require.NoError(t, err)
				done.DryRun = true
				require.Equal(t, foretold, done)
				require.Empty(t, registrytest.BrokenRules(f.all(t)))
			})
		})
	}

	t.Run("AMissingScopeNamesTheLineAndTheScope", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) {
			_, err := f.load(t, writer(), document(entry("s9", 2, "orch-social", ""), entry("orch-social", 1, "nova", "")))
			require.Equal(t, models.ScopeAdmin, errs.From(err).Meta["scope"])
			require.Contains(t, err.Error(), `line 4: changing the L1 agent "orch-social"`)
		})
	})
}

// foretell makes a dry run of the case and compares it with what is wanted of
// the import.
func (f *fixture) foretell(t *testing.T, c planned) registry.ImportReport {
	t.Helper()
	var report registry.ImportReport
	f.requireUntouched(t, func() {
		doc, found := parse(t, c.document)
		var err error
		report, err = f.Import(t.Context(), c.by, doc, found, true, nil)
		if len(c.want) == 1 { // not a rule of the tree but a scope that is missing
			require.Equal(t, c.want, atLines(err))
			return
		}
		require.NoError(t, err)
		require.True(t, report.DryRun)
		require.Equal(t, c.want == nil, report.Valid)
		if c.want != nil {
			require.Equal(t, c.want[1:], lined(report.Violations))
		}
	})
	return report
}
