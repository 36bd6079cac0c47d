package store

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestReadsOutliveTheStatementCache runs more different statements than the
// cache holds, so that statements are closed while others are about to use them.
func TestReadsOutliveTheStatementCache(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	var queries []models.AgentQuery
	combinations(append(documentedFilters(), furtherFilters()...), func(_ string, q models.AgentQuery) {
		q.Count = true
		queries = append(queries, q)
	})
	require.Greater(t, len(queries), 300)
	var wg sync.WaitGroup
	failed := make(chan error, 8)
	for w := range 8 {
		wg.Go(func() {
			for i := range queries {
				if _, err := s.Agents(t.Context(), queries[(i+w*61)%len(queries)]); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
}
