package api_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry/registrytest"
	"comet/models"
	"comet/store"
)

// clients is the number of concurrent clients.
const clients = 32

// runConcurrently sends the requests of n clients at the same time and returns the responses.
func runConcurrently(t *testing.T, n int, ask func(ctx context.Context, i int) (response, error)) []response {
	t.Helper()
	replies, failures := make([]response, n), make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			replies[i], failures[i] = ask(t.Context(), i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range failures {
		require.NoError(t, err)
	}
	return replies
}

// count returns the number of responses with each status.
func count(replies []response) map[int]int {
	n := map[int]int{}
	for _, r := range replies {
		n[r.status]++
	}
	return n
}

func requireCompleteAgent(t *testing.T, h *fixture) []models.Agent {
	t.Helper()
	page, err := h.registry.List(t.Context(), store.AgentQuery{Sort: "id", Limit: 1000})
	require.NoError(t, err)
	require.Empty(t, registrytest.BrokenRules(page.Agents))
	return page.Agents
}

func TestConcurrentCreatesOfOneID(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		replies := runConcurrently(t, clients, func(ctx context.Context, i int) (response, error) {
			return h.doContext(ctx, "POST", "/api/v1/agents", fmt.Sprintf(
				`{"id":"contested","name":"client %d","level":2,"sphere_id":1,"frequency_hz":555,"parent_id":"orch-social"}`, i))
		})
		require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusConflict: clients - 1}, count(replies))
		var created, kept struct{ Name string }
		for _, r := range replies {
			if r.status == http.StatusConflict {
				r.problem(t, 409, errs.AgentExists)
			} else {
				r.decode(t, http.StatusCreated, &created)
			}
		}
		h.do(t, "GET", "/api/v1/agents/contested", "").decode(t, 200, &kept)
		require.Equal(t, created, kept, "what is there is what was answered with 201")
		var trail struct{ Entries []any }
		h.do(t, "GET", "/api/v1/agents/contested/audit", "").decode(t, 200, &trail)
		require.Len(t, trail.Entries, 1)
	})
}

func TestConcurrentRequestsWithOneIdempotencyKey(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		t.Run("and one response", func(t *testing.T) {
			t.Parallel()
			replies := runConcurrently(t, clients, func(ctx context.Context, _ int) (response, error) {
				return h.doContext(ctx, "POST", "/api/v1/agents",
					`{"id":"once","name":"Once","level":2,"sphere_id":1,"frequency_hz":555,"parent_id":"orch-social","capabilities":["odd"]}`, "Idempotency-Key", "the-key")
			})
			require.Equal(t, map[int]int{http.StatusCreated: clients}, count(replies))
			first := 0
			for _, r := range replies {
				require.Equal(t, string(replies[0].body), string(r.body))
				require.Equal(t, replies[0].header.Get("ETag"), r.header.Get("ETag"))
				require.Equal(t, "/api/v1/agents/once", r.header.Get("Location"))
				if r.header.Get("Idempotency-Replayed") == "" {
					first++
				}
			}
			require.Equal(t, 1, first, "one request was the first")
		})
		t.Run("and different requests but one are rejected", func(t *testing.T) {
			t.Parallel()
			replies := runConcurrently(t, clients, func(ctx context.Context, i int) (response, error) {
				return h.doContext(ctx, "POST", "/api/v1/agents", fmt.Sprintf(
					`{"id":"either-%d","name":"x","level":2,"sphere_id":1,"frequency_hz":555,"parent_id":"orch-social"}`, i%2), "Idempotency-Key", "another-key")
			})
			require.Equal(t, map[int]int{http.StatusCreated: clients / 2, http.StatusConflict: clients / 2}, count(replies))
			for _, r := range replies {
				if r.status == http.StatusConflict {
					r.problem(t, 409, errs.IdempotencyKeyReused)
				}
			}
		})
		t.Run("and a token's secret is returned once", func(t *testing.T) {
			t.Parallel()
			replies := runConcurrently(t, clients, func(ctx context.Context, _ int) (response, error) {
				return h.doContext(ctx, "POST", "/api/v1/tokens", `{"name":"once","scopes":["agents:read"]}`, "Idempotency-Key", "token-key")
			})
			secrets, ids := map[string]bool{}, map[string]bool{}
			for _, r := range replies {
				var token struct{ ID, Token string }
				r.decode(t, http.StatusCreated, &token)
				ids[token.ID] = true
				if token.Token != "" {
					secrets[token.Token] = true
				}
			}
			require.Len(t, ids, 1)
			require.Len(t, secrets, 1)
		})
	})
}

