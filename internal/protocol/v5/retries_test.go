package v5_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol/v5/shortid"
)

// twoWorkers makes W1 and W2 join, and assigns a task to W1 before W2 has its capability.
const twoWorkers = `
agent left web_search
agent right
left > M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=web_search
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
right > M1|W2>O1|J|T0|-|-|-|0|S0|-|-
< M*|O1>W2|A|T0|-|D|-|0|S0|-|registered;id=W2;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|-|-|0|-|B200|call=web_search;query=AI
< M*|O1>User|A|T1|P1|N|-|0|S1|B200|accepted;worker=W1;pid=M1
left < M*|O1>W1|R|T1|P1|N|-|0|S1|B200|call=web_search;query=AI
right > M2|W2>O1|K|T0|-|-|-|0|S0|-|caps=web_search
< M*|O1>W2|A|T0|-|-|-|0|S0|-|updated;pid=M2
`

// TestRetries (PROTOCOL_V5 §8.2) plays conversations in parts, with the backoff before the
// next attempt between them.
func TestRetries(t *testing.T) {
	t.Parallel()
	after := func(name, first string, parts ...string) {
		t.Helper()
		testOnDatabases(t, name, func(t *testing.T, f *fixture) {
			f.transcript(t, first)
			for i, part := range parts {
				f.db.Clock.Advance(time.Duration(i+1) * time.Second)
				f.transcript(t, part)
			}
		})
	}
	after("E21 is retried twice with the same worker", `
agent left web_search
left > M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=web_search
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|-|-|0|-|B200|call=web_search;query=AI
< M*|O1>User|A|T1|P1|N|-|0|S1|B200|accepted;worker=W1;pid=M1
left < M*|O1>W1|R|T1|P1|N|-|0|S1|B200|call=web_search;query=AI
left > M2|W1>O1|E|T1|P1|F|E21|0|S1|B150|desc=execution timeout
< M*|O1>W1|A|T1|P1|F|-|0|S1|B150|noted;pid=M2
`, `
left < M*|O1>W1|R|T1|P1|N|-|0|S1|B150|call=web_search;query=AI;retry=1;max=2
left > M3|W1>O1|E|T1|P1|F|E21|0|S1|B100|desc=execution timeout
< M*|O1>W1|A|T1|P1|F|-|0|S1|B100|noted;pid=M3
`, `
left < M*|O1>W1|R|T1|P1|N|-|0|S1|B100|call=web_search;query=AI;retry=2;max=2
left > M4|W1>O1|E|T1|P1|F|E21|0|S1|B50|desc=execution timeout
< M*|O1>W1|A|T1|P1|F|-|0|S1|B50|noted;pid=M4
user > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|E|T1|P1|F|E21|0|S1|B50|desc=execution timeout
`)
	after("E31 is retried with another worker, whose request names the first", twoWorkers+`
left > M2|W1>O1|E|T1|P1|F|E31|0|S1|B150|desc=agent saturated
< M*|O1>W1|A|T1|P1|F|-|0|S1|B150|noted;pid=M2
`, `
right < M*|O1>W2|R|T1|P1|N|-|0|S1|B150|call=web_search;query=AI;retry=1;max=2;fallback_from=W1;reason=E31
# the former worker cannot report any more
left > M3|W1>O1|U|T1|P1|R|-|0|S1|B150|progress=10%
< M*|O1>W1|E|T1|P1|F|E15|0|S1|B150|reason=invalid_transition;desc=T1 is new and does not accept U now;pid=M3
right > M3|W2>O1|S|T1|P1|D|-|0|S1|B100|n=1
< M*|O1>W2|A|T1|P1|D|-|0|S1|B100|noted;pid=M3
user > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|S|T1|P1|D|-|0|S1|B100|n=1
`)
	after("a task of a worker that leaves goes to another worker", twoWorkers+`
left > M2|W1>O1|L|T0|-|-|-|0|S0|-|reason=lunch
< M*|O1>W1|A|T0|-|-|-|0|S0|-|left;pid=M2
`, `
right < M*|O1>W2|R|T1|P1|N|-|0|S1|B200|call=web_search;query=AI;retry=1;max=2;fallback_from=W1;reason=E30
right > M3|W2>O1|S|T1|P1|D|-|0|S1|-|n=1
< M*|O1>W2|A|T1|P1|D|-|0|S1|-|noted;pid=M3
`)
	after("E19 is not retried", twoWorkers+`
left > M2|W1>O1|E|T1|P1|F|E19|0|S1|B200|desc=not this one
< M*|O1>W1|A|T1|P1|F|-|0|S1|B200|noted;pid=M2
user > M2|User>O1|Q|T1|-|-|-|0|S1|-|-
< M*|O1>User|E|T1|P1|F|E19|0|S1|B200|desc=not this one
`)
}

