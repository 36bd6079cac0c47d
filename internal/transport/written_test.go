package transport

import (
	"context"
	"errors"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
)

// plainWords is a dialect of which only is known that it is plain.
type plainWords struct{ protocol.Protocol }

func (plainWords) Unframed() bool { return true }

// slowConn is a connection that takes a text once it is told what comes of that.
type slowConn struct {
	begun   chan struct{}
	outcome chan error
}

func (c slowConn) read(context.Context) ([]byte, error) { return nil, errors.New("not here") }

func (c slowConn) write(context.Context, []byte) error {
	c.begun <- struct{}{}
	return <-c.outcome
}

func (c slowConn) ping(context.Context) error         { return nil }
func (c slowConn) close(websocket.StatusCode, string) {}
func (c slowConn) cut()                               {}

// TestWhatAnAgentHasReceived (docs/adr/0016): what is no work counts as received when its
// agent says anything after it was written.
func TestWhatAnAgentHasReceived(t *testing.T) {
	t.Parallel()
	begin := func() (*socket, slowConn, func(id string, outcome error, meanwhile func())) {
		c := slowConn{make(chan struct{}), make(chan error)}
		s := &socket{held: &held{speech: plainWords{}, sent: &handed{}}, l: &Transports{}, conn: c}
		return s, c, func(id string, outcome error, meanwhile func()) {
			s.sent.put(id, handover{times: 1, work: id == "work"})
			done := make(chan error)
			go func() { done <- s.hand(parcel{id, [][]byte{[]byte(id)}}) }()
			<-c.begun
			meanwhile()
			c.outcome <- outcome
			require.ErrorIs(t, <-done, outcome)
		}
	}
	none := func() {}
	t.Run("it was written", func(t *testing.T) {
		t.Parallel()
		s, _, write := begin()
		write("a", nil, none)
		write("work", nil, none)
		write("b", nil, none)
		for range 2 { // until that is noted
			ids, isFrame := s.acknowledged([]byte("anything"))
			require.ElementsMatch(t, []string{"a", "b"}, ids)
			require.False(t, isFrame)
		}
		s.sent.forget([]string{"a", "b"})
		ids, _ := s.acknowledged([]byte("anything"))
		require.Empty(t, ids)
	})
	t.Run("it could not be written", func(t *testing.T) {
		t.Parallel()
		s, _, write := begin()
		received := make(chan []string)
		write("a", errors.New("cut off"), func() {
			go func() {
				ids, _ := s.acknowledged([]byte("said meanwhile"))
				received <- ids
			}()
		})
		require.Empty(t, <-received)
	})
}
