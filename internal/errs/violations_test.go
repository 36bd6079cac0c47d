package errs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, detail string) (all errs.Violations) {
		for i := range n {
			all.Add(errs.InvalidRequest, fmt.Sprintf("/agents/%d", i), "type", "%s", detail)
			all[i].Line = i + 1
		}
		return all
	}

	t.Run("fields that fit are unchanged", func(t *testing.T) {
		t.Parallel()
		e := errs.From(many(1000, "x").All())
		require.Len(t, e.Fields, 1000)
		require.Equal(t, "/agents/999", e.Fields[999].Pointer)
	})
	t.Run("of more fields the last one counts the rest", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{many(5000, "x").All(), many(5000, "x").Err()} {
			e := errs.From(err)
			require.Len(t, e.Fields, 1000)
			require.Equal(t, errs.Field{Rule: "max", Detail: "there are 4001 more like these", Line: 999}, e.Fields[999])
		}
	})
	t.Run("their bytes are counted as they are written", func(t *testing.T) {
		t.Parallel()
		for _, detail := range []string{strings.Repeat("x", 10_000), strings.Repeat("\x01", 10_000), strings.Repeat(`"`, 10_000), strings.Repeat("é", 5000)} {
			e := errs.From(many(900, detail).All())
			text, err := json.Marshal(e.Fields)
			require.NoError(t, err)
			require.Less(t, len(text), 1<<20)
			require.Contains(t, e.Fields[len(e.Fields)-1].Detail, "more like these")
		}
	})
	t.Run("a field that cannot fit is only counted", func(t *testing.T) {
		t.Parallel()
		e := errs.From(many(2, strings.Repeat("x", 1<<20)).All())
		require.Equal(t, []errs.Field{{Rule: "max", Detail: "there are 2 more like these"}}, e.Fields)
	})
	t.Run("the list of violations itself is not shortened", func(t *testing.T) {
		t.Parallel()
		all := many(5000, "x")
		require.Error(t, all.All())
		require.Len(t, all, 5000)
		require.Equal(t, "/agents/4999", all[4999].Pointer)
	})
}
