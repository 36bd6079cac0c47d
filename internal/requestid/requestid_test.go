package requestid_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/requestid"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	t.Run("a context without one has none", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, requestid.From(t.Context()))
	})
	t.Run("the innermost wins", func(t *testing.T) {
		t.Parallel()
		ctx := requestid.With(requestid.With(t.Context(), "outer"), "inner")
		require.Equal(t, "inner", requestid.From(ctx))
	})
}
