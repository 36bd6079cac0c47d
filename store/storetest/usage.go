package storetest

import (
	"time"

	"comet/models"
	"comet/store"
)

// AddUsage adds tokens to the window of the hour that at lies in, as a fact of then would.
// path is the chain of ancestors from nova down to the agent, joined with "/".
func AddUsage(tx *store.Tx, agentID, path string, at time.Time, tokens int64) error {
	return tx.Ledger().AddToWindows([]models.Fact{{AgentID: agentID, At: at, Path: path, Tokens: tokens}})
}
