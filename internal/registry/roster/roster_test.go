package roster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry/roster"
	"comet/models"
)

// good is a document without a mistake; the tests break single lines of it.
const good = `version: 1
agents:
  - id: nova
    name: NOVA
    level: 0
    sphere_id: null
    frequency_hz: 999
    parent_id: null
    token_budget: null
    description: the root
    capabilities: []
  - id: finance-personal
    name: Personal Finance Agent
    level: 2
    sphere_id: 1
    frequency_hz: 555
    parent_id: orch-personnel
    token_budget: 20000
    budget_scope: subtree
    capabilities: [budgeting, "savings"]
    type: research
    is_active: false
`

const goodJSON = `{
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
      "description": "the root",
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
      "capabilities": ["budgeting", "savings"],
      "type": "research",
      "is_active": false
    }
  ]
}
`

func TestParse(t *testing.T) {
	t.Parallel()

	want := []roster.Entry{
		{AgentDraft: models.AgentDraft{
			ID: new("nova"), Name: new("NOVA"), Level: new(models.LevelSystem), FrequencyHz: new(999),
			Description: "the root", Capabilities: []string{},
		}},
		{AgentDraft: models.AgentDraft{
			ID: new("finance-personal"), Name: new("Personal Finance Agent"), Level: new(models.LevelSpecialist),
			SphereID: new(1), FrequencyHz: new(555), ParentID: new("orch-personnel"), TokenBudget: models.Some(int64(20000)),
			BudgetScope: models.Some(models.ScopeSubtree), Capabilities: []string{"budgeting", "savings"}, Type: "research",
		}, IsActive: new(false)},
	}

	t.Run("both formats say the same", func(t *testing.T) {
		t.Parallel()
		y, j := parse(t, good, input.YAML), parse(t, goodJSON, input.JSON)
		require.Equal(t, want, y.Agents)
		require.Equal(t, want, j.Agents)
		require.Equal(t, 1, y.Version)
		require.True(t, y.Agents[0].Active())
		require.False(t, y.Agents[1].Active())
	})

	t.Run("the example of 287 agents has no mistake", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile("../../../examples/roster.yaml")
		require.NoError(t, err)
		require.Len(t, parse(t, string(data), input.YAML).Agents, 287)
	})

	t.Run("YAML's words are kept as they were written where text is wanted", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"no", "yes", "on", "2024-01-01", "2001-12-14t21:59:43.10-05:00", "1.2.3", "1:30", "0b", "=", "é", "e3"} {
			doc := parse(t, strings.Replace(good, "name: NOVA", "name: "+word, 1), input.YAML)
			require.Equal(t, word, *doc.Agents[0].Name)
		}
	})

	t.Run("an empty list of agents is a roster", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, parse(t, "version: 1\nagents: []\n", input.YAML).Agents)
	})

	t.Run("a byte order mark before YAML does no harm", func(t *testing.T) {
		t.Parallel()
		parse(t, "\ufeff"+good, input.YAML)
	})
}

func TestParseYAMLRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string // one replacement in the good document
		line     int
		pointer  string
		rule     string
		says     string
	}{
		"an unknown member with a near miss":    {"    name: NOVA", "    name: NOVA\n    sphere: 1", 5, "/agents/0/sphere", "unknown_field", "agents[0].sphere is not a known member"},
		"a misspelt member":                     {"type: research", "tpye: research", 21, "/agents/1/tpye", "unknown_field", "did you mean type?"},
		"an unknown member of the document":     {"version: 1", "version: 1\nkind: roster", 2, "/kind", "unknown_field", "kind is not a known member; known are version, agents"},
		"a repeated member":                     {"    name: NOVA", "    name: NOVA\n    name: NOVA", 5, "/agents/0/name", "duplicate_key", "given twice, first on line 4"},
		"text where a number is wanted":         {"level: 2", "level: two", 14, "/agents/1/level", "type", "agents[1].level must be an integer, not a string"},
		"a quoted number where one is wanted":   {"level: 2", "level: '2'", 14, "/agents/1/level", "type", "must be an integer, not a string"},
		"a number where text is wanted":         {"name: NOVA", "name: 12", 4, "/agents/0/name", "type", "put 12 in quotes"},
		"an id that is a number":                {"id: nova", "id: 0123", 3, "/agents/0/id", "type", "put 0123 in quotes"},
		"a truth value where text is wanted":    {"name: NOVA", "name: true", 4, "/agents/0/name", "type", "put true in quotes"},
		"a float where an integer is wanted":    {"20000", "20000.5", 18, "/agents/1/token_budget", "type", "decimal digits, not 20000.5"},
		"a hexadecimal number":                  {"20000", "0x4E20", 18, "/agents/1/token_budget", "type", "decimal digits"},
		"an octal number":                       {"20000", "020000", 18, "/agents/1/token_budget", "type", "decimal digits"},
		"underscores in a number":               {"20000", "20_000", 18, "/agents/1/token_budget", "type", "decimal digits"},
		"a plus sign":                           {"20000", "+20000", 18, "/agents/1/token_budget", "type", "decimal digits"},
		"a number that does not fit":            {"20000", "99999999999999999999", 18, "/agents/1/token_budget", "range", "64 bits"},
		"yes where true is wanted":              {"is_active: false", "is_active: no", 22, "/agents/1/is_active", "type", "true or false, not a string"},
		"True where true is wanted":             {"is_active: false", "is_active: False", 22, "/agents/1/is_active", "type", "written true or false"},
		"null for a name":                       {"name: NOVA", "name: null", 4, "/agents/0/name", "not_null", "must not be null"},
		"nothing after a member":                {"name: NOVA", "name:", 4, "/agents/0/name", "not_null", "must not be null"},
		"null for a level":                      {"level: 2", "level: ~", 14, "/agents/1/level", "not_null", "must not be null"},
		"null for is_active":                    {"is_active: false", "is_active: ~", 22, "/agents/1/is_active", "not_null", "must not be null"},
		"null for capabilities":                 {"capabilities: []", "capabilities: ~", 11, "/agents/0/capabilities", "not_null", "must not be null"},
		"null for the budget of an L2":          {"20000", "null", 18, "/agents/1/token_budget", "not_null", "only the L0 agent has none"},
		"null for the sphere of an L2":          {"sphere_id: 1", "sphere_id:", 15, "/agents/1/sphere_id", "not_null", "only the L0 agent has none"},
		"a list where text is wanted":           {"name: NOVA", "name: [a]", 4, "/agents/0/name", "type", "must be a string, not an array"},
		"an object where text is wanted":        {"name: NOVA", "name: {a: b}", 4, "/agents/0/name", "type", "must be a string, not an object"},
		"text where a list is wanted":           {"[budgeting, \"savings\"]", "budgeting", 20, "/agents/1/capabilities", "type", "must be an array, not a string"},
		"a number among the capabilities":       {"[budgeting,", "[7,", 20, "/agents/1/capabilities/0", "type", "agents[1].capabilities[0] must be a string"},
		"an agent that is text":                 {"  - id: nova\n", "  - nova\n  - id: nova\n", 3, "/agents/0", "type", "agents[0] must be an object, not a string"},
		"a missing version":                     {"version: 1\n", "", 1, "/version", "required", "version is required"},
		"another version":                       {"version: 1", "version: 2", 1, "/version", "version", "version must be 1, not 2"},
		"a version that is text":                {"version: 1", "version: '1'", 1, "/version", "type", "must be an integer"},
		"a missing id":                          {"- id: nova\n    name", "- name", 3, "/agents/0/id", "required", "agents[0].id is required"},
		"a missing level":                       {"    level: 2\n", "", 12, "/agents/1/level", "required", "agents[1].level is required"},
		"an id with a capital":                  {"id: nova", "id: Nova", 3, "/agents/0/id", "agent_id", "agents[0].id must"},
		"a sphere out of range":                 {"sphere_id: 1", "sphere_id: 10", 15, "/agents/1/sphere_id", "max", "agents[1].sphere_id must be at most 9"},
		"a budget below 1000":                   {"20000", "999", 18, "/agents/1/token_budget", "min", "at least 1000"},
		"a budget scope that is none":           {"subtree", "all", 19, "/agents/1/budget_scope", "oneof", "agents[1].budget_scope must be one of own, subtree, not \"all\""},
		"an empty budget scope":                 {"subtree", "''", 19, "/agents/1/budget_scope", "oneof", "must be one of own, subtree"},
		"null for a budget scope":               {"subtree", "null", 19, "/agents/1/budget_scope", "not_null", "must not be null"},
		"a number for a budget scope":           {"subtree", "1", 19, "/agents/1/budget_scope", "type", "put 1 in quotes"},
		"a capability twice":                    {"\"savings\"", "budgeting", 20, "/agents/1/capabilities/1", "unique", "repeats"},
		"an id that another agent has":          {"id: finance-personal", "id: nova", 12, "/agents/1/id", "unique", "repeats the agent nova of line 3"},
		"an anchor":                             {"name: NOVA", "name: &n NOVA", 4, "/agents/0/name", "anchor", "agents[0].name must not have an anchor (&n)"},
		"a merge key":                           {"    name: NOVA", "    name: NOVA\n    <<: {type: x}", 5, "/agents/0/<<", "merge", "merge key"},
		"a tag":                                 {"name: NOVA", "name: !!str 12", 4, "/agents/0/name", "tag", "must not have a tag (!!str)"},
		"a second document":                     {"is_active: false\n", "is_active: false\n---\nversion: 1\n", 23, "", "trailing_data", "second YAML document"},
		"a tab for indentation":                 {"    name: NOVA", "\tname: NOVA", 4, "", "syntax", "a tab is used to indent"},
		"a NUL in text":                         {"name: NOVA", `name: "NO\0VA"`, 4, "/agents/0/name", "printable", "U+0000"},
		"a raw control character":               {"name: NOVA", "name: NO\x01VA", 4, "", "printable", "U+0001"},
		"invalid UTF-8":                         {"name: NOVA", "name: NO\xffVA", 4, "", "utf8", "UTF-8"},
		"a line break in a name":                {"name: NOVA", `name: "NO\nVA"`, 4, "/agents/0/name", "printable", "control characters"},
		"a document that is a list":             {good, "- version: 1\n", 1, "", "type", "must be an object, not an array"},
		"a document that is text":               {good, "roster\n", 1, "", "type", "must be an object"},
		"an empty document":                     {good, "# nothing\n", 1, "", "required", "the document is empty"},
		"agents that are an object":             {good, "version: 1\nagents: {}\n", 2, "/agents", "type", "agents must be an array, not an object"},
		"no agents":                             {good, "version: 1\n", 1, "/agents", "required", "agents is required"},
		"agents without a value":                {good, "version: 1\nagents:\n", 2, "/agents", "not_null", "agents must not be null, it must be an array"},
		"nesting without end":                   {good, "version: 1\nagents: " + strings.Repeat("[", 80) + strings.Repeat("]", 80), 2, "/agents" + strings.Repeat("/0", 64), "depth", "deep"},
		"more agents than a document may have":  {good, "version: 1\nagents: [" + strings.Repeat("{},", 10_001) + "]", 2, "/agents", "max", "at most 10000 entries, not 10001"},
		"a member whose name needs escaping":    {"    name: NOVA", "    name: NOVA\n    a/b~c: 1", 5, "/agents/0/a~1b~0c", "unknown_field", "a/b~c is not a known member"},
		"a tag that hides a number":             {"level: 2", "level: !x 2", 14, "/agents/1/level", "tag", "!x"},
		"a misplaced closing bracket somewhere": {"[budgeting, \"savings\"]", "[budgeting, \"savings\"]]", 20, "", "syntax", "did not find expected key in the value that begins on line 12; check its indentation and brackets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, good, c.old)
			_, violations := roster.Parse([]byte(strings.Replace(good, c.old, c.new, 1)), input.YAML)
			require.NotEmpty(t, violations)
			v := violations[0]
			require.Equal(t, c.pointer, v.Pointer, v.Detail)
			require.Equal(t, c.rule, v.Rule, v.Detail)
			require.Contains(t, v.Detail, c.says)
			require.Equal(t, c.line, v.Line, v.Detail)
			if c.pointer != "/agents/0" && c.rule != "depth" {
				require.Len(t, violations, 1, "%v", violations)
			}
		})
	}
}

func TestParseJSONRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string
		line     int
		pointer  string
		rule     string
		says     string
		code     errs.Code
	}{
		"an unknown member":            {`"name": "NOVA",`, `"name": "NOVA", "x": 1,`, 6, "/agents/0/x", "unknown_field", "agents[0].x is not a known member", errs.InvalidRequest},
		"a repeated member":            {`"name": "NOVA",`, `"name": "NOVA", "name": 1,`, 6, "/agents/0/name", "duplicate_key", "given twice, first on line 6", errs.MalformedJSON},
		"a string for a number":        {`"level": 2`, `"level": "2"`, 18, "/agents/1/level", "type", "must be an integer, not a string", errs.InvalidRequest},
		"a number with a fraction":     {`20000`, `20000.5`, 22, "/agents/1/token_budget", "type", "decimal digits", errs.InvalidRequest},
		"a number out of range":        {`20000`, `9223372036854775808`, 22, "/agents/1/token_budget", "range", "64 bits", errs.InvalidRequest},
		"a number for a string":        {`"NOVA"`, `12`, 6, "/agents/0/name", "type", "put 12 in quotes", errs.InvalidRequest},
		"null":                         {`"NOVA"`, `null`, 6, "/agents/0/name", "not_null", "must not be null", errs.InvalidRequest},
		"a NUL":                        {`"NOVA"`, `"\u0000"`, 6, "/agents/0/name", "printable", "NUL", errs.InvalidRequest},
		"trailing text":                {"  ]\n}\n", "  ]\n}\nx", 30, "", "trailing_data", "more data after", errs.MalformedJSON},
		"a second document":            {"  ]\n}\n", "  ]\n}\n{}", 30, "", "trailing_data", "more data after", errs.MalformedJSON},
		"a trailing comma":             {`"is_active": false`, `"is_active": false,`, 26, "", "syntax", "not valid JSON", errs.MalformedJSON},
		"a comment":                    {"{\n", "// x\n{\n", 1, "", "syntax", "not valid JSON", errs.MalformedJSON},
		"an end before the end":        {"  ]\n}\n", "", 27, "", "syntax", "ends before", errs.MalformedJSON},
		"half a surrogate pair":        {`"NOVA"`, `"\ud800"`, 6, "", "utf8", "UTF-8", errs.MalformedJSON},
		"invalid UTF-8":                {`"NOVA"`, "\"\xff\"", 6, "", "utf8", "UTF-8", errs.MalformedJSON},
		"nesting without end":          {goodJSON, strings.Repeat("[", 100_000), 1, "", "depth", "deeper", errs.MalformedJSON},
		"an empty document":            {goodJSON, " \n", 1, "", "required", "empty", errs.MalformedJSON},
		"a YAML document sent as JSON": {goodJSON, good, 1, "", "syntax", "not valid JSON", errs.MalformedJSON},
		"a missing member":             {`"level": 2,`, ``, 15, "/agents/1/level", "required", "agents[1].level is required", errs.InvalidRequest},
		"an id that another agent has": {`"id": "finance-personal"`, `"id": "nova"`, 16, "/agents/1/id", "unique", "of line 4", errs.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, goodJSON, c.old)
			_, violations := roster.Parse([]byte(strings.Replace(goodJSON, c.old, c.new, 1)), input.JSON)
			require.Len(t, violations, 1, "%v", violations)
			v := violations[0]
			if c.pointer != "" {
				require.Equal(t, c.pointer, v.Pointer, v.Detail)
			}
			require.Equal(t, c.rule, v.Rule, v.Detail)
			require.Equal(t, c.code, v.Code)
			require.Contains(t, v.Detail, c.says)
			require.Equal(t, c.line, v.Line, v.Detail)
		})
	}
}

