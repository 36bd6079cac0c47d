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

// issue makes a token of a draft whose name is not what the test is about.
func issue(t *testing.T, a *auth.Auth, d auth.TokenDraft) auth.Issued {
	t.Helper()
	if d.Name == nil {
		d.Name = new("test")
	}
	issued, err := a.Create(t.Context(), models.System(), d, nil)
	require.NoError(t, err)
	return issued
}

func TestLastAdminToken(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, nil)
		reg := registry.New(db.Store, nil)
		require.NoError(t, reg.Bootstrap(t.Context()))
		first := issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAdmin}})
		issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAdmin}, AgentID: new("orch-business")})
		require.True(t, errs.Is(a.Revoke(t.Context(), models.System(), first.Token.ID, nil), errs.LastAdminToken),
			"a token that is bound below the root does not administer the whole system")

		second := issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAdmin}, ExpiresAt: new(db.Now().Add(time.Hour))})
		revoke := func(issued auth.Issued) errs.Code {
			return errs.CodeOf(a.Revoke(t.Context(), models.System(), issued.Token.ID, nil))
		}
		require.Equal(t, errs.LastAdminToken, revoke(first), "the other one is valid for an hour only")
		third := issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAdmin}, ExpiresAt: new(db.Now().AddDate(0, 0, 30))})
		require.Empty(t, revoke(first))
		require.Empty(t, revoke(second))
		require.Equal(t, errs.LastAdminToken, revoke(third))
		db.Clock.Advance(time.Hour)
		require.Empty(t, revoke(issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAgentsRead}})), "it does not have the scope admin")
		db.Clock.Advance(30 * 24 * time.Hour)
		has, err := a.HasAdmin(t.Context())
		require.NoError(t, err)
		require.False(t, has, "the one that is left has expired, so a start may make another")
	})
}

// TestLastAdminTokensOfOneTree revokes a token with the scope admin from which the only other one descends.
func TestLastAdminTokensOfOneTree(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, nil)
		require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
		admin := []models.Scope{models.ScopeAdmin}
		parent := issue(t, a, auth.TokenDraft{Scopes: admin, AgentID: new(models.RootAgentID)})
		by := models.Principal{TokenID: parent.Token.ID, Name: "parent", Scopes: admin, AgentID: new(models.RootAgentID)}
		child, err := a.Create(t.Context(), by, auth.TokenDraft{Name: new("child"), Scopes: admin}, nil)
		require.NoError(t, err)
		require.True(t, errs.Is(a.Revoke(t.Context(), models.System(), parent.Token.ID, nil), errs.LastAdminToken), "it would revoke both")
		require.NoError(t, a.Revoke(t.Context(), models.System(), child.Token.ID, nil))
		require.True(t, errs.Is(a.Revoke(t.Context(), models.System(), parent.Token.ID, nil), errs.LastAdminToken))
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, &auth.Options{Clock: db.Now})
		zone := time.FixedZone("UTC-12", -12*3600)
		for name, at := range map[string]time.Time{
			"future": db.Now(),
			"max":    time.Date(9999, 12, 31, 23, 59, 59, 0, zone), // the year 10000 in UTC
		} {
			_, err := a.Create(t.Context(), models.System(), auth.TokenDraft{
				Name: new("t"), Scopes: []models.Scope{models.ScopeAgentsRead}, ExpiresAt: &at,
			}, nil)
			require.True(t, errs.Is(err, errs.InvalidRequest), name)
			require.Equal(t, name, errs.From(err).Fields[0].Rule)
			require.Equal(t, "/expires_at", errs.From(err).Fields[0].Pointer)
		}

		token := issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAgentsRead}, ExpiresAt: new(db.Now().Add(200 * time.Millisecond))})
		_, err := a.Verify(t.Context(), token.Secret)
		require.NoError(t, err)
		db.Clock.Advance(200 * time.Millisecond) // shorter than a verification is believed
		_, err = a.Verify(t.Context(), token.Secret)
		require.True(t, errs.Is(err, errs.Unauthenticated))
	})
}

// TestAClockThatGoesBackKeepsNoTokenAlive sets the server's clock back an hour
// after a token was verified; another replica revokes the token.
func TestAClockThatGoesBackKeepsNoTokenAlive(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		steady := time.Now() // stands for the monotonic clock
		here := auth.New(db.Store, &auth.Options{Clock: func() time.Time { return steady }})
		elsewhere := auth.New(db.Store, nil)
		token := issue(t, here, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAgentsRead}})
		_, err := here.Verify(t.Context(), token.Secret)
		require.NoError(t, err)

		db.Clock.Advance(-time.Hour)
		require.NoError(t, elsewhere.Revoke(t.Context(), models.System(), token.Token.ID, nil))
		steady = steady.Add(time.Second)
		_, err = here.Verify(t.Context(), token.Secret)
		require.True(t, errs.Is(err, errs.Unauthenticated))
	})
}

// TestAConfiguredTokenCountsOnce starts a server again and again with one
// COMET_ADMIN_TOKEN, then with another.
func TestAConfiguredTokenCountsOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, nil)
		start := func(secret string) bool {
			made, err := a.EnsureAdmin(t.Context(), secret, true)
			require.NoError(t, err)
			return made
		}
		works := func(secret string) bool {
			_, err := a.Verify(t.Context(), secret)
			return err == nil
		}
		first, second := secretOf(0), secretOf(1)
		require.True(t, start(first))
		require.False(t, start(first))

		rotated, err := a.Rotate(t.Context(), models.System(), auth.BootstrapTokenID, nil, nil)
		require.NoError(t, err)
		require.False(t, start(first))
		require.False(t, works(first), "it was rotated away")
		require.True(t, works(rotated.Secret))

		require.True(t, start(second), "another value is an operator's word")
		require.True(t, works(second))
		require.False(t, works(rotated.Secret))

		issue(t, a, auth.TokenDraft{Scopes: []models.Scope{models.ScopeAdmin}})
		require.NoError(t, a.Revoke(t.Context(), models.System(), auth.BootstrapTokenID, nil))
		require.False(t, start(second))
		require.False(t, works(second), "it was revoked")
	})
}
