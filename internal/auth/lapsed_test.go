package auth_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

// TestLapsed: a secret has lapsed when Verify refuses it, at once and among however many.
func TestLapsed(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, &auth.Options{Clock: db.Now}) // a cached verification does not age
		reg := registry.New(db.Store, nil)
		require.NoError(t, reg.Bootstrap(t.Context()))
		_, err := reg.Create(t.Context(), models.System(), models.AgentDraft{
			ID: new("helper"), Name: new("Helper"), Level: new(models.LevelSpecialist), SphereID: new(1), FrequencyHz: new(555), ParentID: new("orch-personnel"),
		}, nil)
		require.NoError(t, err)
		read := []models.Scope{models.ScopeAgentsRead}
		lasting := issue(t, a, auth.TokenDraft{Scopes: read})
		revoked := issue(t, a, auth.TokenDraft{Scopes: read})
		rotated := issue(t, a, auth.TokenDraft{Scopes: read})
		brief := issue(t, a, auth.TokenDraft{Scopes: read, ExpiresAt: new(db.Now().Add(time.Hour))})
		bound := issue(t, a, auth.TokenDraft{Scopes: read, AgentID: new("helper")})

		hash := func(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
		all := [][32]byte{hash(lasting.Secret), hash(revoked.Secret), hash(rotated.Secret), hash(brief.Secret), hash(bound.Secret)}
		lapsed, err := a.Lapsed(t.Context(), all)
		require.NoError(t, err)
		require.Empty(t, lapsed)

		require.NoError(t, a.Revoke(t.Context(), models.System(), revoked.Token.ID, nil))
		lapsed, err = a.Lapsed(t.Context(), all)
		require.NoError(t, err)
		require.Equal(t, all[1:2], lapsed)

		_, err = a.Rotate(t.Context(), models.System(), rotated.Token.ID, nil, nil)
		require.NoError(t, err)
		_, err = a.Verify(t.Context(), bound.Secret)
		require.NoError(t, err)
		require.NoError(t, reg.Deactivate(t.Context(), models.System(), "helper", nil))
		lapsed, err = a.Lapsed(t.Context(), [][32]byte{hash(bound.Secret)})
		require.NoError(t, err)
		require.Len(t, lapsed, 1)
		_, err = a.Verify(t.Context(), bound.Secret)
		require.True(t, errs.Is(err, errs.AgentInactive), err)
		db.Clock.Advance(time.Hour)
		var unknown [][32]byte
		for i := range 1100 {
			unknown = append(unknown, hash(fmt.Sprint(i)))
		}
		lapsed, err = a.Lapsed(t.Context(), append(unknown, all...))
		require.NoError(t, err)
		require.Equal(t, append(unknown, all[1:]...), lapsed)

		none, err := a.Lapsed(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
