package telemetry_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/telemetry"
)

func TestTraceparents(t *testing.T) {
	t.Parallel()
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	valid := "00-" + id + "-" + span + "-01"

	t.Run("are those of version 00, with any flags", func(t *testing.T) {
		t.Parallel()
		for _, flags := range []string{"00", "01", "03", "09", "ff"} {
			require.True(t, telemetry.IsTraceparent("00-"+id+"-"+span+"-"+flags), flags)
		}
	})

	t.Run("are not what is near one", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", "00", "00-0-0-0", valid + "-", valid + "0", valid[:54], " " + valid[1:],
			"01" + valid[2:], "ff" + valid[2:], "0g" + valid[2:],
			strings.ToUpper(valid), "00-" + id + "-" + span + "-0G", "00-" + id + "-" + span + "-0A", "00-" + id + "-" + span + "--1",
			"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + id + "-" + strings.Repeat("0", 16) + "-01",
			"00-" + id + span + "--01", "00_" + id + "-" + span + "-01", "00-" + id + "-" + span + "_01", "00-" + id[1:] + "--" + span + "-01",
			"00-" + id[:31] + "é" + span + "-01",
		} {
			require.False(t, telemetry.IsTraceparent(text), "%q", text)
		}
	})

	t.Run("name the span of the context below it", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, valid, telemetry.Traceparent(telemetry.WithTraceparent(t.Context(), valid)))
		require.Empty(t, telemetry.Traceparent(telemetry.WithTraceparent(context.Background(), "00-0-0-0")))
	})
}
