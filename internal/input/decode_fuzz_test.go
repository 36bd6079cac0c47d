package input_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/models"
)

// FuzzDecode holds Decode against encoding/json: what it takes is JSON and
// survives a round trip; what it refuses is either not JSON or broken by a rule
// that encoding/json does not have.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"id":"custom-assistant","level":3,"capabilities":["a","custom:b"],"parent_id":null,"budget_scope":"subtree","token_budget":15000}`,
		`{"name":"é","expires_at":"2026-01-10T15:30:00Z"}`, `{"a":1,"a":2}`, `{"level":1e3}`, `[1,2.5,"x",null,{"y":[]}]`,
		"{\"name\":\"\xff\"}", `{"name":"\ud800"}`, `{"name":"\u0000"}`, `{} {}`, ``, `null`, "{\n\"level\":\n\"3\"}", `{"x":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	stricter := []string{"duplicate_key", "utf8", "depth", "range", "printable", "max"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var draft models.AgentDraft
		if err := input.DecodeJSON(data, &draft); err == nil {
			if draft.Capabilities == nil {
				draft.Capabilities = []string{} // encoding/json would write null
			}
			again := new(models.AgentDraft)
			text, err := json.Marshal(written{draft, member(draft.TokenBudget), member(draft.BudgetScope)})
			require.NoError(t, err)
			require.NoError(t, input.DecodeJSON(text, again), "%s", text)
			require.Equal(t, &draft, again)
		} else {
			_ = requireWellFormed(t, err)
		}
		var patch registry.AgentPatch
		if err := input.DecodeJSON(data, &patch); err != nil {
			_ = requireWellFormed(t, err)
		}

		var ours, theirs any
		err := input.DecodeJSON(data, &ours)
		if err == nil {
			require.NoError(t, json.Unmarshal(data, &theirs))
			require.Equal(t, theirs, ours)
			return
		}
		e := requireWellFormed(t, err)
		if json.Valid(data) {
			require.True(t, slices.Contains(stricter, e.Fields[0].Rule), "%v", e)
		}
	})
}

// written is a draft as a client writes it, each optional member a value, null or left out.
type written struct {
	models.AgentDraft
	TokenBudget any `json:"token_budget,omitempty"`
	BudgetScope any `json:"budget_scope,omitempty"`
}

func member[T any](o models.Optional[T]) any {
	switch {
	case !o.Set:
		return nil
	case o.Null:
		return json.RawMessage("null")
	}
	return o.Value
}

// requireWellFormed checks that an error can be shown to a client.
func requireWellFormed(t *testing.T, err error) *errs.Error {
	t.Helper()
	var e *errs.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, []errs.Code{errs.MalformedJSON, errs.InvalidRequest}, e.Code)
	require.NotEmpty(t, e.Fields)
	for _, f := range e.Fields {
		require.NotEmpty(t, f.Rule)
		require.NotEmpty(t, f.Detail)
		require.True(t, f.Pointer == "" || f.Pointer[0] == '/', f.Pointer)
	}
	return e
}
