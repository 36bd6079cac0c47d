package v5_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
)

// TestForeignConversation: a sender can neither put messages into the conversation of others nor
// read them there.
func TestForeignConversation(t *testing.T) {
	t.Parallel()
	// begin makes the user open S1, with T1 assigned to W1; W2 has no part in it.
	begin := func(t *testing.T, f *logFixture) {
		t.Helper()
		f.join(t, "digger", "W1")
		f.send(t, "user", "M1|User>O1|R|-|-|N|-|0|-|-|call=dig;keep", 0)
		f.receive(t, "digger")
		f.join(t, "mole", "W2")
	}
	absent := "M*|O1>User|E|-|-|F|E43|0|S1|-|desc=there is no message M3 between User and O1 in S1"

	testWithLog(t, "a broadcast does not enter it", "info", func(t *testing.T, f *logFixture) {
		begin(t, f)
		for who, code := range map[string]string{"user2": "E90", "admin": "E10"} {
			require.Contains(t, f.sendOne(t, who, "M3|User>W*|B|-|-|-|-|0|S1|-|planted"), "|F|"+code+"|")
			require.Contains(t, f.sendOne(t, who, "M3|User>W*|B|T1|-|-|-|0|S1|-|planted"), "|F|"+code+"|")
		}
		require.Equal(t, absent, f.sendOne(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"))
		require.Len(t, f.loggedMessages(t, shortid.ID{Context: 1, Task: 1}), 3)
	})

	testWithLog(t, "a message about no task does not enter it", "info", func(t *testing.T, f *logFixture) {
		begin(t, f)
		for _, agent := range []string{"digger", "mole"} {
			name := map[string]string{"digger": "W1", "mole": "W2"}[agent]
			f.send(t, agent, "M3|"+name+">O1|A|-|-|-|-|0|S1|-|planted", 0)
			f.send(t, agent, "M3|"+name+">O1|A|T0|-|-|-|0|S1|-|planted", 0)
			require.Contains(t, f.sendOne(t, agent, "M3|"+name+">O1|A|T1|-|-|-|0|S7|-|planted"), "|F|E42|")
			_, err := f.messages.ByNumber(t.Context(), 1, name, 3)
			require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		}
		require.Contains(t, f.sendOne(t, "mole", "M3|W2>O1|U|T1|-|R|-|0|S1|-|planted"), "|F|E40|", "the task of another agent")
		require.Len(t, f.loggedMessages(t, shortid.ID{Context: 1, Task: 1}), 3)
		f.send(t, "digger", "M3|W1>O1|A|T1|-|R|-|0|S1|-|mine", 0)
		require.Contains(t, f.loggedMessages(t, shortid.ID{Context: 1, Task: 1}), "W1>O1 A - mine")
	})

	testWithLog(t, "another user cannot read it", "info", func(t *testing.T, f *logFixture) {
		begin(t, f)
		require.Contains(t, f.sendOne(t, "admin", "M3|User>O1|R|-|-|N|-|0|S1|-|call=dig;whose=admin"), "accepted")
		require.Equal(t, absent, f.sendOne(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"))
		require.Contains(t, f.sendOne(t, "user", "M9|User>O1|R|-|-|N|-|0|S1|-|call=dig;prev=#MSG:M3"), "|F|E43|")
		require.Contains(t, f.sendOne(t, "user2", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"), "|F|E42|")
		require.Contains(t, f.sendOne(t, "admin", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M3"), "whose=admin")
		require.Contains(t, f.sendOne(t, "admin", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1"), "call=dig;keep", "an admin may read it")
		require.Contains(t, f.sendOne(t, "user", "M9|User>O1|Q|-|-|-|-|0|S1|-|ref=#MSG:M1"), "call=dig;keep")
	})
}
