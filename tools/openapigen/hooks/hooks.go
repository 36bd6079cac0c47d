// Package hooks describes the events that webhooks receive. No code belongs to the annotations: comet
// sends these requests, so the generator moves them from paths to x-webhooks, the equivalent of OpenAPI
// 3.1's webhooks in 3.0. The body here is the event's data; the generator adds the envelope, the headers
// and the responses, which are equal for all events.
package hooks

// An agent was created (CHE·NU §9).
//
//	@Summary		An agent was created
//	@Description	Sent when an agent is created by a request, an import or the first start of the server.
//	@ID				onAgentCreated
//	@Param			data	body	registry.AgentSnapshot	true	"The created agent"
//	@Router			/x-webhooks/agent.created [post]
func _() {}

// An agent was changed (CHE·NU §9).
//
//	@Summary		An agent was changed
//	@Description	Sent when an agent is updated or restored (`is_active` from false to true). An update that also deactivates the agent sends two events with the same `version`: this one, then `agent.deactivated`.
//	@ID				onAgentUpdated
//	@Param			data	body	registry.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.updated [post]
func _() {}

// An agent was deactivated (CHE·NU §2.4, §9).
//
//	@Summary		An agent was deactivated
//	@Description	Sent when an agent is deactivated by `DELETE` or by `PATCH {"is_active": false}`.
//	@ID				onAgentDeactivated
//	@Param			data	body	registry.AgentChanged	true	"What changed"
//	@Router			/x-webhooks/agent.deactivated [post]
func _() {}

// An agent has used 80% of its budget (CHE·NU §9).
//
//	@Summary		80% of a budget has been used
//	@Description	Sent once per UTC day and agent, when the tokens used reach 80% of the budget.
//	@ID				onBudgetWarning
//	@Param			data	body	usage.BudgetAlert	true	"The state of the budget"
//	@Router			/x-webhooks/agent.budget_warning [post]
func _() {}

// An agent has exceeded its budget (CHE·NU §9).
//
//	@Summary		A budget has been exceeded
//	@Description	Sent once per UTC day and agent, when a budget does not cover a reservation or a recorded fact exceeds it.
//	@ID				onBudgetExceeded
//	@Param			data	body	usage.BudgetAlert	true	"The state of the budget"
//	@Router			/x-webhooks/agent.budget_exceeded [post]
func _() {}

// comet has disabled a webhook.
//
//	@Summary		A webhook was disabled
//	@Description	Sent when comet disables a webhook, because all deliveries failed for five days and at least ten attempts, or because the receiver responded with 410.
//	@ID				onWebhookDisabled
//	@Param			data	body	webhooks.WebhookDisabled	true	"The webhook and the reason"
//	@Router			/x-webhooks/webhook.disabled [post]
func _() {}

// A delivery is dead.
//
//	@Summary		A delivery is dead
//	@Description	Sent when the last attempt at a delivery has failed, but not to the webhook of that delivery, and not for a delivery of this event.
//	@ID				onDeliveryDead
//	@Param			data	body	webhooks.DeliveryDead	true	"The webhook, the delivery and the last error"
//	@Router			/x-webhooks/webhook.delivery_dead [post]
func _() {}

// A test event.
//
//	@Summary		Test event
//	@Description	Sent to one webhook by `POST /api/v1/webhooks/{webhook_id}/test`. It cannot be subscribed to.
//	@ID				onWebhookTest
//	@Param			data	body	webhooks.WebhookTest	true	"The tested webhook"
//	@Router			/x-webhooks/webhook.test [post]
func _() {}

// A workflow was started.
//
//	@Summary		A workflow was started
//	@Description	Sent when a workflow is stored.
//	@ID				onWorkflowStarted
//	@Param			data	body	workflow.EventData	true	"The workflow"
//	@Router			/x-webhooks/workflow.started [post]
func _() {}

// A workflow is paused.
//
//	@Summary		A workflow is paused
//	@Description	Sent when a checkpoint of a workflow waits for a decision. `GET /api/v1/workflows/{workflow_id}` returns the checkpoint.
//	@ID				onWorkflowPaused
//	@Param			data	body	workflow.EventData	true	"The workflow and its checkpoint"
//	@Router			/x-webhooks/workflow.paused [post]
func _() {}

// A workflow has been resumed.
//
//	@Summary		A workflow has been resumed
//	@Description	Sent when a decision continues a paused workflow.
//	@ID				onWorkflowResumed
//	@Param			data	body	workflow.EventData	true	"The workflow"
//	@Router			/x-webhooks/workflow.resumed [post]
func _() {}

// A workflow has ended.
//
//	@Summary		A workflow has ended
//	@Description	Sent when a workflow has ended, with its final state.
//	@ID				onWorkflowEnded
//	@Param			data	body	workflow.EventData	true	"The workflow"
//	@Router			/x-webhooks/workflow.ended [post]
func _() {}

// A schedule was created.
//
//	@Summary		A schedule was created
//	@Description	Sent when a schedule is created.
//	@ID				onScheduleCreated
//	@Param			data	body	schedule.EventData	true	"The schedule"
//	@Router			/x-webhooks/schedule.created [post]
func _() {}

// A schedule was changed.
//
//	@Summary		A schedule was changed
//	@Description	Sent when a schedule is changed, paused or resumed.
//	@ID				onScheduleChanged
//	@Param			data	body	schedule.EventData	true	"The schedule"
//	@Router			/x-webhooks/schedule.changed [post]
func _() {}

// A schedule was deleted.
//
//	@Summary		A schedule was deleted
//	@Description	Sent when a schedule is deleted.
//	@ID				onScheduleDeleted
//	@Param			data	body	schedule.EventData	true	"The schedule"
//	@Router			/x-webhooks/schedule.deleted [post]
func _() {}

// A schedule has run.
//
//	@Summary		A schedule has run
//	@Description	Sent when a schedule has created a task or a workflow.
//	@ID				onScheduleRun
//	@Param			data	body	schedule.EventData	true	"The schedule and what it has created"
//	@Router			/x-webhooks/schedule.run [post]
func _() {}

// A run of a schedule was refused.
//
//	@Summary		A run of a schedule was refused
//	@Description	Sent when a schedule could not create its task or workflow. With `enabled: false` it was disabled or has ended.
//	@ID				onScheduleFailed
//	@Param			data	body	schedule.EventData	true	"The schedule and the reason"
//	@Router			/x-webhooks/schedule.failed [post]
func _() {}

// A publication is a dead letter.
//
//	@Summary		A publication is a dead letter
//	@Description	Sent when an agent does not receive a publication. `POST /api/v1/dead-letters/redeliver` delivers it again.
//	@ID				onPublicationDead
//	@Param			data	body	pubsub.EventData	true	"The publication, the receiver and the reason"
//	@Router			/x-webhooks/publication.dead [post]
func _() {}
