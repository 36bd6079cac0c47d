package tools

import (
	"fmt"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// TestOneReplicaIsTheFirst: of two replicas that see the same tool for the first time, and each
// another definition of it, one finds it approved and the other quarantined.
func TestOneReplicaIsTheFirst(t *testing.T) {
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
					h := &Service{store: db.Store}
					<-begin
					var tools []*tool
					tools, errs[i] = h.checkDefinitions(t.Context(), server, []*mcp.Tool{{Name: "read", Description: fmt.Sprintf("as %d says", i)}})
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
