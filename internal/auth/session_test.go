package auth_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

// TestSessions: an agent has a limited number of tokens of Session, and those that have expired are deleted unless something refers
// to them.
func TestSessions(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, &auth.Options{Clock: db.Now})
		require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
		scopes := []models.Scope{models.ScopeMessagesSend, models.ScopeTasksRead}
		token := issue(t, a, auth.TokenDraft{Scopes: scopes, AgentID: new("orch-my-team"), ExpiresAt: new(db.Now().Add(time.Hour))})
		by := models.Principal{TokenID: token.Token.ID, Name: "mine", Scopes: scopes, AgentID: token.Token.AgentID}
		signer := models.Principal{TokenID: "key:orch-my-team", Name: "key:orch-my-team/k", Scopes: scopes[:1], AgentID: by.AgentID}
		other := models.Principal{TokenID: "key:orch-social", Name: "key:orch-social/k", Scopes: scopes[:1], AgentID: new("orch-social")}

		var first, last auth.Issued
		for i := range 20 {
			from := by
			if i%2 == 1 {
				from = signer
			}
			issued, err := a.Session(t.Context(), from, nil)
			require.NoError(t, err)
			require.Equal(t, 15*time.Minute, issued.Token.ExpiresAt.Sub(db.Now()))
			if last = issued; i == 0 {
				first = issued
			}
			db.Clock.Advance(10 * time.Second)
		}
		_, err := a.Session(t.Context(), signer, nil)
		require.True(t, errs.Is(err, errs.LimitReached), err)
		require.ErrorContains(t, err, `the agent "orch-my-team" has 20 valid tokens of at most 15 minutes; use one of them until it expires, or wait until `+
			first.Token.ExpiresAt.Format(time.RFC3339)+", when the first one expires")
		_, err = a.Session(t.Context(), other, nil)
		require.NoError(t, err, "each agent has its own limit")
		require.NoError(t, a.Revoke(t.Context(), models.System(), last.Token.ID, nil))
		_, err = a.Session(t.Context(), signer, nil)
		require.NoError(t, err, "a revoked one does not count")
		db.Clock.Advance(first.Token.ExpiresAt.Sub(db.Now()))
		parent, err := a.Session(t.Context(), by, nil)
		require.NoError(t, err, "an expired one does not count")
		child := models.Principal{TokenID: parent.Token.ID, Name: "child", Scopes: scopes, AgentID: by.AgentID}
		_, err = a.Create(t.Context(), child, auth.TokenDraft{Name: new("grandchild"), Scopes: scopes[:1]}, nil)
		require.NoError(t, err)

		ids := func() (all []string) {
			tokens, err := a.List(t.Context(), models.System(), "", 100)
			require.NoError(t, err)
			for _, issued := range tokens {
				all = append(all, issued.ID)
			}
			return all
		}
		require.NoError(t, a.Purge(t.Context()))
		require.Len(t, ids(), 1+20+1+1+2)
		db.Clock.Advance(time.Hour + time.Second)
		require.NoError(t, a.Purge(t.Context()))
		require.Contains(t, ids(), last.Token.ID, "it expired less than an hour ago")
		db.Clock.Advance(15 * time.Minute)
		require.NoError(t, a.Purge(t.Context()))
		require.Equal(t, []string{token.Token.ID, parent.Token.ID}, ids(), "a token of an hour, and one from which another one descended")
		require.NoError(t, a.Purge(t.Context()))
		require.Equal(t, []string{token.Token.ID}, ids())
	})
}
