package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"comet/internal/httpkit"
	"comet/models"
)

// router returns the complete API: the middleware chain of every request, then the routes with the
// scope that each requires.
func (s *Server) router() http.Handler {
	r := chi.NewRouter()
	r.Use(
		httpkit.RequestIDs,
		httpkit.AccessLog(s.opts.Logger, s.opts.AccessSample),
		s.recoverPanics,
		s.opts.Limits.Bytes.Bound,
		s.measure,
		securityHeaders,
		skipIf(s.untimed, compress()),
		timeout(s.opts.RequestTimeout, s.untimed),
		middleware.GetHead,
	)
	notFound, methodNotAllowed := s.fallbacks(r)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed)

	r.Get("/", s.handle(s.getHome))
	r.Get("/healthz", s.handle(s.getHealth))
	r.Get("/readyz", s.handle(s.getReadiness))
	if s.opts.Metrics != nil {
		r.Get("/metrics", s.getMetrics)
	}
	r.Get("/problems/{code}", s.handle(s.getProblemType))
	r.Get("/oauth/callback", s.handle(s.finishAuthorization))
	r.Get("/oauth/client-metadata.json", s.read(func(request) (any, error) { return s.core.Tools.ClientMetadata() }))
	r.Get("/.well-known/jwks.json", s.handle(s.getJWKS))
	docsRoutes(r)
	if s.opts.MountPublic != nil {
		s.opts.MountPublic(r)
	}

	r.Group(func(r chi.Router) {
		r.Use(s.authenticate, s.confine)
		read, write, admin := s.require(models.ScopeAgentsRead), s.require(models.ScopeAgentsWrite), s.require(models.ScopeAdmin)
		spend := s.require(models.ScopeUsageWrite)

		r.Get("/api/v1/me", s.read(s.getMe))

		r.With(read).Get("/api/v1/agents", s.find(s.listAgents))
		r.With(write).Post("/api/v1/agents", once(s, jsonBody, s.createAgent, createdAgent))
		r.With(read).Get("/api/v1/agents/{agent_id}", s.read(s.getAgent))
		r.With(write).Patch("/api/v1/agents/{agent_id}", change(s, jsonBody, s.updateAgent))
		r.With(write).Delete("/api/v1/agents/{agent_id}", s.remove(s.deleteAgent))
		r.With(read).Get("/api/v1/agents/{agent_id}/a2a", s.read(s.getRemoteAgent))
		r.With(write).Put("/api/v1/agents/{agent_id}/a2a", change(s, validBody, s.putRemoteAgent))
		r.With(write).Delete("/api/v1/agents/{agent_id}/a2a", s.remove(s.deleteRemoteAgent))
		r.With(read).Get("/api/v1/agents/{agent_id}/ancestors", s.read(s.listAncestors))
		r.With(read).Get("/api/v1/agents/{agent_id}/audit", s.find(s.listAuditEntries))
		r.With(admin).Get("/api/v1/agents/{agent_id}/key", s.read(s.getAgentKey))
		r.With(admin).Put("/api/v1/agents/{agent_id}/key", change(s, optionalBody, s.putAgentKey))
		r.With(admin).Patch("/api/v1/agents/{agent_id}/key", change(s, jsonBody, s.updateAgentKey))
		r.With(admin).Delete("/api/v1/agents/{agent_id}/key", s.remove(s.revokeAgentKey))

		r.With(admin).Get("/api/v1/agents/{agent_id}/keys", s.read(s.listPublicKeys))
		r.With(admin).Post("/api/v1/agents/{agent_id}/keys", once(s, validBody, s.pinPublicKey, s.pinnedKey))
		r.With(admin).Get("/api/v1/agents/{agent_id}/keys/{key_id}", s.read(s.getPublicKey))
		r.With(admin).Patch("/api/v1/agents/{agent_id}/keys/{key_id}", change(s, jsonBody, s.changePublicKey))
		r.With(admin).Delete("/api/v1/agents/{agent_id}/keys/{key_id}", s.remove(s.revokePublicKey))
		r.With(admin).Get("/api/v1/service/keys", s.read(s.listServiceKeys))
		r.With(admin).Post("/api/v1/service/keys/rotate", change(s, withoutBody, s.rotateServiceKey))
		r.With(read).Get("/api/v1/agents/{agent_id}/subscriptions", s.read(s.getSubscriptions))
		r.With(s.require(models.ScopeAgentsWrite, models.ScopeMessagesSend)).Put("/api/v1/agents/{agent_id}/subscriptions", change(s, validBody, s.putSubscriptions))

		r.With(read).Get("/api/v1/agents/{agent_id}/usage", s.read(s.getUsage))
		r.With(spend).Post("/api/v1/agents/{agent_id}/usage", s.handle(s.recordUsage))
		r.With(read).Get("/api/v1/agents/{agent_id}/usage/history", s.find(s.getUsageHistory))
		r.With(admin).Post("/api/v1/agents/{agent_id}/usage/reset", once(s, jsonBody, s.resetUsage, bodyReply))
		r.With(read).Get("/api/v1/agents/{agent_id}/reservations", s.find(s.listReservations))
		r.With(spend).Post("/api/v1/agents/{agent_id}/reservations", once(s, jsonBody, s.createReservation, reservationReply))
		r.With(read).Get("/api/v1/agents/{agent_id}/reservations/{reservation_id}", s.read(s.getReservation))
		r.With(spend).Delete("/api/v1/agents/{agent_id}/reservations/{reservation_id}", s.remove(s.releaseReservation))
		r.With(spend).Post("/api/v1/agents/{agent_id}/reservations/{reservation_id}/settle", once(s, jsonBody, s.settleReservation, settledReply))
		r.With(read).Get("/api/v1/agents/{agent_id}/budget/additions", s.find(s.listBudgetAdditions))
		r.With(admin).Post("/api/v1/agents/{agent_id}/budget/additions", once(s, jsonBody, s.createBudgetAddition, additionReply))
		r.With(admin).Delete("/api/v1/agents/{agent_id}/budget/additions/{addition_id}", s.remove(s.deleteBudgetAddition))
		r.With(admin).Get("/api/v1/ledger/verify", s.read(s.verifyLedger))
		r.With(admin).Post("/api/v1/ledger/repair", change(s, withoutBody, s.repairLedger))

		r.With(read).Get("/api/v1/hierarchy", s.find(s.getHierarchy))

		r.With(read).Get("/api/v1/roster", s.handle(s.exportRoster))
		r.With(write).Post("/api/v1/roster", s.handle(s.importRoster))

		r.Get("/api/v1/tokens", s.find(s.listTokens))
		r.Post("/api/v1/tokens", once(s, jsonBody, s.createToken, tokenReply(http.StatusCreated)))
		r.Get("/api/v1/tokens/{token_id}", s.read(s.getToken))
		r.Delete("/api/v1/tokens/{token_id}", s.remove(s.revokeToken))
		r.Post("/api/v1/tokens/{token_id}/rotate", once(s, withoutBody, s.rotateToken, tokenReply(http.StatusOK)))

		r.Post("/api/v1/logins/codes", change(s, withoutBody, s.createLoginCode))
		r.Get("/api/v1/logins", s.find(s.listLogins))
		r.Delete("/api/v1/logins/{login_id}", s.remove(s.endLogin))

		hooks := s.require(models.ScopeWebhooksWrite)
		r.With(hooks).Get("/api/v1/webhooks", s.find(s.listWebhooks))
		r.With(hooks).Post("/api/v1/webhooks", once(s, jsonBody, s.createWebhook, s.webhookReply(http.StatusCreated)))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}", s.read(s.getWebhook))
		r.With(hooks).Patch("/api/v1/webhooks/{webhook_id}", change(s, jsonBody, s.updateWebhook))
		r.With(hooks).Delete("/api/v1/webhooks/{webhook_id}", s.remove(s.deleteWebhook))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/rotate-secret", once(s, optionalBody, s.rotateWebhookSecret, s.webhookReply(http.StatusOK)))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/test", change(s, withoutBody, s.testWebhook))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/redeliver", change(s, validBody, s.redeliverWebhook))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}/deliveries", s.find(s.listDeliveries))
		r.With(hooks).Get("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", s.read(s.getDelivery))
		r.With(hooks).Post("/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", change(s, withoutBody, s.redeliverDelivery))

		send, own := s.require(models.ScopeMessagesSend), s.require(models.ScopeTasksRead, models.ScopeMessagesSend)
		r.With(own).Get("/api/v1/tasks", s.find(s.listTasks))
		r.With(send).Post("/api/v1/tasks", s.handle(s.submitTask))
		r.With(own).Get("/api/v1/tasks/{task_id}", s.find(s.getTask))
		r.With(send).Post("/api/v1/tasks/{task_id}/cancel", once(s, optionalBody, s.cancelTask, changedTask))
		r.With(send).Post("/api/v1/tasks/{task_id}/reply", change(s, validBody, s.replyToTask))
		r.With(own).Get("/api/v1/tasks/{task_id}/output", s.handle(s.getTaskOutput))
		r.With(own).Get("/api/v1/tasks/{task_id}/partials", s.find(s.listPartials))
		r.With(own).Get("/api/v1/tasks/{task_id}/messages", s.find(s.listTaskMessages))
		r.With(own).Get("/api/v1/sessions", s.find(s.listSessions))
		r.With(send).Post("/api/v1/sessions", change(s, optionalBody, s.openSession))
		r.With(own).Get("/api/v1/sessions/{session_id}", s.read(s.getSession))
		r.With(send).Post("/api/v1/sessions/{session_id}/close", change(s, withoutBody, s.closeSession))
		r.With(own).Get("/api/v1/sessions/{session_id}/questions", s.read(s.listQuestions))
		r.With(send).Post("/api/v1/sessions/{session_id}/reply", change(s, jsonBody, s.replyToSession))

		r.With(send).Post("/api/v1/publications", once(s, validBody, s.publish, publishedReply))
		r.With(own).Get("/api/v1/publications/{publication_id}", s.read(s.getPublication))
		plan := s.require(models.ScopeMessagesSend, models.ScopeToolsCall)
		r.With(plan).Get("/api/v1/schedules", s.find(s.listSchedules))
		r.With(plan).Post("/api/v1/schedules", once(s, validBody, s.createSchedule, createdSchedule))
		r.With(plan).Get("/api/v1/schedules/{schedule_id}", s.read(s.getSchedule))
		r.With(plan).Patch("/api/v1/schedules/{schedule_id}", change(s, validBody, s.updateSchedule))
		r.With(plan).Delete("/api/v1/schedules/{schedule_id}", s.remove(s.deleteSchedule))

		watch := s.require(models.ScopeTasksRead)
		r.With(watch).Get("/api/v1/dead-letters", s.find(s.listDeadLetters))
		r.With(send).Post("/api/v1/dead-letters/redeliver", change(s, validBody, s.redeliverDeadLetters))
		r.With(watch).Get("/api/v1/workers", s.find(s.listWorkers))
		r.With(watch).Get("/api/v1/workers/{agent_id}", s.read(s.getWorker))
		follow := s.require(models.ScopeTasksRead, models.ScopeAgentsRead, models.ScopeToolsCall, models.ScopeWorkflowsApprove)
		r.With(follow).Get("/api/v1/events", s.handle(s.streamEvents))
		r.With(follow).Get("/api/v1/events/history", s.find(s.listEvents))

		r.With(s.require(models.ScopeTasksRead, models.ScopeAgentsRead, models.ScopeToolsCall)).Get("/api/v1/stats", s.find(s.getStats))

		tools := s.require(models.ScopeToolsCall)
		r.With(tools).Get("/api/v1/tools", s.find(s.listTools))
		r.With(tools).Post("/api/v1/tools/search", change(s, jsonBody, s.searchTools))
		r.With(tools).Post("/api/v1/tools/call", s.handle(s.callTool))
		r.With(tools).Get("/api/v1/tools/calls", s.find(s.listToolCalls))
		r.With(tools).Get("/api/v1/tools/graph", s.handle(s.getToolGraph))
		r.With(tools).Get("/api/v1/tools/graph/path", s.find(s.getToolPath))
		r.With(tools).Get("/api/v1/upstreams", s.read(s.listUpstreams))
		r.With(admin).Post("/api/v1/upstreams/reload", s.remove(s.reloadUpstreams))
		r.With(tools).Get("/api/v1/upstreams/{upstream_id}", s.read(s.getUpstream))
		r.With(admin).Put("/api/v1/upstreams/{upstream_id}", change(s, jsonBody, s.putUpstream))
		r.With(admin).Patch("/api/v1/upstreams/{upstream_id}", change(s, jsonBody, s.updateUpstream))
		r.With(admin).Delete("/api/v1/upstreams/{upstream_id}", s.remove(s.deleteUpstream))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/restart", s.remove(s.restartUpstream))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/approve", change(s, withoutBody, s.approveUpstream))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/authorize", change(s, withoutBody, s.authorizeUpstream))
		r.With(admin).Get("/api/v1/upstreams/{upstream_id}/tools", s.read(s.listToolDefinitions))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/tools/approve", change(s, validBody, s.approveTool))
		r.With(admin).Post("/api/v1/upstreams/{upstream_id}/tools/classify", change(s, validBody, s.classifyTool))
		r.With(admin).Get("/api/v1/tokens/{token_id}/tool-policy", s.read(s.getToolPolicy))
		r.With(admin).Put("/api/v1/tokens/{token_id}/tool-policy", change(s, validBody, s.putToolPolicy))
		r.With(admin).Delete("/api/v1/tokens/{token_id}/tool-policy", s.remove(s.deleteToolPolicy))
		r.With(admin).Post("/api/v1/tokens/{token_id}/tool-policy/simulate", change(s, validBody, s.simulateToolPolicy))

		approve := s.require(models.ScopeToolsCall, models.ScopeWorkflowsApprove)
		r.With(approve).Get("/api/v1/workflows", s.find(s.listWorkflows))
		r.With(tools).Post("/api/v1/workflows", s.handle(s.startWorkflow))
		r.With(tools).Post("/api/v1/workflows/plan", s.handle(s.planWorkflow))
		r.With(approve).Get("/api/v1/workflows/{workflow_id}", s.handle(s.getWorkflow))
		r.With(approve).Get("/api/v1/workflows/{workflow_id}/graph", s.read(s.getWorkflowGraph))
		r.With(approve).Get("/api/v1/workflows/{workflow_id}/checkpoints", s.find(s.listCheckpoints))
		r.With(approve).Get("/api/v1/workflows/{workflow_id}/steps/{step_id}/result", s.handle(s.getStepResult))
		r.With(tools).Post("/api/v1/workflows/{workflow_id}/continue", changeWorkflow(s, optionalBody, s.continueWorkflow))
		r.With(tools).Post("/api/v1/workflows/{workflow_id}/abort", changeWorkflow(s, jsonBody, s.abortWorkflow))
		r.With(tools).Post("/api/v1/workflows/{workflow_id}/replan", change(s, validBody, s.replanWorkflow))
		r.With(approve).Post("/api/v1/workflows/{workflow_id}/checkpoints/{checkpoint_id}", changeWorkflow(s, jsonBody, s.decideOnCheckpoint))

		r.With(tools).Get("/api/v1/workflow-definitions", s.find(s.listDefinitions))
		r.With(tools).Get("/api/v1/workflow-definitions/{definition_id}", s.find(s.getDefinition))
		r.With(admin).Put("/api/v1/workflow-definitions/{definition_id}", change(s, validBody, s.putDefinition))
		r.With(admin).Delete("/api/v1/workflow-definitions/{definition_id}", s.remove(s.deleteDefinition))

		if s.opts.Mount != nil {
			s.opts.Mount(r)
		}
	})
	return r
}

// untimed selects the requests without a time limit.
func (s *Server) untimed(r *http.Request) bool {
	return isStream(r) || s.opts.Untimed != nil && s.opts.Untimed(r)
}

func (s *Server) measure(next http.Handler) http.Handler {
	if s.opts.Measure == nil {
		return next
	}
	return s.opts.Measure(next)
}
