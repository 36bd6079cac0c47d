package v5_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestABroadcast (PROTOCOL_V5 §3.3); who may send one is in testdata.
func TestABroadcast(t *testing.T) {
	t.Parallel()
	come := func(t *testing.T, h *house, id, address string) {
		t.Helper()
		h.agent(t, id)
		h.says(t, id, "M1|"+address+">O1|J|T0|-|-|-|0|S0|-|-", 0)
	}
	// waiting are how many notices wait for an agent.
	waiting := func(t *testing.T, h *house, id string) int {
		t.Helper()
		all, err := h.work.Messages(t.Context(), id, 500)
		require.NoError(t, err)
		return len(all)
	}

	rule(t, "has its effect once, for each who is there", func(t *testing.T, h *house) {
		come(t, h, "ada", "W1")
		const line = "M1|User>W*|B|-|-|-|-|0|-|-|at=22:00"
		require.Contains(t, h.one(t, "admin", line), "sent;count=1")
		require.Len(t, h.told(t, "ada"), 1)
		require.Contains(t, h.one(t, "admin", line), "sent;count=1", "it is answered as before")
		require.Zero(t, waiting(t, h, "ada"))
		come(t, h, "bob", "W2")
		require.Contains(t, h.one(t, "admin", line), "sent;count=2")
		require.Equal(t, []int{0, 1}, []int{waiting(t, h, "ada"), waiting(t, h, "bob")}, "who was not there hears it now")
		h.one(t, "admin", "M2|User>W*|B|-|-|-|-|0|-|-|at=22:00")
		h.one(t, "admin", "M2|User>W1|B|-|-|-|-|0|-|-|at=22:00")
		require.Equal(t, []int{2, 2}, []int{waiting(t, h, "ada"), waiting(t, h, "bob")}, "another number, or another TO, is another line")
	})

	rule(t, "waits for an agent with 99 others at most, the newest", func(t *testing.T, h *house) {
		come(t, h, "ada", "W1")
		come(t, h, "bob", "W2")
		h.one(t, "admin", "M1|User>W2|B|-|-|-|-|0|-|-|n=0")
		for n := range 103 {
			h.one(t, "admin", fmt.Sprintf("M%d|User>W1|B|-|-|-|-|0|-|-|n=%d", n+1, n))
		}
		told := h.told(t, "ada")
		require.Len(t, told, 100)
		require.Contains(t, told[0], "|n=3")
		require.Contains(t, told[99], "|n=102")
		require.Equal(t, 1, waiting(t, h, "bob"))
	})
}
