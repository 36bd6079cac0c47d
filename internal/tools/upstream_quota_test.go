package tools_test

import (
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/toolstest"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestUpstreamsHaveAQuota creates, replaces and removes upstreams with a quota of one.
func TestUpstreamsHaveAQuota(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Close())
		opts := db.Options
		opts.Quotas = map[string]int{"upstreams": 1}
		st, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, st.Close()) })
		s := toolstest.Start(t, &storetest.DB{Store: st, Options: opts, Clock: db.Clock}, nil)
		by := testkit.Admin()
		require.NoError(t, st.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Tokens().Insert(models.Token{ID: by.TokenID, Name: by.Name, Hash: sha256.Sum256([]byte("ops")), Scopes: by.Scopes, CreatedAt: tx.Now()})
		}))
		put := func(id, url string) error { return s.Put(t, id, map[string]any{"url": url}) }
		require.NoError(t, put("one", "http://127.0.0.1:1/mcp"))
		toolstest.RequireError(t, put("two", "http://127.0.0.1:1/mcp"), errs.LimitReached, `the token "ops"`, "at most 1 upstreams", "quotas.upstreams")
		_, err = s.Upstream("two")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.NoError(t, put("one", "http://127.0.0.1:2/mcp"), "it is replaced")
		another := by
		another.TokenID = "not stored"
		_, err = s.PutUpstream(t.Context(), another, "one", json.RawMessage(`{"url":"http://127.0.0.1:3/mcp"}`), nil)
		require.NoError(t, err)
		toolstest.RequireError(t, put("two", "http://127.0.0.1:1/mcp"), errs.LimitReached, "quotas.upstreams") // "ops" created it
		require.NoError(t, s.RemoveUpstream(t.Context(), by, "one", nil))
		require.NoError(t, put("two", "http://127.0.0.1:1/mcp"))
	})
}
