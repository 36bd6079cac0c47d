package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

func TestAClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Close())
		require.NoError(t, db.Close(), "twice is fine")
		ctx := t.Context()
		calls := map[string]func() error{
			"Ping":     func() error { return db.Ping(ctx) },
			"Write":    func() error { return db.Write(ctx, func(*store.Tx) error { return nil }) },
			"Agent":    func() error { _, err := db.Agents(ctx).Get("nova"); return err },
			"Agents":   func() error { _, err := db.Agents(ctx).List(store.AgentQuery{Limit: 1, Count: true}); return err },
			"Token":    func() error { _, err := db.Tokens(ctx).Get("t"); return err },
			"Tokens":   func() error { _, err := db.Tokens(ctx).List("", "", 1); return err },
			"Audit":    func() error { _, err := db.Agents(ctx).AuditTrail("nova", 0, 1); return err },
			"Events":   func() error { _, err := db.Events(ctx).After(0, 1); return err },
			"Schema":   func() error { return db.CheckSchema(ctx) },
			"ByHash":   func() error { _, _, err := db.Tokens(ctx).ByHash([32]byte{}); return err },
			"Position": func() error { _, err := db.Events(ctx).LastPosition(); return err },
			"Verify":   func() error { _, err := ledgercheck.Verify(ctx, db.Store); return err },
			"Spending": func() error { _, err := db.Ledger(ctx).Spending("nova", db.Now()); return err },
		}
		for name, call := range calls {
			require.Equal(t, errs.Unavailable, errs.CodeOf(call()), name)
		}
	})
}
