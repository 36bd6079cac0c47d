package upstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressQueue(t *testing.T) {
	t.Parallel()
	var received []float64
	begun, goOn := make(chan struct{}), make(chan struct{})
	q := NewProgressQueue(func(p Progress) {
		received = append(received, p.Progress)
		if len(received) == 1 {
			close(begun)
			<-goOn
		}
	})
	q.Add(Progress{Progress: -1})
	<-begun
	for n := range 100 { // Add does not wait for the receiver
		q.Add(Progress{Progress: float64(n)})
	}
	close(goOn)
	q.Close()
	want := []float64{-1}
	for n := 100 - maxProgress; n < 100; n++ {
		want = append(want, float64(n))
	}
	require.Equal(t, want, received, "the newest updates are delivered, in order")
	q.Add(Progress{Progress: 7}) // an update after Close is ignored
}
