package api

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"comet/models"
)

// router is the whole door at a glance: the chain every request passes, then the
// routes and the scope each of them needs.
func (s *Server) router() http.Handler {
	r := chi.NewRouter()
	r.Use(
		requestIDs,
		accessLog(s.opts.Logger, s.opts.AccessSample),
		s.recoverPanics,
		s.measure,
		securityHeaders,
		skipIf(s.untimed, compress()),
		timeout(s.opts.RequestTimeout, s.untimed),
		middleware.GetHead,
	)
	r.NotFound(s.notFound)
	r.MethodNotAllowed(s.methodNotAllowed(r))

	r.Get("/healthz", s.handle(s.health))
	r.Get("/readyz", s.handle(s.ready))
	if s.opts.Metrics != nil {
		r.Get("/metrics", s.metrics)
	}
	r.Get("/problems/{code}", s.handle(s.getProblemType))
	docsRoutes(r)
	if s.opts.MountPublic != nil {
		s.opts.MountPublic(r)
	}

	r.Group(func(r chi.Router) {
		r.Use(
			s.authenticate,
			s.limitRate(s.rateLimit, tokenID),
		)
		read, write, admin := s.require(models.ScopeAgentsRead), s.require(models.ScopeAgentsWrite), s.require(models.ScopeAdmin)
		spend := s.require(models.ScopeUsageWrite)

		r.Get("/api/v1/me", s.handle(s.me))

		r.With(read).Get("/api/v1/agents", s.handle(s.listAgents))
		r.With(write).Post("/api/v1/agents", s.handle(s.createAgent))
		r.With(read).Get("/api/v1/agents/{agent_id}", s.handle(s.getAgent))
		r.With(write).Patch("/api/v1/agents/{agent_id}", s.handle(s.updateAgent))
		r.With(write).Delete("/api/v1/agents/{agent_id}", s.handle(s.deleteAgent))
		r.With(read).Get("/api/v1/agents/{agent_id}/ancestors", s.handle(s.listAncestors))
		r.With(read).Get("/api/v1/agents/{agent_id}/audit", s.handle(s.listAuditEntries))
		r.With(admin).Get("/api/v1/agents/{agent_id}/key", s.handle(s.getAgentKey))
		r.With(admin).Put("/api/v1/agents/{agent_id}/key", s.handle(s.putAgentKey))
		r.With(admin).Patch("/api/v1/agents/{agent_id}/key", s.handle(s.updateAgentKey))
		r.With(admin).Delete("/api/v1/agents/{agent_id}/key", s.handle(s.revokeAgentKey))

		r.With(read).Get("/api/v1/agents/{agent_id}/usage", s.handle(s.getUsage))
		r.With(spend).Post("/api/v1/agents/{agent_id}/usage", s.handle(s.recordUsage))
		r.With(read).Get("/api/v1/agents/{agent_id}/usage/history", s.handle(s.getUsageHistory))
		r.With(admin).Post("/api/v1/agents/{agent_id}/usage/reset", s.handle(s.resetUsage))
		r.With(read).Get("/api/v1/agents/{agent_id}/reservations", s.handle(s.listReservations))
		r.With(spend).Post("/api/v1/agents/{agent_id}/reservations", s.handle(s.createReservation))
		r.With(read).Get("/api/v1/agents/{agent_id}/reservations/{reservation_id}", s.handle(s.getReservation))
		r.With(spend).Delete("/api/v1/agents/{agent_id}/reservations/{reservation_id}", s.handle(s.releaseReservation))
		r.With(spend).Post("/api/v1/agents/{agent_id}/reservations/{reservation_id}/settle", s.handle(s.settleReservation))
		r.With(read).Get("/api/v1/agents/{agent_id}/budget/additions", s.handle(s.listBudgetAdditions))
		r.With(admin).Post("/api/v1/agents/{agent_id}/budget/additions", s.handle(s.createBudgetAddition))
		r.With(admin).Delete("/api/v1/agents/{agent_id}/budget/additions/{addition_id}", s.handle(s.deleteBudgetAddition))
		r.With(admin).Get("/api/v1/ledger/verify", s.handle(s.verifyLedger))

		r.With(read).Get("/api/v1/hierarchy", s.handle(s.getHierarchy))

		r.With(read).Get("/api/v1/roster", s.handle(s.exportRoster))
		r.With(write).Post("/api/v1/roster", s.handle(s.importRoster))

		r.With(admin).Get("/api/v1/tokens", s.handle(s.listTokens))
		r.With(admin).Post("/api/v1/tokens", s.handle(s.createToken))
		r.With(admin).Get("/api/v1/tokens/{token_id}", s.handle(s.getToken))
		r.With(admin).Delete("/api/v1/tokens/{token_id}", s.handle(s.revokeToken))
		r.With(admin).Post("/api/v1/tokens/{token_id}/rotate", s.handle(s.rotateToken))

		hooks := s.require(models.ScopeWebhooksWrite)
		r.With(hooks).Get("/api/v1/webhooks", s.handle(s.listWebhooks))
		r.With(hooks).Post("/api/v1/webhooks", s.handle(s.createWebhook))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}", s.handle(s.getWebhook))
		r.With(hooks).Patch("/api/v1/webhooks/{webhook_id}", s.handle(s.updateWebhook))
		r.With(hooks).Delete("/api/v1/webhooks/{webhook_id}", s.handle(s.deleteWebhook))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/rotate-secret", s.handle(s.rotateWebhookSecret))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/test", s.handle(s.testWebhook))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/redeliver", s.handle(s.redeliverWebhook))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}/deliveries", s.handle(s.listDeliveries))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", s.handle(s.getDelivery))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", s.handle(s.redeliver))

		send, own := s.require(models.ScopeMessagesSend), s.requireAny(models.ScopeTasksRead, models.ScopeMessagesSend)
		r.With(own).Get("/api/v1/tasks", s.handle(s.listTasks))
		r.With(send).Post("/api/v1/tasks", s.handle(s.submitTask))
		r.With(own).Get("/api/v1/tasks/{task_id}", s.handle(s.getTask))
		r.With(send).Post("/api/v1/tasks/{task_id}/cancel", s.handle(s.cancelTask))
		r.With(send).Post("/api/v1/tasks/{task_id}/reply", s.handle(s.replyToTask))
		r.With(own).Get("/api/v1/tasks/{task_id}/output", s.handle(s.getTaskOutput))
		r.With(own).Get("/api/v1/tasks/{task_id}/messages", s.handle(s.listTaskMessages))
		r.With(own).Get("/api/v1/sessions", s.handle(s.listSessions))
		r.With(send).Post("/api/v1/sessions", s.handle(s.openSession))
		r.With(own).Get("/api/v1/sessions/{session_id}", s.handle(s.getSession))
		r.With(send).Post("/api/v1/sessions/{session_id}/close", s.handle(s.closeSession))
		r.With(own).Get("/api/v1/sessions/{session_id}/questions", s.handle(s.listQuestions))
		r.With(send).Post("/api/v1/sessions/{session_id}/reply", s.handle(s.replyToSession))

		watch := s.require(models.ScopeTasksRead)
		r.With(watch).Get("/api/v1/workers", s.handle(s.listWorkers))
		r.With(watch).Get("/api/v1/workers/{agent_id}", s.handle(s.getWorker))
		r.With(s.requireAny(models.ScopeTasksRead, models.ScopeAgentsRead, models.ScopeToolsCall)).Get("/api/v1/events", s.handle(s.streamEvents))

		tools := s.require(models.ScopeToolsCall)
		r.With(tools).Get("/api/v1/tools", s.handle(s.listTools))
		r.With(tools).Post("/api/v1/tools/search", s.handle(s.searchTools))
		r.With(tools).Post("/api/v1/tools/call", s.handle(s.callTool))
		r.With(tools).Get("/api/v1/tools/calls", s.handle(s.listToolCalls))
		r.With(tools).Get("/api/v1/upstreams", s.handle(s.listUpstreams))
		r.With(admin).Post("/api/v1/upstreams/reload", s.handle(s.reloadUpstreams))
		r.With(tools).Get("/api/v1/upstreams/{upstream_id}", s.handle(s.getUpstream))
		r.With(admin).Put("/api/v1/upstreams/{upstream_id}", s.handle(s.putUpstream))
		r.With(admin).Delete("/api/v1/upstreams/{upstream_id}", s.handle(s.deleteUpstream))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/restart", s.handle(s.restartUpstream))
		r.With(admin).Get("/api/v1/upstreams/{upstream_id}/tools", s.handle(s.listToolDefinitions))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/tools/approve", s.handle(s.approveTool))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/tools/classify", s.handle(s.classifyTool))
		r.With(admin).Get("/api/v1/tokens/{token_id}/tool-policy", s.handle(s.getToolPolicy))
		r.With(admin).Put("/api/v1/tokens/{token_id}/tool-policy", s.handle(s.putToolPolicy))
		r.With(admin).Delete("/api/v1/tokens/{token_id}/tool-policy", s.handle(s.deleteToolPolicy))

		if s.opts.Mount != nil {
			s.opts.Mount(r)
		}
	})
	return r
}

// untimed selects the requests that the chain sets no limit of time.
func (s *Server) untimed(r *http.Request) bool {
	return isStream(r) || s.opts.Untimed != nil && s.opts.Untimed(r)
}

func (s *Server) measure(next http.Handler) http.Handler {
	if s.opts.Measure == nil {
		return next
	}
	return s.opts.Measure(next)
}

// tokenID names the caller to the rate limiter.
func tokenID(ctx context.Context) string { return principalFrom(ctx).TokenID }
