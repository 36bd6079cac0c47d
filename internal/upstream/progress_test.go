package upstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotifications(t *testing.T) {
	t.Parallel()
	var received []int
	begun, goOn := make(chan struct{}), make(chan struct{})
	q := NewNotifications()
	q.Add(func() {
		close(begun)
		<-goOn
	})
	<-begun
	for n := range 100 { // Add does not wait for the receiver
		q.Add(func() { received = append(received, n) })
	}
	close(goOn)
	q.Close()
	var want []int
	for n := 100 - maxNotifications; n < 100; n++ {
		want = append(want, n)
	}
	require.Equal(t, want, received, "the newest ones are delivered, in order")
	q.Add(func() { received = nil }) // one after Close is ignored
	require.Equal(t, want, received)
}
