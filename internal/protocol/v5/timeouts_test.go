package v5_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimeouts (PROTOCOL_V5 §4.2, §8.2) checks the causes of E20 and E22.
func TestTimeouts(t *testing.T) {
	t.Parallel()

	testOnDatabases(t, "a task that does not end within expires_in is E20, and its worker is notified", func(t *testing.T, f *fixture) {
		f.transcript(t, `
agent left web_search
left > M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=web_search
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|-|-|0|-|-|call=web_search;expires_in=3
< M*|O1>User|A|T1|P1|N|-|0|S1|-|accepted;worker=W1;pid=M1
left < M*|O1>W1|R|T1|P1|N|-|0|S1|-|call=web_search
left > M2|W1>O1|U|T1|P1|R|-|0|S1|-|progress=10%
< M*|O1>W1|A|T1|P1|R|-|0|S1|-|noted;pid=M2
`)
		f.db.Clock.Advance(4 * time.Second)
		f.transcript(t, `
left < M*|O1>W1|E|T1|P1|F|E20|0|S1|-|reason=E20;desc=overall timeout
user > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|E|T1|P1|F|E20|0|S1|-|desc=overall timeout;details=the task did not end within expires_in= seconds
`)
	})

	testOnDatabases(t, "the attempt of a worker without a connection goes to another worker with E22", func(t *testing.T, f *fixture) {
		f.db.Clock.Advance(time.Minute) // past the grace after a start
		f.transcript(t, twoWorkers)
		require.NoError(t, f.work.Disconnect(t.Context(), "left", ""))
		f.db.Clock.Advance(10 * time.Second)
		require.Eventually(t, func() bool { return len(f.render(t, "left")) > 0 }, time.Minute, 5*time.Millisecond)
		f.db.Clock.Advance(time.Second)
		f.transcript(t, `
right < M*|O1>W2|R|T1|P1|N|-|0|S1|B200|call=web_search;query=AI;retry=1;max=2;fallback_from=W1;reason=E22
`)
	})

	testOnDatabases(t, "a question of O1 without a reply within 60 s is E23", func(t *testing.T, f *fixture) {
		f.transcript(t, `
agent left web_search
agent right code_search
user > M1|User>O1|R|-|P1|-|-|0|-|-|call=search
< M*|O1>User|D|T1|P1|R|-|0|S1|-|question=which capability?;opt1=code_search;opt2=web_search;pid=M1
`)
		f.db.Clock.Advance(61 * time.Second)
		f.transcript(t, `
user > M2|User>O1|C|T1|P1|R|-|0|S1|-|choice=opt1
< M*|O1>User|E|T1|P1|F|E23|0|S1|-|desc=the question of T1 got no reply within a minute: send the R again;pid=M2
`)
	})
}