// TestConcurrentCreateAndDeactivation lets children arrive in every way there
// is while their parent is deactivated.
func TestConcurrentCreateAndDeactivation(t *testing.T) {
	t.Parallel()
	const rounds = 40
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		for round := range rounds {
			parent, moving, sleeping := fmt.Sprintf("parent-%d", round), fmt.Sprintf("moving-%d", round), fmt.Sprintf("sleeping-%d", round)
			require.Equal(t, 201, h.create(t, parent, 2, 555, "orch-social", "").status)
			require.Equal(t, 201, h.create(t, "home-"+parent, 2, 555, "orch-social", "").status)
			require.Equal(t, 201, h.create(t, moving, 3, 444, "home-"+parent, "").status)
			require.Equal(t, 201, h.create(t, sleeping, 3, 444, parent, "").status)
			require.Equal(t, 204, h.do(t, "DELETE", "/api/v1/agents/"+sleeping, "").status)
			entry := `{"id":"imported-` + parent + `","name":"x","level":3,"sphere_id":1,"frequency_hz":444,"parent_id":"` + parent + `"}`
			requests := [][3]string{
				{"DELETE", "/api/v1/agents/" + parent, ""},
				{"POST", "/api/v1/agents", `{"id":"born-` + parent + `","name":"x","level":3,"sphere_id":1,"frequency_hz":444,"parent_id":"` + parent + `"}`},
				{"PATCH", "/api/v1/agents/" + moving, `{"parent_id":"` + parent + `"}`},
				{"PATCH", "/api/v1/agents/" + sleeping, `{"is_active":true}`},
				{"POST", "/api/v1/roster", `{"version":1,"agents":[` + entry + `]}`},
				{"PATCH", "/api/v1/agents/" + parent, `{"is_active":false}`},
			}
			arrivals := 1 + round%(len(requests)-1) // sometimes few, so that either side wins
			replies := runConcurrently(t, 1+arrivals, func(ctx context.Context, i int) (response, error) {
				return h.doContext(ctx, requests[i][0], requests[i][1], requests[i][2])
			})
			for i, r := range replies {
				require.Contains(t, []int{200, 201, 204, 409}, r.status, "%v: %s", requests[i], r.body)
			}
			requireCompleteAgent(t, h)
		}
	})
}

func TestConcurrentIfMatch(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		createFamily(t, h)
		for round := range 5 {
			tag := h.do(t, "GET", "/api/v1/agents/the-l2", "").header.Get("ETag")
			replies := runConcurrently(t, clients, func(ctx context.Context, i int) (response, error) {
				return h.doContext(ctx, "PATCH", "/api/v1/agents/the-l2", fmt.Sprintf(`{"description":"round %d, client %d"}`, round, i), "If-Match", tag)
			})
			require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusPreconditionFailed: clients - 1}, count(replies))
			var won, kept struct{ Description string }
			for _, r := range replies {
				if r.status == http.StatusOK {
					r.decode(t, 200, &won)
				} else {
					require.Equal(t, "If-Match", r.problem(t, 412, errs.PreconditionFailed).Errors[0].Header)
				}
			}
			h.do(t, "GET", "/api/v1/agents/the-l2", "").decode(t, 200, &kept)
			require.Equal(t, won, kept)
		}
	})
}

func TestLastAdminTokenCannotBeRevoked(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		secrets, ids := make([]string, 8), make([]string, 8)
		for i := range secrets {
			var token struct{ ID, Token string }
			h.do(t, "POST", "/api/v1/tokens", `{"name":"admin","scopes":["admin"]}`).decode(t, 201, &token)
			secrets[i], ids[i] = token.Token, token.ID
		}
		var me struct{ Token struct{ ID string } }
		h.do(t, "GET", "/api/v1/me", "").decode(t, 200, &me)
		require.Equal(t, 204, h.do(t, "DELETE", "/api/v1/tokens/"+me.Token.ID, "").status)

		replies := runConcurrently(t, len(ids), func(ctx context.Context, i int) (response, error) {
			return h.doContext(ctx, "DELETE", "/api/v1/tokens/"+ids[i], "", "Authorization", "Bearer "+secrets[i])
		})
		require.Equal(t, map[int]int{http.StatusNoContent: len(ids) - 1, http.StatusConflict: 1}, count(replies))
		for i, r := range replies {
			if r.status == http.StatusConflict {
				r.problem(t, 409, errs.LastAdminToken)
				require.Equal(t, 200, h.do(t, "GET", "/api/v1/me", "", "Authorization", "Bearer "+secrets[i]).status, "it still works")
			}
		}
	})
}

// TestConcurrentImportsAndCreates runs overlapping imports and single creates concurrently: each
// takes effect completely or not at all.
func TestConcurrentImportsAndCreates(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		entry := func(i int) string {
			return fmt.Sprintf(`{"id":"shared-%d","name":"x","level":2,"sphere_id":1,"frequency_hz":555,"parent_id":"orch-social"}`, i)
		}
		replies := runConcurrently(t, 16, func(ctx context.Context, i int) (response, error) {
			if i%2 == 0 {
				return h.doContext(ctx, "POST", "/api/v1/agents", entry(i))
			}
			return h.doContext(ctx, "POST", "/api/v1/roster", fmt.Sprintf(
				`{"version":1,"agents":[%s,%s,%s,{"id":"child-%d","name":"x","level":3,"sphere_id":1,"frequency_hz":444,"parent_id":"shared-%d"}]}`,
				entry(i-1), entry(i), entry((i+1)%16), i, i))
		})
		for i, r := range replies {
			switch {
			case i%2 == 0:
				require.Contains(t, []int{201, 409}, r.status, "%s", r.body)
			default:
				require.Equal(t, 200, r.status, "%s", r.body)
			}
		}
		require.Len(t, requireCompleteAgent(t, h), 10+16+8)
	})
}
