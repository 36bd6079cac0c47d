package api_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
)

// TestConcurrentReportsWithOneRequestID: the same report, sent by many at once, is answered
// with the same fact and adds its tokens once.
func TestConcurrentReportsWithOneRequestID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body     string
		header   []string
		statuses map[int]int
	}{
		"by request_id":      {`{"tokens":100,"request_id":"once"}`, nil, map[int]int{http.StatusCreated: 1, http.StatusOK: clients - 1}},
		"by Idempotency-Key": {`{"tokens":100}`, []string{"Idempotency-Key", "once"}, map[int]int{http.StatusCreated: clients}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
				replies := runConcurrently(t, clients, func(ctx context.Context, _ int) (response, error) {
					return h.doContext(ctx, "POST", "/api/v1/agents/orch-social/usage", c.body, c.header...)
				})
				require.Equal(t, c.statuses, count(replies))
				ids, first := map[string]bool{}, 0
				for _, got := range replies {
					var fact models.Fact
					got.decode(t, got.status, &fact)
					require.Equal(t, got.status == http.StatusOK, fact.Replayed)
					if !fact.Replayed && got.header.Get("Idempotency-Replayed") == "" {
						first++
					}
					ids[fact.ID] = true
				}
				require.Len(t, ids, 1)
				require.Equal(t, 1, first, "one answer is not a repetition")
				u, err := h.ledger.Usage(t.Context(), "orch-social")
				require.NoError(t, err)
				require.EqualValues(t, 100, u.UsedToday)
			})
		})
	}
}

// TestConcurrentReservationsNeverOverspend checks that the budget limits the number of concurrent
// reservations; the other requests get 429 with the remaining tokens.
func TestConcurrentReservationsNeverOverspend(t *testing.T) {
	t.Parallel()
	const each, covered = 3001, 33 // of 100,000
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		granted := int64(0)
		for range 2 {
			for _, got := range runConcurrently(t, clients, func(ctx context.Context, _ int) (response, error) {
				return h.doContext(ctx, "POST", "/api/v1/agents/orch-social/reservations", fmt.Sprintf(`{"tokens":%d}`, each))
			}) {
				if got.status == http.StatusCreated {
					granted += each
					continue
				}
				got.problem(t, http.StatusTooManyRequests, errs.BudgetReserved)
				require.Equal(t, "5", got.header.Get("Retry-After"))
				require.Equal(t, map[string]any{
					"agent_id": "orch-social", "scope": "own", "budget": 100000.0, "used": 0.0, "reserved": float64(covered * each),
					"remaining": float64(100_000 - covered*each), "requested": float64(each), "reset_at": "2026-01-11T00:00:00Z", "retry_after": 5.0,
				}, metaOf(t, got))
			}
		}
		require.EqualValues(t, covered*each, granted)
	})
}

// TestConcurrentSettleAndRelease checks that exactly one of several concurrent settlements and
// releases succeeds, and that the held tokens are released once.
func TestConcurrentSettleAndRelease(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		held := h.do(t, "POST", "/api/v1/agents/orch-social/reservations", `{"tokens":1000}`).header.Get("Location")
		replies := runConcurrently(t, clients, func(ctx context.Context, i int) (response, error) {
			if i%2 == 0 {
				return h.doContext(ctx, "DELETE", held, "")
			}
			return h.doContext(ctx, "POST", held+"/settle", fmt.Sprintf(`{"tokens":%d}`, i))
		})
		n := count(replies)
		u, err := h.ledger.Usage(t.Context(), "orch-social")
		require.NoError(t, err)
		require.Zero(t, u.Reserved)
		if u.UsedToday == 0 {
			require.Equal(t, map[int]int{http.StatusNoContent: clients / 2, http.StatusConflict: clients / 2}, n, "released")
		} else {
			require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusConflict: clients - 1}, n, "settled")
		}
	})
}
