package tools

import (
	"fmt"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// TestConcurrentFirstDefinitions checks that of two replicas with different definitions of a new
// tool, one approves it and the other quarantines it.
func TestConcurrentFirstDefinitions(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		for n := range 30 {
			server := fmt.Sprintf("server-%d", n)
			var quarantined [2]bool
			var errs [2]error
			begin := make(chan struct{})
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() {
					svc := &Service{store: db.Store}
					<-begin
					var tools []*Tool
					tools, errs[i] = svc.checkDefinitions(t.Context(), server, []*mcp.Tool{{Name: "read", Description: fmt.Sprintf("definition %d", i)}})
					quarantined[i] = len(tools) == 1 && tools[0].quarantined
				})
			}
			close(begin)
			both.Wait()
			require.NoError(t, errs[0])
			require.NoError(t, errs[1])
			require.NotEqual(t, quarantined[0], quarantined[1], "%s: %v", server, quarantined)
		}
	})
}
