package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/registry/registrytest"
	"comet/internal/testkit"
	"comet/models"
)

// client is an HTTP client with a token.
type client struct{ *testkit.Client }

func newClient(t testing.TB, url, token string) *client {
	t.Helper()
	return &client{testkit.NewClient(t, url, token)}
}

// do sends a request with pairs of header names and values, and returns the status and the body.
func (c *client) do(ctx context.Context, method, path string, body any, header ...string) (status int, answer []byte, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	out, err := c.Send(ctx, method, path, string(text), header...)
	return out.Status, out.Body, err
}

// get reads an existing resource.
func get[T any](t *testing.T, c *client, path string) T {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodGet, path, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
	var v T
	require.NoError(t, json.Unmarshal(body, &v))
	return v
}

// status returns the status of a GET.
func (c *client) status(t *testing.T, path string) int {
	t.Helper()
	status, _, err := c.do(t.Context(), http.MethodGet, path, nil)
	require.NoError(t, err)
	return status
}

// agent is one agent of a list.
type agent struct {
	ID           string
	Name         string
	Level        models.Level
	SphereID     *int               `json:"sphere_id"`
	FrequencyHz  int                `json:"frequency_hz"`
	Capabilities []string           `json:"capabilities"`
	ParentID     *string            `json:"parent_id"`
	TokenBudget  *int64             `json:"token_budget"`
	BudgetScope  models.BudgetScope `json:"budget_scope"`
	IsActive     bool               `json:"is_active"`
}

type node struct {
	ID       string
	Children []node
}

// tree reads all agents and checks the rules of the tree, and that the hierarchy shows the same
// tree.
func (c *client) tree(t *testing.T) map[string]agent {
	t.Helper()
	type page struct {
		Agents     []agent
		NextCursor string `json:"next_cursor"`
	}
	byID, all := map[string]agent{}, []models.Agent{}
	for next := "/api/v1/agents?limit=1000"; next != ""; {
		p := get[page](t, c, next)
		for _, a := range p.Agents {
			byID[a.ID] = a
			all = append(all, models.Agent{
				ID: a.ID, Level: a.Level, SphereID: a.SphereID, FrequencyHz: a.FrequencyHz, ParentID: a.ParentID, TokenBudget: a.TokenBudget, BudgetScope: a.BudgetScope,
				IsActive: a.IsActive, Version: 1,
			})
		}
		if next = ""; p.NextCursor != "" {
			next = "/api/v1/agents?limit=1000&cursor=" + p.NextCursor
		}
	}
	require.Empty(t, registrytest.BrokenRules(all))
	hierarchy := get[struct {
		Root  node
		Total int
	}](t, c, "/api/v1/hierarchy")
	require.Equal(t, len(all), hierarchy.Total)
	require.Equal(t, "nova", hierarchy.Root.ID)
	require.Equal(t, len(all), requireBelow(t, byID, hierarchy.Root))
	return byID
}

// requireBelow compares a subtree of the hierarchy with the list and returns its size.
func requireBelow(t *testing.T, byID map[string]agent, n node) int {
	t.Helper()
	total := 1
	for _, child := range n.Children {
		require.Equal(t, n.ID, *byID[child.ID].ParentID)
		total += requireBelow(t, byID, child)
	}
	return total
}

// draft is the body of a create request.
type draft struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Level        int      `json:"level"`
	SphereID     int      `json:"sphere_id"`
	FrequencyHz  int      `json:"frequency_hz"`
	Capabilities []string `json:"capabilities"`
	ParentID     string   `json:"parent_id"`
	TokenBudget  int64    `json:"token_budget"`
}

func specialist(id string) draft {
	return draft{
		ID: id, Name: "The " + id, Level: 2, SphereID: 1 + len(id)%9, FrequencyHz: 666, Capabilities: []string{"custom:" + id},
		ParentID: "orch-social", TokenBudget: 1000 + int64(len(id)),
	}
}

func assistant(id, parent string, n int) draft {
	return draft{
		ID: id, Name: fmt.Sprintf("The %s, %d", id, n), Level: 3, SphereID: 1 + n%9, FrequencyHz: 444, Capabilities: []string{"email", "custom:" + id},
		ParentID: parent, TokenBudget: 1000 + int64(n)%49_000,
	}
}

// requireKept compares an agent with the request that created it.
func requireKept(t *testing.T, want draft, got agent) {
	t.Helper()
	require.Equal(t, agent{
		ID: want.ID, Name: want.Name, Level: models.Level(want.Level), SphereID: &want.SphereID, FrequencyHz: want.FrequencyHz,
		Capabilities: want.Capabilities, ParentID: &want.ParentID, TokenBudget: &want.TokenBudget,
		BudgetScope: models.ScopeOwn, IsActive: true,
	}, got)
}

// eventually waits until a condition is met.
func eventually(t *testing.T, holds func() bool, what string) {
	t.Helper()
	require.Eventually(t, holds, long, 2*time.Millisecond, what)
}
