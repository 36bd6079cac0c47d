package input_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input"
	"comet/models"
)

func TestRules(t *testing.T) {
	t.Parallel()
	type nested struct {
		Name string `json:"name" validate:"required"`
	}
	type values struct {
		Required *int                     `json:"required" validate:"required"`
		Struct   nested                   `json:"struct" validate:"required"`
		Pointer  *nested                  `json:"pointer,omitempty"`
		Any      any                      `json:"any"`
		NoName   string                   `validate:"max=1"`
		Hidden   string                   `json:"-" validate:"max=1"`
		Zero     *int                     `json:"zero" validate:"omitempty,min=1"`
		Empty    int                      `json:"empty" validate:"omitempty,min=1"`
		Nil      []int                    `json:"nil" validate:"omitnil,min=1"`
		Ratio    float64                  `json:"ratio" validate:"min=-0.5,max=1.5"`
		Labels   map[string]string        `json:"labels" validate:"max=2,dive,keys,max=3,endkeys,max=4"`
		Word     *string                  `json:"word" validate:"agentid"`
		List     models.Optional[[]int]   `json:"list" validate:"omitnil,min=1,unique,dive,min=1"`
		Inner    models.Optional[*nested] `json:"inner" validate:"omitnil"`
		private  string                   `validate:"required"` //nolint:unused // not checked
	}
	valid := func() values {
		return values{Required: new(0), Struct: nested{"a"}, Word: new("a")}
	}
	for name, c := range map[string]struct {
		change func(*values)
		want   rules
		detail string
	}{
		"valid":                      {func(*values) {}, nil, ""},
		"missing":                    {func(v *values) { *v = values{} }, rules{"/required required", "/struct required", "/word agent_id"}, "required is required"},
		"a member of a pointer":      {func(v *values) { v.Pointer = &nested{} }, rules{"/pointer/name required"}, ""},
		"a member of an any":         {func(v *values) { v.Any = &nested{} }, rules{"/any/name required"}, ""},
		"no name in JSON":            {func(v *values) { v.NoName, v.Hidden = "ab", "ab" }, rules{"/NoName max", "/Hidden max"}, ""},
		"a pointer to zero":          {func(v *values) { v.Zero = new(0) }, rules{"/zero min"}, "zero must be at least 1, not 0"},
		"an empty list":              {func(v *values) { v.Nil = []int{} }, rules{"/nil min"}, "nil must have at least 1 entry, not 0"},
		"a fraction":                 {func(v *values) { v.Ratio = 1.75 }, rules{"/ratio max"}, "ratio must be at most 1.5, not 1.75"},
		"a negative fraction":        {func(v *values) { v.Ratio = -0.75 }, rules{"/ratio min"}, ""},
		"too many labels":            {func(v *values) { v.Labels = map[string]string{"a": "", "b": "", "c": ""} }, rules{"/labels max"}, ""},
		"a label's key":              {func(v *values) { v.Labels = map[string]string{"a.[/": ""} }, rules{"/labels/a.[~1 max"}, "labels.a.[/ must be at most 3 characters long, not 4"},
		"a label's value":            {func(v *values) { v.Labels = map[string]string{"a.b": "12345"} }, rules{"/labels/a.b max"}, ""},
		"the first broken part ends": {func(v *values) { v.List = models.Some([]int{0, 0}) }, rules{"/list/1 unique"}, "list[1] repeats list[0]"},
		"every entry":                {func(v *values) { v.List = models.Some([]int{0, 1, -1}) }, rules{"/list/0 min", "/list/2 min"}, ""},
		"an optional list":           {func(v *values) { v.List = models.Some([]int{}) }, rules{"/list min"}, ""},
		"a null list":                {func(v *values) { v.List = models.Optional[[]int]{Set: true, Null: true} }, nil, ""},
		"an optional struct":         {func(v *values) { v.Inner = models.Some(&nested{}) }, rules{"/inner/name required"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := valid()
			c.change(&v)
			requireViolations(t, c.want, c.detail, input.Validate(v))
		})
	}
	for _, v := range []any{
		struct {
			A int `validate:"mim=1"`
		}{}, struct {
			A int `validate:"min=one"`
		}{},
	} {
		require.Panics(t, func() { input.Validate(v) })
	}
}
