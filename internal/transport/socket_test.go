package transport

import (
	"context"
	"errors"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
)

// unframedProtocol is a dialect of which only is known that it is plain.
type unframedProtocol struct{ protocol.Protocol }

func (unframedProtocol) Unframed() bool { return true }

// blockingConn is a connection that takes a text once it is told what comes of that.
type blockingConn struct {
	begun   chan struct{}
	outcome chan error
}

func (c blockingConn) read(context.Context) ([]byte, error) { return nil, errors.New("not here") }

func (c blockingConn) write(context.Context, []byte) error {
	c.begun <- struct{}{}
	return <-c.outcome
}

func (c blockingConn) ping(context.Context) error         { return nil }
func (c blockingConn) close(websocket.StatusCode, string) {}
func (c blockingConn) cut()                               {}

// TestWhatAnAgentHasReceived (docs/adr/0016): what is no work counts as received when its
// agent says anything after it was written.
func TestWhatAnAgentHasReceived(t *testing.T) {
	t.Parallel()
	begin := func() (*socket, blockingConn, func(id string, outcome error, meanwhile func())) {
		c := blockingConn{make(chan struct{}), make(chan error)}
		s := &socket{connection: &connection{protocol: unframedProtocol{}, inFlight: &inFlight{}}, server: &Server{}, conn: c}
		return s, c, func(id string, outcome error, meanwhile func()) {
			s.inFlight.put(id, delivery{attempts: 1, isTask: id == "work"})
			done := make(chan error)
			go func() { done <- s.deliver(outbound{id, [][]byte{[]byte(id)}}) }()
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
			ids, isFrame := s.acknowledgedBy([]byte("anything"))
			require.ElementsMatch(t, []string{"a", "b"}, ids)
			require.False(t, isFrame)
		}
		s.inFlight.markAcked([]string{"a", "b"})
		ids, _ := s.acknowledgedBy([]byte("anything"))
		require.Empty(t, ids)
	})
	t.Run("it could not be written", func(t *testing.T) {
		t.Parallel()
		s, _, write := begin()
		received := make(chan []string)
		write("a", errors.New("cut off"), func() {
			go func() {
				ids, _ := s.acknowledgedBy([]byte("said meanwhile"))
				received <- ids
			}()
		})
		require.Empty(t, <-received)
	})
}
