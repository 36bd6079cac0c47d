package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestFollowingTheGateway: a stream without news says that it lives, by an event of its own.
func TestFollowingTheGateway(t *testing.T) {
	t.Parallel()
	streaming(t, "BeatsWhileNothingHappens", houseOptions{heartbeat: 10 * time.Millisecond}, func(t *testing.T, h *house) {
		s := h.tap(t, h.token(t, models.ScopeToolsCall), "/events/stream")
		var names []string
		for len(names) < 3 {
			if m := s.next(); m.event != "" {
				names = append(names, m.event)
			}
		}
		require.Equal(t, []string{"connected", "heartbeat", "heartbeat"}, names)
	})
}
