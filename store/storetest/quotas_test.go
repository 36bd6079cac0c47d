package storetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
	"comet/store/storetest"
)

// withQuotas returns the database of a test, opened with quotas of two, and tokens: the administrator of the
// root created "owner", "owner" created "child", and "child" created "grandchild".
func withQuotas(t *testing.T, db *storetest.DB, connector store.WrapConnector) (*storetest.DB, map[string]models.Principal) {
	t.Helper()
	smallTree(t, db)
	require.NoError(t, db.Close())
	opts := db.Options
	opts.Quotas, opts.Connector = map[string]int{"agents": 2, "tokens": 2, "webhooks": 2, "upstreams": 2}, connector
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	with := &storetest.DB{Store: s, Options: opts, Clock: db.Clock}
	principals, parent := map[string]models.Principal{}, (*string)(nil)
	for _, id := range []string{"admin", "owner", "child", "grandchild"} {
		next := token(with, id, models.ScopeAgentsWrite)
		next.ParentID, next.AgentID, parent = parent, new("finance"), &id
		if id == "admin" {
			next.Scopes, next.AgentID = []models.Scope{models.ScopeAdmin}, new(models.RootAgentID)
		}
		save(t, with, next)
		principals[id] = models.Principal{TokenID: id, Name: next.Name, Scopes: next.Scopes, AgentID: next.AgentID}
	}
	return with, principals
}

// createAgent stores an agent that a principal creates.
func createAgent(db *storetest.DB, by models.Principal, id string) error {
	return db.Write(context.Background(), func(tx *store.Tx) error {
		if err := tx.Agents().Insert(assistant(db, id, "finance")); err != nil {
			return err
		}
		return quotas.Add(tx, by, "agents", id)
	})
}

func TestQuotas(t *testing.T) {
	t.Parallel()

	rule(t, "CountTheObjectsOfDescendants", func(t *testing.T, db *storetest.DB) {
		db, by := withQuotas(t, db, nil)
		require.NoError(t, createAgent(db, by["grandchild"], "a"))
		require.NoError(t, createAgent(db, by["owner"], "b"))
		for _, id := range []string{"owner", "child", "grandchild"} {
			err := createAgent(db, by[id], "c")
			require.Equal(t, errs.LimitReached, errs.CodeOf(err), id)
			require.ErrorContains(t, err, `the token "token owner" (owner) and its descendants may have created at most 2 agents`, id)
			requireAgent(t, db, "c", false)
		}
		for _, id := range []string{"d", "e", "f"} {
			require.NoError(t, createAgent(db, by["admin"], id), "it has no quota")
		}
		write(t, db, func(tx *store.Tx) error { // the objects of a revoked token exist
			revoked, err := tx.Tokens().Lock("grandchild")
			revoked.RevokedAt = new(tx.Now())
			require.NoError(t, err)
			return tx.Tokens().Save(revoked)
		})
		require.Equal(t, errs.LimitReached, errs.CodeOf(createAgent(db, by["child"], "c")))
		write(t, db, func(tx *store.Tx) error {
			a, err := tx.Agents().Lock("a")
			require.NoError(t, err)
			inactive := a
			inactive.IsActive = false
			return tx.Agents().Update(a, inactive)
		})
		require.NoError(t, createAgent(db, by["child"], "c"))
	})

	rule(t, "CountTokensAndWebhooksOfDescendants", func(t *testing.T, db *storetest.DB) {
		db, by := withQuotas(t, db, nil)
		issue := func(parent, id string) error {
			return db.Write(t.Context(), func(tx *store.Tx) error {
				next := token(db, id, models.ScopeAgentsRead)
				next.ParentID, next.AgentID = &parent, new("finance")
				if err := tx.Tokens().Save(next); err != nil {
					return err
				}
				return quotas.Add(tx, by[parent], "tokens", id)
			})
		}
		// "child" and "grandchild" are the two tokens of "owner".
		require.Equal(t, errs.LimitReached, errs.CodeOf(issue("grandchild", "x")))
		require.NoError(t, issue("admin", "y"))

		hook := func(creator, id string) error {
			return db.Write(t.Context(), func(tx *store.Tx) error {
				w := webhook(db, id)
				w.TokenID = creator
				if err := tx.Webhooks().Insert(w); err != nil {
					return err
				}
				return quotas.Add(tx, by[creator], "webhooks", id)
			})
		}
		require.NoError(t, hook("child", "1"))
		require.NoError(t, hook("grandchild", "2"))
		require.Equal(t, errs.LimitReached, errs.CodeOf(hook("owner", "3")))
		write(t, db, func(tx *store.Tx) error { return tx.Webhooks().Delete("2") })
		require.NoError(t, hook("owner", "3"))
	})

	rule(t, "HoldForConcurrentRequests", func(t *testing.T, db *storetest.DB) {
		db, by := withQuotas(t, db, nil)
		var failures [12]error
		var wg sync.WaitGroup
		for i := range failures {
			wg.Go(func() {
				creator := []string{"owner", "child", "grandchild"}[i%3]
				failures[i] = createAgent(db, by[creator], fmt.Sprintf("agent-%d", i))
			})
		}
		wg.Wait()
		created := 0
		for _, err := range failures {
			if err == nil {
				created++
			} else {
				require.Equal(t, errs.LimitReached, errs.CodeOf(err), "%v", err)
			}
		}
		require.Equal(t, 2, created)
	})

	rule(t, "NeedAConstantNumberOfStatements", func(t *testing.T, db *storetest.DB) {
		var n atomic.Int64
		db, by := withQuotas(t, db, storetest.Statements(func(storetest.Statement) { n.Add(1) }))
		count := func(id string) int64 {
			t.Helper()
			before := n.Load()
			require.NoError(t, createAgent(db, by[id], "of-"+id))
			return n.Load() - before
		}
		require.Equal(t, count("owner"), count("grandchild"))
	})
}

