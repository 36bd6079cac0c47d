package agent

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestWhatIsBelieved: whoever can change what the server says cannot take its signature away.
func TestWhatIsBelieved(t *testing.T) {
	t.Parallel()
	s := newSigner("a key that was agreed on")
	const work, refusal = "M7|O1>W1|R|T1|P1|N|-|0|S1|-|call=write", "M8|O1>W1|E|T0|-|F|E31|0|S0|-|desc=slowly"
	believed := func(text string) error {
		m, err := v5.Parse(text)
		require.NoError(t, err, text)
		return s.verify(text, m)
	}
	signed := func(text, session, key string) string {
		out, err := v5.Sign(text, []byte(key), session, "00aa")
		require.NoError(t, err)
		return out
	}
	require.NoError(t, believed(work), "a server may not sign at all")
	require.ErrorContains(t, believed(signed(work, "S1", "another key than that")), "not that of the key")
	require.ErrorContains(t, believed(signed(work, "S2", "a key that was agreed on")), "another session")
	require.NoError(t, believed(work), "nothing of that was the server")
	require.NoError(t, believed(signed(work, "S1", "a key that was agreed on")))
	require.ErrorContains(t, believed(work), "this is not signed", "it has been taken away")
	require.NoError(t, believed(refusal), "which it does not sign")
	require.NoError(t, newSigner("").verify(work, v5.Message{}), "without a key nothing is looked at")
}

// TestARepetitionByChance: a line that was refused because another had its number and NONCE is
// said again, under others.
func TestARepetitionByChance(t *testing.T) {
	t.Parallel()
	a, err := New("http://127.0.0.1:1", "token", &Options{Dialect: DialectV5, Key: "a key that was agreed on"})
	require.NoError(t, err)
	p := a.speech.(*pipes)
	p.self = v5.NthWorker(1)
	text, err := p.about(v5.Message{Type: v5.Update, State: v5.Running, Task: v5.TaskOf(1), Context: "S1", Data: "log=1;text=x"})
	require.NoError(t, err)
	l := &line{request: uuid.New()}
	require.NoError(t, a.outbox.put(t.Context(), l.parcel(text)))
	out := func() string {
		sent, ok := a.outbox.next(time.Now())
		require.True(t, ok, "it waits for an answer")
		signed, err := p.seal(sent.data)
		require.NoError(t, err)
		return string(signed)
	}
	first := out()
	p.refusedBy(l, v5.Message{Type: v5.Failure, Err: v5.E90, Data: "reason=auth_replay;desc=taken before"})
	require.Len(t, a.retry, 1, "soon")
	a.outbox.rewind()
	require.NotEqual(t, first, out())
	p.refusedBy(l, v5.Message{Type: v5.Failure, Err: v5.E90, Data: "reason=auth_signature;desc=wrong"})
	_, ok := a.outbox.next(time.Now())
	require.False(t, ok, "what is refused for good is not said again")
}
