package api

// What a webhook hears of. No code stands behind these annotations: the requests
// are ones comet makes, so the generator of the description moves them from the
// paths to x-webhooks, the form that OpenAPI 3.1's webhooks have in 3.0. The body
// named here is the event's data; the envelope around it, the headers and the
// answers are the same for every event and added there.

// An agent was created (CHE·NU §9).
//
//	@Summary		An agent was created
//	@Description	By a request, an import or the first start.
//	@ID				onAgentCreated
//	@Tags			webhooks
//	@Param			data	body	models.AgentSnapshot	true	"The agent as it was made"
//	@Router			/x-webhooks/agent.created [post]
func _() {}

// An agent was changed (CHE·NU §9).
//
//	@Summary		An agent was changed
//	@Description	Or restored, which is `is_active` from false to true. A change that also deactivates the agent is told by two events of the same `version`: this one, then `agent.deactivated`.
//	@ID				onAgentUpdated
//	@Tags			webhooks
//	@Param			data	body	models.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.updated [post]
func _() {}

// An agent was deactivated (CHE·NU §2.4, §9).
//
//	@Summary		An agent was deactivated
//	@Description	By `DELETE` or by `PATCH {"is_active": false}`.
//	@ID				onAgentDeactivated
//	@Tags			webhooks
//	@Param			data	body	models.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.deactivated [post]
func _() {}

// 80 % of a budget is used (CHE·NU §9).
//
//	@Summary		80 % of a budget is used
//	@Description	Once a UTC day for each agent, when what was used reaches 80 % of the budget.
//	@ID				onBudgetWarning
//	@Tags			webhooks
//	@Param			data	body	models.BudgetAlert	true	"Where the budget stands"
//	@Router			/x-webhooks/agent.budget_warning [post]
func _() {}

// A budget is exceeded (CHE·NU §9).
//
//	@Summary		A budget is exceeded
//	@Description	Once a UTC day for each agent, when a reservation is refused or a fact passes the budget.
//	@ID				onBudgetExceeded
//	@Tags			webhooks
//	@Param			data	body	models.BudgetAlert	true	"Where the budget stands"
//	@Router			/x-webhooks/agent.budget_exceeded [post]
func _() {}

// comet has given a webhook up.
//
//	@Summary		A webhook was disabled
//	@Description	By comet itself, because nothing could be delivered for five days and at least ten attempts, or because the receiver answered 410.
//	@ID				onWebhookDisabled
//	@Tags			webhooks
//	@Param			data	body	models.WebhookDisabled	true	"Which one, and why"
//	@Router			/x-webhooks/webhook.disabled [post]
func _() {}

// Somebody tests a webhook.
//
//	@Summary		A test
//	@Description	`POST /api/v1/webhooks/{webhook_id}/test` sends it to that one webhook; nobody subscribes to it.
//	@ID				onWebhookTest
//	@Tags			webhooks
//	@Param			data	body	models.WebhookTest	true	"Which one"
//	@Router			/x-webhooks/webhook.test [post]
func _() {}
