package upstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLatest(t *testing.T) {
	t.Parallel()
	var told []float64
	begun, goOn := make(chan struct{}), make(chan struct{})
	l := NewLatestProgress(func(p Progress) {
		told = append(told, p.Progress)
		if len(told) == 1 {
			close(begun)
			<-goOn
		}
	})
	l.Update(Progress{Progress: 1})
	<-begun
	for n := range 100 { // nobody is waited for
		l.Update(Progress{Progress: float64(n)})
	}
	close(goOn)
	l.Close()
	require.Equal(t, []float64{1, 99}, told, "the last word is told")
	l.Update(Progress{Progress: 7}) // somebody who comes late hurts nobody
}
