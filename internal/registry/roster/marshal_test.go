package roster_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	yaml "go.yaml.in/yaml/v3"

	"comet/internal/input"
	"comet/internal/registry/roster"
	"comet/models"
)

// exported is what the tests write: the root, and an agent with everything set.
func exported() []models.Agent {
	return []models.Agent{
		{ID: "nova", Name: "NOVA", Level: models.LevelSystem, FrequencyHz: 999, BudgetScope: models.ScopeOwn, IsActive: true, Version: 7},
		{
			ID: "finance-personal", Name: "Personal Finance Agent", Level: models.LevelSpecialist, SphereID: new(1),
			FrequencyHz: 555, ParentID: new("orch-personnel"), TokenBudget: new(int64(20000)), BudgetScope: models.ScopeSubtree,
			Capabilities: []string{"budgeting", "custom:my_workflow"}, Description: "L2 Specialist: money", Type: "research",
		},
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()

	t.Run("YAML reads like the example", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		require.NoError(t, roster.MarshalYAML(&out, exported()))
		require.Equal(t, `version: 1
agents:
  - id: nova
    name: NOVA
    level: 0
    sphere_id: null
    frequency_hz: 999
    parent_id: null
    token_budget: null
    capabilities: []
  - id: finance-personal
    name: Personal Finance Agent
    level: 2
    sphere_id: 1
    frequency_hz: 555
    parent_id: orch-personnel
    token_budget: 20000
    budget_scope: subtree
    description: "L2 Specialist: money"
    capabilities: [budgeting, 'custom:my_workflow']
    type: research
    is_active: false
`, out.String())
	})

	t.Run("JSON has the same members in the same order", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		require.NoError(t, roster.MarshalJSON(&out, exported()))
		require.Equal(t, `{
  "version": 1,
  "agents": [
    {
      "id": "nova",
      "name": "NOVA",
      "level": 0,
      "sphere_id": null,
      "frequency_hz": 999,
      "parent_id": null,
      "token_budget": null,
      "capabilities": []
    },
    {
      "id": "finance-personal",
      "name": "Personal Finance Agent",
      "level": 2,
      "sphere_id": 1,
      "frequency_hz": 555,
      "parent_id": "orch-personnel",
      "token_budget": 20000,
      "budget_scope": "subtree",
      "description": "L2 Specialist: money",
      "capabilities": [
        "budgeting",
        "custom:my_workflow"
      ],
      "type": "research",
      "is_active": false
    }
  ]
}
`, out.String())
	})

	t.Run("no agents make a document too", func(t *testing.T) {
		t.Parallel()
		for _, format := range []input.Format{input.YAML, input.JSON} {
			require.Empty(t, again(t, format, nil))
		}
	})

	t.Run("a writer that fails is reported", func(t *testing.T) {
		t.Parallel()
		require.Error(t, roster.MarshalYAML(brokenPipe{}, exported()))
		require.Error(t, roster.MarshalJSON(brokenPipe{}, exported()))
	})
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()

	t.Run("what was written is read back", func(t *testing.T) {
		t.Parallel()
		for _, format := range []input.Format{input.YAML, input.JSON} {
			entries := again(t, format, exported())
			require.Len(t, entries, 2)
			require.Nil(t, entries[0].SphereID)
			require.False(t, entries[0].TokenBudget.Set)
			require.False(t, entries[0].BudgetScope.Set, "own goes without saying")
			require.Equal(t, models.Some(models.ScopeSubtree), entries[1].BudgetScope)
			require.True(t, entries[0].Active())
			require.Equal(t, "L2 Specialist: money", entries[1].Description)
			require.False(t, entries[1].Active())
		}
	})

	t.Run("hostile text survives both formats", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{
			"yes", "No", "on", "y", "null", "~", "true", "0123", "1e3", "0x1F", "1_000", ".inf", ".NaN", "2024-01-01", "12:30:45",
			"a: b", "a:", ": a", "a #b", "#a", "- a", "-", "? a", "[a]", "{a: b}", "a, b", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a`",
			`"a"`, "'a'", `a"b`, `a\nb`, "---", "...", "<<", "=", " a", "a ", "a\nb", "a\n\nb\n", "\na", "a\tb", "a\r\nb",
			"é", "日本語", "🙂", "a\u2028b", "a\u00a0b", "\ufeffa", "e\u0301", "\U0010fffd", "\ufffd", strings.Repeat("long words ", 150),
		} {
			a := exported()[1]
			a.Description = s
			for _, format := range []input.Format{input.YAML, input.JSON} {
				require.Equal(t, s, again(t, format, []models.Agent{a})[0].Description, "%s %q", format, s)
			}
		}
	})

	t.Run("other YAML readers see text as text", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{"yes", "0123", "1e3", "2024-01-01", "null", "12:30:45", "off", "~"} {
			a := exported()[1]
			a.Description = s
			var out bytes.Buffer
			require.NoError(t, roster.MarshalYAML(&out, []models.Agent{a}))
			require.Contains(t, out.String(), `description: "`+s+`"`)
			var plain struct {
				Agents []struct{ Description any }
			}
			require.NoError(t, yaml.Unmarshal(out.Bytes(), &plain))
			require.Equal(t, s, plain.Agents[0].Description)
		}
	})
}

