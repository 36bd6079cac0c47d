package requestid_test

import (
	"context"
	"log/slog"
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
	t.Run("further ids are those of the whole request", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		outer := requestid.With(t.Context(), "r")
		requestid.Add(context.WithValue(outer, key{}, 1), slog.String("trace_id", "t"), slog.String("trace_id", "t"), slog.String("message_id", ""))
		require.Equal(t, []slog.Attr{slog.String("request_id", "r"), slog.String("trace_id", "t")}, requestid.Attrs(outer))
		require.Empty(t, requestid.Attrs(requestid.With(outer, "")), "a message of a connection has its own")
		requestid.Add(t.Context(), slog.String("trace_id", "t"))
		require.Empty(t, requestid.Attrs(t.Context()))
	})
	t.Run("the innermost wins", func(t *testing.T) {
		t.Parallel()
		ctx := requestid.With(requestid.With(t.Context(), "outer"), "inner")
		require.Equal(t, "inner", requestid.From(ctx))
	})
}
