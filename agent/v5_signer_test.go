package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/pipe"
)

// TestWhatIsBelieved: whoever can change what the server says cannot take its signature away.
func TestWhatIsBelieved(t *testing.T) {
	t.Parallel()
	s := newSigner("a key that was agreed on")
	const work, refusal = "M7|O1>W1|R|T1|P1|N|-|0|S1|-|call=write", "M8|O1>W1|E|T0|-|F|E31|0|S0|-|desc=slowly"
	believed := func(text string) error {
		m, err := pipe.Parse(text)
		require.NoError(t, err, text)
		return s.verify(text, m)
	}
	signed := func(text, session, key string) string {
		out, err := pipe.Sign(text, []byte(key), session, "00aa")
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
	require.NoError(t, newSigner("").verify(work, pipe.Message{}), "without a key nothing is looked at")
}
