package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// replica opens a second server over the database of h, with a clock of its own
// (nil is the real one).
func replica(t *testing.T, h *fixture, clock func() time.Time) *fixture {
	t.Helper()
	opts := h.db.Options
	opts.SkipMigrations, opts.Clock = true, clock
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	other := newReplica(t, h.db, s, fixtureOptions{})
	other.admin = h.admin
	return other
}

// issueToken makes a token through the API.
func (h *fixture) issueToken(t *testing.T, body string) (id, secret string) {
	t.Helper()
	var token struct{ ID, Token string }
	h.do(t, "POST", "/api/v1/tokens", body).decode(t, http.StatusCreated, &token)
	return token.ID, token.Token
}

// status returns the status of GET /api/v1/me with a token.
func (h *fixture) status(t *testing.T, secret string) int {
	t.Helper()
	return h.do(t, "GET", "/api/v1/me", "", "Authorization", "Bearer "+secret).status
}

const readerToken = `{"name":"reader","scopes":["agents:read"]}`

func TestRevocationTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		for range 5 {
			id, secret := h.issueToken(t, readerToken)
			ctx, stop := context.WithCancel(t.Context())
			busy := make(chan struct{})
			go func() { // keeps looking the token up while it is revoked
				defer close(busy)
				for ctx.Err() == nil {
					_, _ = h.doContext(ctx, "GET", "/api/v1/me", "", "Authorization", "Bearer "+secret)
				}
			}()
			require.Equal(t, http.StatusOK, h.status(t, secret))
			require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+id, "").status)
			replies := runConcurrently(t, 8, func(ctx context.Context, _ int) (response, error) {
				return h.doContext(ctx, "GET", "/api/v1/me", "", "Authorization", "Bearer "+secret)
			})
			stop()
			<-busy
			require.Equal(t, map[int]int{http.StatusUnauthorized: 8}, count(replies))
		}
	})
}

func TestRotationTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		id, old := h.issueToken(t, readerToken)
		require.Equal(t, http.StatusOK, h.status(t, old))
		var rotated struct{ Token string }
		h.do(t, "POST", "/api/v1/tokens/"+id+"/rotate", "").decode(t, http.StatusOK, &rotated)
		require.Equal(t, http.StatusUnauthorized, h.status(t, old))
		require.Equal(t, http.StatusOK, h.status(t, rotated.Token))
	})
}

// TestRevocationReachesOtherReplicasWithinASecond uses a clock that the test moves: the
// replica has just looked the token up, and a second later it asks again.
func TestRevocationReachesOtherReplicasWithinASecond(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		clock := storetest.NewClock()
		other := replica(t, h, clock.Now)
		revoked, revokedSecret := h.issueToken(t, readerToken)
		rotated, rotatedSecret := h.issueToken(t, readerToken)
		require.Equal(t, http.StatusCreated, h.create(t, "worker", 2, 555, "orch-social", "").status)
		_, boundSecret := h.issueToken(t, `{"name":"bound","scopes":["agents:read"],"agent_id":"worker"}`)
		for _, secret := range []string{revokedSecret, rotatedSecret, boundSecret} {
			require.Equal(t, http.StatusOK, other.status(t, secret))
		}

		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+revoked, "").status)
		var fresh struct{ Token string }
		h.do(t, "POST", "/api/v1/tokens/"+rotated+"/rotate", "").decode(t, http.StatusOK, &fresh)
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/agents/worker", "").status)
		clock.Advance(time.Second)

		require.Equal(t, http.StatusUnauthorized, other.status(t, revokedSecret))
		require.Equal(t, http.StatusUnauthorized, other.status(t, rotatedSecret))
		require.Equal(t, http.StatusOK, other.status(t, fresh.Token))
		require.Equal(t, http.StatusForbidden, other.status(t, boundSecret), "its agent is inactive")
	})
}

// TestRevocationReachesOtherReplicasInRealTime does the same with the real clock: no
// request that begins a second after the revocation is let through.
func TestRevocationReachesOtherReplicasInRealTime(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		other := replica(t, h, nil)
		id, secret := h.issueToken(t, readerToken)
		require.Equal(t, http.StatusOK, other.status(t, secret))
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", "/api/v1/tokens/"+id, "").status)
		revoked := time.Now()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ; <-tick.C {
			began := time.Now()
			if other.status(t, secret) == http.StatusUnauthorized {
				return
			}
			require.Less(t, began.Sub(revoked), time.Second, "a revoked token is still let in")
		}
	})
}

// TestReplicasReadEachOthersWrites reads on one server what was just written on
// the other. A SQLite database has one process only.
func TestReplicasReadEachOthersWrites(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		if h.db.Alone() {
			return
		}
		other := replica(t, h, h.db.Clock.Now)
		writer := h.token(t, models.ScopeAgentsWrite)
		require.Equal(t, http.StatusCreated, h.create(t, "shared", 2, 555, "orch-social", "").status)
		tag := other.do(t, "GET", "/api/v1/agents/shared", "").header.Get("ETag")
		changed := other.do(t, "PATCH", "/api/v1/agents/shared", `{"name":"Shared"}`, "If-Match", tag, "Authorization", "Bearer "+writer)
		require.Equal(t, http.StatusOK, changed.status, "%s", changed.body)
		require.Equal(t, http.StatusPreconditionFailed, h.do(t, "PATCH", "/api/v1/agents/shared", `{"name":"Mine"}`, "If-Match", tag).status)
		require.Equal(t, changed.header.Get("ETag"), h.do(t, "GET", "/api/v1/agents/shared", "").header.Get("ETag"))
	})
}
