package app

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

// TestWrongTokensOfNATSAreThrottled: a client of the embedded NATS server that sends wrong tokens is
// throttled like any client of that address.
func TestWrongTokensOfNATSAreThrottled(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
		tokens := auth.New(db.Store, nil)
		agent := "orch-scholar"
		issued, err := tokens.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("t"), AgentID: &agent, Scopes: []models.Scope{models.ScopeTasksRead}}, nil)
		require.NoError(t, err)
		limits := httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3, RateWindow: time.Hour})
		authenticate := agentOf(httpkit.NewAuthenticator(tokens, &httpkit.AuthenticatorOptions{Limits: limits}))
		attacker, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		for range 3 {
			_, err := authenticate(t.Context(), "wrong", attacker)
			require.True(t, errs.Is(err, errs.Unauthenticated), err)
			require.False(t, httpkit.IsThrottled(err))
		}
		_, err = authenticate(t.Context(), "wrong", attacker)
		require.True(t, httpkit.IsThrottled(err), err)
		_, err = authenticate(t.Context(), "wrong", other)
		require.False(t, httpkit.IsThrottled(err), err)
		got, err := authenticate(t.Context(), issued.Secret, attacker)
		require.NoError(t, err, "a valid token is not locked out")
		require.Equal(t, agent, got)
	})
}
