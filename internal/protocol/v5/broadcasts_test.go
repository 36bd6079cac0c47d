package v5_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"comet/internal/protocol"
	"comet/models"

	"github.com/stretchr/testify/require"
)

// TestBroadcast (PROTOCOL_V5 §3.3); the rights to send one are in testdata.
func TestBroadcast(t *testing.T) {
	t.Parallel()
	join := func(t *testing.T, f *fixture, id, address string) {
		t.Helper()
		f.agent(t, id)
		f.send(t, id, "M1|"+address+">O1|J|T0|-|-|-|0|S0|-|-", 0)
	}
	// waiting returns the number of broadcasts in an agent's inbox.
	waiting := func(t *testing.T, f *fixture, id string) int {
		t.Helper()
		all, err := f.work.Messages(t.Context(), id, 500)
		require.NoError(t, err)
		return len(all)
	}

	testOnDatabases(t, "has its effect once for each online agent", func(t *testing.T, f *fixture) {
		join(t, f, "ada", "W1")
		const line = "M1|User>W*|B|-|-|-|-|0|-|-|at=22:00"
		require.Contains(t, f.sendOne(t, "admin", line), "sent;count=1")
		require.Len(t, f.receive(t, "ada"), 1)
		require.Contains(t, f.sendOne(t, "admin", line), "sent;count=1", "the reply is the same")
		require.Zero(t, waiting(t, f, "ada"))
		join(t, f, "bob", "W2")
		require.Contains(t, f.sendOne(t, "admin", line), "sent;count=2")
		require.Equal(t, []int{0, 1}, []int{waiting(t, f, "ada"), waiting(t, f, "bob")}, "an agent that was offline receives it now")
		f.sendOne(t, "admin", "M2|User>W*|B|-|-|-|-|0|-|-|at=22:00")
		f.sendOne(t, "admin", "M2|User>W1|B|-|-|-|-|0|-|-|at=22:00")
		require.Equal(t, []int{2, 2}, []int{waiting(t, f, "ada"), waiting(t, f, "bob")}, "another number or another TO makes another broadcast")
	})

	testOnDatabases(t, "an inbox holds the newest 100 broadcasts", func(t *testing.T, f *fixture) {
		join(t, f, "ada", "W1")
		join(t, f, "bob", "W2")
		f.sendOne(t, "admin", "M1|User>W2|B|-|-|-|-|0|-|-|n=0")
		for n := range 103 {
			f.sendOne(t, "admin", fmt.Sprintf("M%d|User>W1|B|-|-|-|-|0|-|-|n=%d", n+1, n))
		}
		received := f.receive(t, "ada")
		require.Len(t, received, 100)
		require.Contains(t, received[0], "|n=3")
		require.Contains(t, received[99], "|n=102")
		require.Equal(t, 1, waiting(t, f, "bob"))
	})
}

// TestPublication: an agent receives a publication as a broadcast.
func TestPublication(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "DATA has the payload if pairs can hold it", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.send(t, "ada", "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", 0)
		for payload, want := range map[string]string{
			`{"order":81,"by":"shop"}`: ";order=81;by=shop", `81`: ";payload=81", `"paid"`: ";payload=paid",
			`{"id":5}`: "", `{"order":{"id":81}}`: "", `null`: "", `{"text":"` + strings.Repeat("x", 200) + `"}`: "", `{"text":"a|b"}`: "",
		} {
			m := models.InboxMessage{AgentID: "ada", ID: "01890a5d-ac96-774b-bcce-b302099a8057", Kind: "publication", Priority: 1, Attempt: 2}
			m.Publication = &models.Publication{Type: "order.paid", Payload: json.RawMessage(payload)}
			lines, err := f.Render(t.Context(), protocol.Peer{Agent: models.Agent{ID: "ada"}}, m, 0)
			require.NoError(t, err)
			require.Len(t, lines, 1)
			require.Contains(t, string(lines[0]), "O1>W1|B|")
			require.True(t, strings.HasSuffix(string(lines[0]), "|event=order.paid;id=01890a5d-ac96-774b-bcce-b302099a8057;attempt=2"+want), "%s: %s", payload, lines[0])
		}
		m := models.InboxMessage{AgentID: "ada", ID: "01890a5d-ac96-774b-bcce-b302099a8057", Kind: "publication", Attempt: 1}
		for payload, want := range map[string]string{
			`{"position":41,"key":"ada","at":"2026-01-10T15:30:00Z","data":{"a":1},"list":[],"none":null}`: `;at=2026-01-10T15:30:00Z;key=ada;position=41`, `{"text":"` + strings.Repeat("x", 200) + `"}`: "", `[1]`: "",
		} {
			m.Publication = &models.Publication{Type: "agent.updated", Guarantee: "at-most-once", Payload: json.RawMessage(payload)}
			lines, err := f.Render(t.Context(), protocol.Peer{Agent: models.Agent{ID: "ada"}}, m, 0)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(string(lines[0]), ";attempt=1"+want), "%s: %s", payload, lines[0])
		}
	})
}
