package input_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
)

// rules are expected violations, each as "pointer rule".
type rules = []string

// draft returns a create request that breaks no rule, changed by change.
func draft(change func(*models.AgentDraft)) *models.AgentDraft {
	d := &models.AgentDraft{
		ID: new("custom-assistant"), Name: new("Custom Assistant"), Level: new(models.LevelAssistant),
		FrequencyHz: new(444), Capabilities: []string{"scheduling", "custom:my_workflow"},
	}
	change(d)
	return d
}

func TestAgentDraft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*models.AgentDraft)
		want   rules
		detail string
	}{
		"the plain request":      {func(*models.AgentDraft) {}, nil, ""},
		"everything missing":     {func(d *models.AgentDraft) { *d = models.AgentDraft{} }, rules{"/id required", "/name required", "/level required"}, "id is required"},
		"level zero is a level":  {func(d *models.AgentDraft) { d.Level = new(models.LevelSystem) }, nil, ""},
		"level -1":               {func(d *models.AgentDraft) { d.Level = new(models.Level(-1)) }, rules{"/level min"}, "level must be at least 0, not -1"},
		"level 4":                {func(d *models.AgentDraft) { d.Level = new(models.Level(4)) }, rules{"/level max"}, "level must be at most 3, not 4"},
		"sphere 0":               {func(d *models.AgentDraft) { d.SphereID = new(0) }, rules{"/sphere_id min"}, "sphere_id must be at least 1, not 0"},
		"sphere 1":               {func(d *models.AgentDraft) { d.SphereID = new(1) }, nil, ""},
		"sphere 9":               {func(d *models.AgentDraft) { d.SphereID = new(9) }, nil, ""},
		"sphere 10":              {func(d *models.AgentDraft) { d.SphereID = new(10) }, rules{"/sphere_id max"}, "sphere_id must be at most 9, not 10"},
		"budget 999":             {func(d *models.AgentDraft) { d.TokenBudget = models.Some(int64(999)) }, rules{"/token_budget min"}, "token_budget must be at least 1000, not 999"},
		"budget 1000":            {func(d *models.AgentDraft) { d.TokenBudget = models.Some(int64(1000)) }, nil, ""},
		"an empty id":            {func(d *models.AgentDraft) { d.ID = new("") }, rules{"/id agent_id"}, "id must be 1 to 64 lowercase letters"},
		"an id of 64":            {func(d *models.AgentDraft) { d.ID = new(strings.Repeat("a", 64)) }, nil, ""},
		"an id of 65":            {func(d *models.AgentDraft) { d.ID = new(strings.Repeat("a", 65)) }, rules{"/id agent_id"}, "1 to 64"},
		"an id in capitals":      {func(d *models.AgentDraft) { d.ID = new("Nova") }, rules{"/id agent_id"}, `not "Nova"`},
		"an id with underscore":  {func(d *models.AgentDraft) { d.ID = new("a_b") }, rules{"/id agent_id"}, ""},
		"an id with two hyphens": {func(d *models.AgentDraft) { d.ID = new("a--b") }, rules{"/id agent_id"}, ""},
		"an id that begins so":   {func(d *models.AgentDraft) { d.ID = new("-a") }, rules{"/id agent_id"}, ""},
		"an id that ends so":     {func(d *models.AgentDraft) { d.ID = new("a-") }, rules{"/id agent_id"}, ""},
		"an id with a path":      {func(d *models.AgentDraft) { d.ID = new("../etc") }, rules{"/id agent_id"}, ""},
		"an id with a line feed": {func(d *models.AgentDraft) { d.ID = new("a\n") }, rules{"/id agent_id"}, `"a\n"`},
		"an id in Cyrillic":      {func(d *models.AgentDraft) { d.ID = new("агент") }, rules{"/id agent_id"}, ""},
		"a blank name":           {func(d *models.AgentDraft) { d.Name = new(" \t\u00a0") }, rules{"/name not_blank"}, "name must not be blank"},
		"a name of 120 runes":    {func(d *models.AgentDraft) { d.Name = new(strings.Repeat("é", 120)) }, nil, ""},
		"a name of 121 runes":    {func(d *models.AgentDraft) { d.Name = new(strings.Repeat("é", 121)) }, rules{"/name max"}, "name must be at most 120 characters long, not 121"},
		"a name with a line":     {func(d *models.AgentDraft) { d.Name = new("a\nb") }, rules{"/name printable"}, "name must not contain control characters"},
		"a name with an escape":  {func(d *models.AgentDraft) { d.Name = new("a\x1b[31m") }, rules{"/name printable"}, ""},
		"a name with C1":         {func(d *models.AgentDraft) { d.Name = new("a\u0085") }, rules{"/name printable"}, ""},
		"a name like SQL":        {func(d *models.AgentDraft) { d.Name = new(`'; DROP TABLE agents; --`) }, nil, ""},
		"a name with blanks":     {func(d *models.AgentDraft) { d.Name = new(" a ") }, nil, ""},
		"a description of lines": {func(d *models.AgentDraft) { d.Description = "a\n\tb\r\n" }, nil, ""},
		"a description with BEL": {func(d *models.AgentDraft) { d.Description = "a\a" }, rules{"/description printable"}, "other than line breaks and tabs"},
		"a description of 2000":  {func(d *models.AgentDraft) { d.Description = strings.Repeat("😀", 2000) }, nil, ""},
		"a description of 2001":  {func(d *models.AgentDraft) { d.Description = strings.Repeat("😀", 2001) }, rules{"/description max"}, "at most 2000 characters long, not 2001"},
		"a type":                 {func(d *models.AgentDraft) { d.Type = "my_type-2" }, nil, ""},
		"a type in capitals":     {func(d *models.AgentDraft) { d.Type = "Research" }, rules{"/type word"}, ""},
		"a type of 65":           {func(d *models.AgentDraft) { d.Type = strings.Repeat("a", 65) }, rules{"/type word"}, ""},
		"an empty parent":        {func(d *models.AgentDraft) { d.ParentID = new("") }, rules{"/parent_id agent_id"}, ""},
		"a capability":           {func(d *models.AgentDraft) { d.Capabilities = []string{"custom:server:tool.v1/x-y_Z"} }, nil, ""},
		"an empty capability":    {func(d *models.AgentDraft) { d.Capabilities = []string{"a", ""} }, rules{"/capabilities/1 capability"}, "capabilities[1] must be 1 to 128"},
		"custom: alone":          {func(d *models.AgentDraft) { d.Capabilities = []string{"custom:", "custom:-a"} }, rules{"/capabilities/0 capability", "/capabilities/1 capability"}, "capabilities[0] must be 1 to 128"},
		"capabilities with blanks": {
			func(d *models.AgentDraft) { d.Capabilities = []string{"a b", "c", " d"} },
			rules{"/capabilities/0 capability", "/capabilities/2 capability"}, `not "a b"`,
		},
		"a capability of 128": {func(d *models.AgentDraft) { d.Capabilities = []string{strings.Repeat("a", 128)} }, nil, ""},
		"a capability of 129": {func(d *models.AgentDraft) { d.Capabilities = []string{strings.Repeat("a", 129)} }, rules{"/capabilities/0 capability"}, ""},
		"capabilities twice": {
			func(d *models.AgentDraft) { d.Capabilities = []string{"a", "b", "a", "b", "a"} },
			rules{"/capabilities/2 unique", "/capabilities/3 unique", "/capabilities/4 unique"}, "capabilities[2] repeats capabilities[0]",
		},
		"256 capabilities": {func(d *models.AgentDraft) { d.Capabilities = many(256) }, nil, ""},
		"257 capabilities": {func(d *models.AgentDraft) { d.Capabilities = many(257) }, rules{"/capabilities max"}, "capabilities must have at most 256 entries, not 257"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireViolations(t, c.want, c.detail, input.Validate(draft(c.change)))
		})
	}
}

