package orchestrator

import (
	"context"
	"time"

	"comet/store"
)

// replayFor is how long a request_id and the id of a message are remembered.
const replayFor = 24 * time.Hour

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 500

// Purge deletes what is not kept any longer: tasks and sessions that ended before
// Options.Retention, lines that were said before it, requests and messages that cannot be
// repeated any more, and what nobody took in a day of what was told to many.
func (o *Orchestrator) Purge(ctx context.Context) error {
	ended, replayed := o.store.Now().Add(-o.opts.Retention), o.store.Now().Add(-replayFor)
	for _, purge := range []func(tx *store.Tx) (int64, error){
		func(tx *store.Tx) (int64, error) { return tx.PurgeTasks(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeSessions(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeContexts(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeLoggedMessages(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeRequests(replayed, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeProcessedMessages(replayed, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeNotices(replayed, purgeBatch) },
	} {
		for more := true; more; {
			err := o.store.Write(ctx, func(tx *store.Tx) error {
				n, err := purge(tx)
				more = n > 0
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
