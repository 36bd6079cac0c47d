package transport

import (
	"context"
	"errors"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// blockingConn is a connection whose writes block until the test supplies their result.
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

// TestReceivedNotices (docs/adr/0016): a notice counts as received when the agent sends anything
// after it was written.
func TestReceivedNotices(t *testing.T) {
	t.Parallel()
	begin := func() (*socket, blockingConn, func(id string, outcome error, meanwhile func())) {
		c := blockingConn{make(chan struct{}), make(chan error)}
		s := &socket{connection: &connection{protocol: &describedProtocol{}, inFlight: &inFlight{}, done: t.Context()}, server: &Server{}, conn: c, pipeline: newPipeline(), written: map[string]bool{}}
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
	t.Run("a written notice is received", func(t *testing.T) {
		t.Parallel()
		s, _, write := begin()
		write("a", nil, none)
		write("work", nil, none)
		write("b", nil, none)
		for range 2 { // until the acknowledgement is committed
			ids, isFrame, _ := s.acknowledgedBy([]byte("anything"))
			require.ElementsMatch(t, []string{"a", "b"}, ids)
			require.False(t, isFrame)
		}
		s.inFlight.markAcked([]string{"a", "b"})
		ids, _, _ := s.acknowledgedBy([]byte("anything"))
		require.Empty(t, ids)
	})
	t.Run("a notice that failed to be written is not received", func(t *testing.T) {
		t.Parallel()
		s, _, write := begin()
		received := make(chan []string)
		write("a", errors.New("cut off"), func() {
			go func() {
				ids, _, _ := s.acknowledgedBy([]byte("sent in the meantime"))
				received <- ids
			}()
		})
		require.Empty(t, <-received)
	})
}
