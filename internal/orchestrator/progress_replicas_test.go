package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// otherReplica carries wake-ups to another orchestrator, like the bus.
type otherReplica struct{ *orchestrator.Orchestrator }

func (r otherReplica) Wake(kind orchestrator.WakeKind, id string) { r.OnWake(kind, id) }

// TestProgressReachesTheRequesterAtAnotherReplica: the requester waits on one replica, and the worker
// reports to another.
func TestProgressReachesTheRequesterAtAnotherReplica(t *testing.T) {
	t.Parallel()
	withDatabase(t, "progress", func(t *testing.T, db *storetest.DB) {
		requesters := start(t, db, nil)
		workers := start(t, secondReplica(t, db), &orchestrator.Options{Waker: otherReplica{requesters.Orchestrator}})
		workers.worker(t, "worker", 1, "code_write")
		workers.worker(t, "client/1", 1)
		wake, stop := requesters.Inbox("client/1")
		defer stop()
		p := operator()
		p.AgentID = new("client/1")
		out, err := workers.Submit(t.Context(), p, orchestrator.Submission{
			Capabilities: []string{"code_write"}, Priority: orchestrator.DefaultPriority, Override: orchestrator.Override{Notify: true},
		}, nil)
		require.NoError(t, err)
		for _, percent := range []int{20, 40} {
			_, err = workers.Progress(t.Context(), "worker", out.Task.ID, orchestrator.Progress{Percent: &percent})
			require.NoError(t, err)
		}
		<-wake
		all := requesters.inbox(t, "client/1")
		require.Len(t, all, 1, "one message for the newest progress")
		require.Equal(t, models.MessageProgress, all[0].Kind)
		require.Equal(t, out.Task.ID, all[0].TaskID)
		require.Empty(t, workers.inbox(t, "client/1"), "the requester does not wait on that replica")
	})
}