// parse reads a document that should have no mistake.
func parse(t *testing.T, text string, format input.Format) *roster.Document {
	t.Helper()
	doc, violations := roster.Parse([]byte(text), format)
	require.Empty(t, violations)
	return doc
}

func TestEveryMistakeIsListed(t *testing.T) {
	t.Parallel()
	const bad = `version: 1
agents:
  - id: &a Nova
    name: 12
    level: 7
    frequency_hz: x
    nmae: y
  - 3
  - id: b
    id: c
    level: 3
    capabilities: [1, two, two]
`
	t.Run("in the order of the document, with lines and pointers", func(t *testing.T) {
		t.Parallel()
		_, violations := roster.Parse([]byte(bad), input.YAML)
		var got []string
		for _, v := range violations {
			got = append(got, fmt.Sprintf("%d %s %s", v.Line, v.Pointer, v.Rule))
		}
		require.Equal(t, []string{
			"3 /agents/0/id anchor", "4 /agents/0/name type", "5 /agents/0/level max", "6 /agents/0/frequency_hz type",
			"7 /agents/0/nmae unknown_field", "8 /agents/1 type",
			"9 /agents/2/name required", "10 /agents/2/id duplicate_key",
			"12 /agents/2/capabilities/0 type", "12 /agents/2/capabilities/2 unique",
		}, got)
	})

	t.Run("a document of more parts than agents could need is not read at all", func(t *testing.T) {
		t.Parallel()
		for format, text := range map[input.Format]string{
			input.YAML: "version: 1\nagents: []\n" + strings.Repeat("#\n", roster.MaxParts),
			input.JSON: "[" + strings.Repeat("1,", roster.MaxParts+1) + "1]",
		} {
			_, violations := roster.Parse([]byte(text), format)
			require.Len(t, violations, 1)
			require.Contains(t, violations[0].Detail, "more than 300000 lines and entries")
		}
	})

	t.Run("a document of nothing but mistakes is not answered without end", func(t *testing.T) {
		t.Parallel()
		_, violations := roster.Parse([]byte("version: 1\nagents:\n"+strings.Repeat("  - {a: 1, b: 2}\n", 9000)), input.YAML)
		require.Len(t, violations, 1000)
		require.Contains(t, violations[1000-1].Detail, "more errors")
	})
}