// TestQuotaOfUpstreams counts the upstreams of all tokens, because only administrators create upstreams.
func TestQuotaOfUpstreams(t *testing.T) {
	t.Parallel()
	rule(t, "AppliesToAdministrators", func(t *testing.T, db *storetest.DB) {
		db, by := withQuotas(t, db, nil)
		put := func(creator, id string) error {
			return db.Write(t.Context(), func(tx *store.Tx) error {
				u := models.Upstream{ID: id, Config: json.RawMessage(`{}`), TokenID: creator, CreatedBy: creator}
				if err := tx.Tools().SaveUpstream(&u); err != nil {
					return err
				}
				return quotas.Add(tx, by[creator], "upstreams", id)
			})
		}
		requireExhausted := func(err error) {
			t.Helper()
			require.Equal(t, errs.LimitReached, errs.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, `the token "token admin" (admin) and its descendants may have created at most 2 upstreams`)
		}
		require.NoError(t, put("admin", "a"))
		require.NoError(t, put("child", "b"), "the tokens below share the quota")
		for _, creator := range []string{"admin", "owner", "grandchild"} {
			requireExhausted(put(creator, "c"))
		}
		write(t, db, func(tx *store.Tx) error { _, err := tx.Tools().DeleteUpstream("a"); return err })
		require.NoError(t, put("admin", "c"))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			return quotas.Add(tx, models.Principal{TokenID: "not stored", Scopes: []models.Scope{models.ScopeAdmin}}, "upstreams", "c")
		}))
	})
}

// TestRestoredAgents restores agents while others are created.
func TestRestoredAgents(t *testing.T) {
	t.Parallel()
	rule(t, "CountBesideNewOnes", func(t *testing.T, db *storetest.DB) {
		db, by := withQuotas(t, db, nil)
		set := func(id string, active bool) error {
			return db.Write(context.Background(), func(tx *store.Tx) error {
				before, err := tx.Agents().Lock(id)
				if err != nil {
					return err
				}
				after := before
				after.IsActive = active
				if err := tx.Agents().Update(before, after); err != nil || !active {
					return err
				}
				return quotas.Restore(tx, by["child"], id)
			})
		}
		for i := range 4 {
			id := fmt.Sprint("agent-", i)
			require.NoError(t, createAgent(db, by["child"], id))
			require.NoError(t, set(id, false))
		}
		var failures [8]error
		var wg sync.WaitGroup
		for i := range failures {
			wg.Go(func() {
				if i < 4 {
					failures[i] = set(fmt.Sprint("agent-", i), true)
				} else {
					failures[i] = createAgent(db, by["owner"], fmt.Sprint("new-", i))
				}
			})
		}
		wg.Wait()
		active := 0
		for _, err := range failures {
			if err == nil {
				active++
			} else {
				require.Equal(t, errs.LimitReached, errs.CodeOf(err), "%v", err)
			}
		}
		require.Equal(t, 2, active)
	})
}
