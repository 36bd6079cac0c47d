package upstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLatest(t *testing.T) {
	t.Parallel()
	var received []float64
	begun, goOn := make(chan struct{}), make(chan struct{})
	l := NewLatestProgress(func(p Progress) {
		received = append(received, p.Progress)
		if len(received) == 1 {
			close(begun)
			<-goOn
		}
	})
	l.Update(Progress{Progress: 1})
	<-begun
	for n := range 100 { // Update does not wait for the receiver
		l.Update(Progress{Progress: float64(n)})
	}
	close(goOn)
	l.Close()
	require.Equal(t, []float64{1, 99}, received, "the last update is delivered")
	l.Update(Progress{Progress: 7}) // an update after Close is ignored
}
