package tools

import (
	"context"

	"comet/models"
	"comet/store"
)

// Calls returns lines of the audit trail, the newest first. Only an admin sees those of
// others.
func (h *Service) Calls(ctx context.Context, by models.Principal, q models.ToolCallQuery) ([]models.ToolCall, error) {
	if !by.Has(models.ScopeAdmin) {
		if q.TokenID != "" && q.TokenID != by.TokenID {
			return nil, nil
		}
		q.TokenID = by.TokenID
	}
	if err := h.auditLog.Flush(ctx); err != nil {
		if err = h.auditLog.Flush(ctx); err != nil { // a connection that was cut is one no longer
			h.log.Debug("the newest calls are not shown yet", "error", err)
		}
	}
	return h.store.ToolCalls(ctx, q)
}

// Purge deletes what the audit trail need not keep any longer.
func (h *Service) Purge(ctx context.Context) error {
	const each = 1000
	before := h.store.Now().Add(-h.opts.Retention)
	for {
		var n int64
		err := h.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeToolCalls(before, each)
			return err
		})
		if err != nil || n < each {
			return err
		}
	}
}
