package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
)

// TestAMessageOfSomebodyElse: nobody puts one into a conversation that is not his, or finds
// one there.
func TestAMessageOfSomebodyElse(t *testing.T) {
	t.Parallel()
	// begun is a house in which the user has S1, and W1 its T1; W2 has nothing to do with it.
	begun := func(t *testing.T, h *spoken) {
		t.Helper()
		h.join(t, "digger", "W1")
		h.says(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep", 0)
		h.told(t, "digger")
		h.join(t, "mole", "W2")
	}
	absent := "M*|O1>User|E|-|-|F|E43|0|S1|-|desc=there is no message M3 between User and O1 in S1"

	listened(t, "IsNotPlantedByABroadcast", "info", func(t *testing.T, h *spoken) {
		begun(t, h)
		for who, code := range map[string]string{"stranger": "E90", "admin": "E10"} {
			require.Contains(t, h.one(t, who, "M3|User>W*|B|-|-|-|-|0|S1|-|planted"), "|F|"+code+"|")
			require.Contains(t, h.one(t, who, "M3|User>W*|B|T1|-|-|-|0|S1|-|planted"), "|F|"+code+"|")
		}
		require.Equal(t, absent, h.one(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"))
		require.Len(t, h.lines(t, models.ShortID{Context: 1, Task: 1}), 3)
	})

	listened(t, "IsNotPlantedByAnAgentThatSpeaksOfNoTask", "info", func(t *testing.T, h *spoken) {
		begun(t, h)
		for _, agent := range []string{"digger", "mole"} {
			name := map[string]string{"digger": "W1", "mole": "W2"}[agent]
			h.says(t, agent, "M3|"+name+">O1|A|-|-|-|-|0|S1|-|planted", 0)
			h.says(t, agent, "M3|"+name+">O1|A|T0|-|-|-|0|S1|-|planted", 0)
			require.Contains(t, h.one(t, agent, "M3|"+name+">O1|A|T1|-|-|-|0|S7|-|planted"), "|F|E42|")
			_, err := h.messages.ByNumber(t.Context(), 1, name, 3)
			require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		}
		require.Contains(t, h.one(t, "mole", "M3|W2>O1|U|T1|-|R|-|0|S1|-|planted"), "|F|E40|", "the task of another")
		require.Len(t, h.lines(t, models.ShortID{Context: 1, Task: 1}), 3)
		h.says(t, "digger", "M3|W1>O1|A|T1|-|R|-|0|S1|-|mine", 0)
		require.Contains(t, h.lines(t, models.ShortID{Context: 1, Task: 1}), "W1>O1 A - mine")
	})

	listened(t, "IsNotFoundByAnotherUserOfTheSameContext", "info", func(t *testing.T, h *spoken) {
		begun(t, h)
		require.Contains(t, h.one(t, "admin", "M3|User>O1|R|-|-|N|-|0|S1|-|call=dig;whose=admin"), "accepted")
		require.Equal(t, absent, h.one(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"))
		require.Contains(t, h.one(t, "user", "M9|User>O1|R|-|-|N|-|0|S1|-|call=dig;prev=#MSG:M3"), "|F|E43|")
		require.Contains(t, h.one(t, "stranger", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"), "|F|E42|")
		require.Contains(t, h.one(t, "admin", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"), "whose=admin")
		require.Contains(t, h.one(t, "admin", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1"), "call=dig;keep", "an admin may")
		require.Contains(t, h.one(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1"), "call=dig;keep")
	})
}
