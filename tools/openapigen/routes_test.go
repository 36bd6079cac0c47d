package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const routed = `package api

func router() {
	read := require(models.ScopeAgentsRead)
	r.Get("/healthz", handle(health))
	r.Group(func(r chi.Router) {
		r.Use(authenticate)
		r.Get("/me", handle(me))
		r.With(read).Get("/agents", find(listAgents))
		r.With(requireAny(models.ScopeTasksRead, models.ScopeMessagesSend)).Get("/tasks", find(listTasks))
		r.With(require(models.ScopeAdmin)).Post("/tokens", once(addToken, tokenReply))
	})
}

func (t *issued) withoutSecret() any { return nil }

// health reports.
//
//	@Summary	Health
func health() {}

// me describes the caller.
//
//	@Summary	Me
func me() {}

// listAgents lists agents.
//
//	@Summary	Agents
func listAgents() {}

// listTasks lists tasks.
//
//	@Summary	Tasks
func listTasks() {}

// addToken adds a token.
//
//	@Summary	Add
//	@Success	201	{object}	issued	"The token"
func addToken() {}

// sent is no route of the router.
//
//	@Summary	Sent
//	@Router		/x-webhooks/sent [post]
func _() {}
`

func TestRoutesAnnotateTheirHandlers(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(from, "router.go"), []byte(routed), 0o600))
	require.NoError(t, annotateRoutes(from, to))
	text, err := os.ReadFile(filepath.Join(to, "router.go"))
	require.NoError(t, err)

	for rule, want := range map[string]string{
		"a route without a token":             "//\t@Router\t/healthz [get]\n//\t@Security\n//\t@Summary\tHealth\n",
		"a route that needs a token":          "//\t@Router\t/me [get]\n//\t@Security\tBearerAuth\n//\t@Summary\tMe\n",
		"a route that needs a scope":          "//\t@Router\t/agents [get]\n//\t@Security\tBearerAuth[agents:read,agents:write]\n//\t@Summary\tAgents\n",
		"a route with alternative scopes":     "//\t@Router\t/tasks [get]\n//\t@Security\tBearerAuth[tasks:read,messages:send]\n",
		"a route with an Idempotency-Key":     "//\t@Router\t/tokens [post]\n//\t@Security\tBearerAuth[admin]\n//\t@Param\tIdempotency-Key\theader\tstring\tfalse\t",
		"a repetition that omits a secret":    "returns the stored response, without the secret\"\tmaxlength(255)\n//\t@Summary\tAdd\n",
		"an annotation of another route":      "// sent is no route of the router.\n//\n//\t@Summary\tSent\n//\t@Router\t\t/x-webhooks/sent [post]\n",
		"everything else is copied unchanged": "func (t *issued) withoutSecret() any { return nil }\n",
	} {
		require.Contains(t, string(text), want, rule)
	}
}