func TestLine(t *testing.T) {
	t.Parallel()
	for format, c := range map[input.Format]struct {
		text  string
		lines map[string]int
	}{
		input.YAML: {good, map[string]int{
			"": 1, "/version": 1, "/agents": 2, "/agents/0": 3, "/agents/0/id": 3, "/agents/1": 12, "/agents/1/level": 14,
			"/agents/1/capabilities/1": 20, "/agents/1/nothing": 12, "/agents/7": 2, "/nothing": 1,
		}},
		input.JSON: {goodJSON, map[string]int{
			"": 1, "/version": 2, "/agents": 3, "/agents/0": 4, "/agents/0/id": 5, "/agents/1": 15, "/agents/1/level": 18,
			"/agents/1/capabilities/1": 24, "/agents/1/nothing": 15, "/agents/7": 3, "/nothing": 1,
		}},
	} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			doc, violations := roster.Parse([]byte(c.text), format)
			require.Empty(t, violations)
			for pointer, line := range c.lines {
				require.Equal(t, line, doc.Line(pointer), pointer)
			}
		})
	}

	t.Run("a document that could not be read has one line", func(t *testing.T) {
		t.Parallel()
		doc, violations := roster.Parse([]byte("{"), input.JSON)
		require.NotEmpty(t, violations)
		require.Equal(t, 1, doc.Line("/agents/3"))
	})
}