// again writes the agents and reads them back.
func again(t *testing.T, format input.Format, agents []models.Agent) []roster.Entry {
	t.Helper()
	var out bytes.Buffer
	write := roster.MarshalYAML
	if format == input.JSON {
		write = roster.MarshalJSON
	}
	require.NoError(t, write(&out, agents))
	doc, violations := roster.Parse(out.Bytes(), format)
	require.Empty(t, violations, out.String())
	return doc.Agents
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func FuzzParseYAML(f *testing.F) {
	f.Add([]byte(good))
	for _, s := range []string{"version: 1\nagents: []", "{version: 1, agents: [{id: a}]}", "&a [*a]", "? a", "a: !!int b", "agents:\n- level: 0x1\n", "\t", "version: 1\nagents:\n  - <<: {}\n", "version: 1\nagents:\n  - {id: a, name: A, level: 0}\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, input.YAML) })
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(goodJSON))
	for _, s := range []string{`{"version":1,"agents":[]}`, `{"version":1,"version":2}`, "[", `{"agents":[{"id":1e9}]}`, `"\ud800"`, "{}{}", "nul"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { check(t, data, input.JSON) })
}

// check holds for every input: it is answered, each mistake has a place, and
// what is accepted can be written and read again to the same agents.
func check(t *testing.T, data []byte, format input.Format) {
	doc, violations := roster.Parse(data, format)
	require.NotNil(t, doc)
	for _, v := range violations {
		require.Positive(t, v.Line)
		require.NotEmpty(t, v.Rule)
		require.NotEmpty(t, v.Detail)
		require.NotEmpty(t, v.Code)
		require.True(t, utf8.ValidString(v.Pointer+v.Detail))
	}
	if len(violations) > 0 {
		return
	}
	agents := make([]models.Agent, len(doc.Agents))
	for i, e := range doc.Agents {
		if e.FrequencyHz == nil || *e.Level > 0 && (e.SphereID == nil || e.ParentID == nil || !e.TokenBudget.Set) {
			return // the registry fills or refuses these
		}
		agents[i] = models.Agent{
			ID: *e.ID, Name: *e.Name, Level: *e.Level, SphereID: e.SphereID, FrequencyHz: *e.FrequencyHz, ParentID: e.ParentID,
			TokenBudget: e.TokenBudget.Pointer(), BudgetScope: e.BudgetScope.Value, Capabilities: e.Capabilities, Description: e.Description, Type: e.Type, IsActive: e.Active(),
		}
	}
	for i, e := range again(t, format, agents) {
		want := doc.Agents[i]
		if want.Capabilities == nil {
			want.Capabilities = []string{}
		}
		if want.BudgetScope.Value == models.ScopeOwn { // it goes without saying
			want.BudgetScope = models.Optional[models.BudgetScope]{}
		}
		require.Equal(t, want.AgentDraft, e.AgentDraft)
		require.Equal(t, want.Active(), e.Active())
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"yes", "a: b", "x\ny", "\u2028", "\ufeff", "'", "\"", "\\", "#", "a\u0085b", "\u200b", "\ufffe"} {
		f.Add("Name "+s, s)
	}
	f.Fuzz(func(t *testing.T, name, description string) {
		if !utf8.ValidString(name) || !utf8.ValidString(description) || strings.ContainsFunc(name+description, refused) {
			return
		}
		a := exported()[1]
		a.Name, a.Description = name, description
		for _, format := range []input.Format{input.YAML, input.JSON} {
			var out bytes.Buffer
			write := roster.MarshalYAML
			if format == input.JSON {
				write = roster.MarshalJSON
			}
			require.NoError(t, write(&out, []models.Agent{a}))
			doc, violations := roster.Parse(out.Bytes(), format)
			for _, v := range violations { // a name may be blank or too long
				require.Contains(t, []string{"/agents/0/name", "/agents/0/description"}, v.Pointer, v.Detail)
			}
			require.Equal(t, name, *doc.Agents[0].Name)
			require.Equal(t, description, doc.Agents[0].Description)
		}
	})
}

// refused are the characters no field of an agent may hold.
func refused(r rune) bool { return r == 0 }