func many(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("a", i/26+1) + string(rune('a'+i%26))
	}
	return all
}

func requireViolations(t *testing.T, want []string, detail string, got errs.Violations) {
	t.Helper()
	var seen []string
	for _, v := range got {
		require.Equal(t, errs.InvalidRequest, v.Code)
		require.NotEmpty(t, v.Detail)
		seen = append(seen, v.Pointer+" "+v.Rule)
	}
	require.Equal(t, want, seen)
	if len(got) > 0 {
		require.Contains(t, got[0].Detail, detail)
	}
}

func TestAgentPatch(t *testing.T) {
	t.Parallel()

	t.Run("what is absent or null breaks no field's rule", func(t *testing.T) {
		t.Parallel()
		null := models.Optional[string]{Set: true, Null: true}
		require.Empty(t, input.Validate(&registry.AgentPatch{}))
		require.Empty(t, input.Validate(&registry.AgentPatch{Name: null, ParentID: null, Type: null}))
	})

	t.Run("what is present obeys the rules of a create request", func(t *testing.T) {
		t.Parallel()
		requireViolations(t, []string{
			"/name not_blank", "/description printable", "/type word", "/capabilities/1 unique",
			"/sphere_id max", "/parent_id agent_id", "/token_budget min",
		}, "name must not be blank", input.Validate(&registry.AgentPatch{
			Name: models.Some(""), Description: models.Some("\x01"), Type: models.Some("No"), Capabilities: models.Some([]string{"a", "a"}),
			SphereID: models.Some(10), ParentID: models.Some("-"), TokenBudget: models.Some(int64(0)),
		}))
		requireViolations(t, []string{"/capabilities/0 capability"}, "", input.Validate(&registry.AgentPatch{
			Capabilities: models.Some([]string{"a b"}), Type: models.Some(""), SphereID: models.Some(1),
		}))
	})
}