// TestReservedSessionNames: with one of these names, a session of another protocol would block the
// next R without CTX.
func TestReservedSessionNames(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "no session outside of V5 has the name of a context", func(t *testing.T, f *fixture) {
		for n := range 100 {
			_, err := f.work.OpenSession(t.Context(), principal("user"), fmt.Sprint("S", n), nil)
			require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
			require.Equal(t, "/id", errs.From(err).Fields[0].Pointer)
			require.Contains(t, errs.From(err).Detail, "choose another id or omit it")
		}
		_, err := f.work.OpenSession(t.Context(), principal("user"), "Sa000000", nil)
		require.True(t, errs.Is(err, errs.InvalidRequest), "the name after S9999999: %v", err)
		for _, other := range []string{"S", "s1", "S01", "S1a", "Session", "Session1", "Schedule", "Sprint2024", "S-5", "SA000000"} {
			_, err := f.work.OpenSession(t.Context(), principal("user"), other, nil)
			require.NoError(t, err, other)
		}
		f.transcript(t, `
agent digger dig
digger > M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=dig;concurrency=2
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
user > M1|User>O1|R|-|P1|N|-|0|-|-|call=dig
< M*|O1>User|A|T1|P1|N|-|0|S1|-|accepted;worker=W1;pid=M1
user > M2|User>O1|R|-|P1|N|-|0|-|-|call=dig
< M*|O1>User|A|T1|P1|N|-|0|S2|-|accepted;worker=W1;pid=M2
`)
	})
}

// TestSessionOfAnotherProtocol (§6): a session that was opened through the core, with facts and
// a task, gets a short name when it is first needed.
func TestSessionOfAnotherProtocol(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "it can be used, and its facts can be read", func(t *testing.T, f *fixture) {
		_, err := f.work.OpenSession(t.Context(), principal("user"), "opened-elsewhere", json.RawMessage(`{"lang":"fr","who":{"name":"Ada"}}`))
		require.NoError(t, err)
		n, err := shortid.NewCache(f.db.Store).OfTask(t.Context(), "018f0000-0000-7000-8000-000000000001", "opened-elsewhere")
		require.NoError(t, err)
		require.Equal(t, shortid.ID{Context: 1, Task: 1}, n)
		f.transcript(t, `
agent writer summarize
writer > M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=summarize;concurrency=2
< M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5;pid=M1
user > M1|User>O1|R|T5|-|-|-|0|S1|-|call=summarize;lang=#CTX:lang;name=#CTX:who.name
< M*|O1>User|A|T5|-|N|-|0|S1|-|accepted;worker=W1;pid=M1
# {"lang":"fr","name":"Ada"}
writer < M*|O1>W1|R|T5|P1|N|-|0|S1|-|call=summarize;lang=#CTX:lang;name=#CTX:who.name
writer > M2|W1>O1|Q|T5|-|-|-|0|S1|-|ref=T5:params
< M*|O1>W1|S|T5|-|D|-|0|S1|-|page=1;of=1;enc=base64;text=eyJsYW5nIjoiZnIiLCJuYW1lIjoiQWRhIn0=;pid=M2
user > M2|User>O1|R|T6|-|-|-|0|S1|-|call=summarize;lang=#CTX:colour
< M*|O1>User|E|T6|-|F|E43|0|S1|-|desc=the session has no fact 'colour';pid=M2
user2 > M1|User>O1|R|T7|-|-|-|0|S1|-|call=summarize
< M*|O1>User|E|T7|-|F|E42|0|S1|-|desc="there is no session S1; - opens one";pid=M1
`)
	})
}