func TestTokenDraft(t *testing.T) {
	t.Parallel()
	token := func(scopes ...models.Scope) *auth.TokenDraft {
		return &auth.TokenDraft{Name: new("ci"), Scopes: scopes}
	}
	require.Empty(t, input.Validate(token(models.Scopes()...)))
	requireViolations(t, []string{"/scopes required"}, "scopes is required", input.Validate(&auth.TokenDraft{Name: new("ci")}))
	requireViolations(t, []string{"/scopes min"}, "scopes must have at least 1 entry, not 0", input.Validate(token([]models.Scope{}...)))
	requireViolations(t, []string{"/scopes/1 scope"}, `be one of admin, agents:read, agents:write`, input.Validate(token("admin", "root")))
	requireViolations(t, []string{"/scopes/1 unique"}, "scopes[1] repeats scopes[0]", input.Validate(token("admin", "admin")))
}

func TestPointers(t *testing.T) {
	t.Parallel()
	type leaf struct {
		Value int `json:"a/b~c" validate:"min=1"`
	}
	type tree struct {
		Leaves [][]leaf `json:"leaves" validate:"dive,dive"`
	}
	requireViolations(t, []string{"/leaves/1/2/a~1b~0c min"}, "leaves[1][2].a/b~c must be at least 1, not 0",
		input.Validate(tree{Leaves: [][]leaf{{}, {{1}, {1}, {0}}}}))
}

// TestEmbeddedStructs: their members are the outer struct's, in JSON and in a
// pointer, however deep they are.
func TestEmbeddedStructs(t *testing.T) {
	t.Parallel()
	type batch struct {
		Facts []usage.FactDraft `json:"facts" validate:"dive"`
	}
	labels := models.FactLabels{Model: "a\tb"}
	requireViolations(t, []string{"/model printable"}, "model must not contain control characters",
		input.Validate(usage.FactDraft{Tokens: new(int64(1)), FactLabels: labels}))
	requireViolations(t, []string{"/facts/1/model printable"}, "facts[1].model must not contain control characters",
		input.Validate(batch{[]usage.FactDraft{{Tokens: new(int64(1))}, {Tokens: new(int64(1)), FactLabels: labels}}}))
}

func TestItIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	var found atomic.Int64
	for range 16 {
		wg.Go(func() {
			for range 50 {
				found.Add(int64(len(input.Validate(draft(func(d *models.AgentDraft) { d.Name = nil })))))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 16*50, found.Load())
}

func BenchmarkStruct(b *testing.B) {
	d := draft(func(*models.AgentDraft) {})
	b.ReportAllocs()
	for b.Loop() {
		if input.Validate(d) != nil {
			b.Fatal("refused")
		}
	}
}

// TestNearestKnownWord: the error about an unknown word names the nearest known one.
func TestNearestKnownWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"a scope":               {auth.TokenDraft{Name: new("ci"), Scopes: []models.Scope{"agent:read"}}, "; did you mean agents:read?"},
		"one of several words":  {usage.FactOutcome{Outcome: "sucess"}, `must be one of success, failed, timeout, cancelled, not "sucess"; did you mean success?`},
		"a word that is unlike": {usage.FactOutcome{Outcome: "perhaps"}, `must be one of success, failed, timeout, cancelled, not "perhaps"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := input.Validate(c.value)
			require.Len(t, found, 1)
			require.True(t, strings.HasSuffix(found[0].Detail, c.want), found[0].Detail)
		})
	}
}

func TestANullMemberOfAPatchNeedsATagThatAllowsIt(t *testing.T) {
	t.Parallel()
	null := models.Optional[string]{Set: true, Null: true}
	requireViolations(t, []string{"/name not_null"}, "name must not be null", input.ValidatePatch(registry.AgentPatch{Name: null, Type: null, ParentID: null}))
}

func TestViolationsOfATypeWithoutAName(t *testing.T) {
	t.Parallel()
	v := struct {
		Name  string `json:"name" validate:"required"`
		Inner struct {
			Size int `json:"size" validate:"min=1"`
		} `json:"inner"`
	}{}
	found := input.Validate(v)
	require.Len(t, found, 2)
	require.Equal(t, []string{"/name", "/inner/size"}, []string{found[0].Pointer, found[1].Pointer})
}
