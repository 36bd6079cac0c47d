package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/words"
)

// ProblemType explains one code; it is what a problem's type leads to.
type ProblemType struct {
	Type    string    `json:"type" example:"/problems/parent-not-found"`
	Code    errs.Code `json:"code" example:"parent-not-found"`
	Title   string    `json:"title" example:"Parent not found"`
	Status  int       `json:"status" example:"400"`
	Meaning string    `json:"meaning" example:"parent_id names no agent."`
}

// problemPage explains a problem type.
//
//	@Summary		Explain a problem type
//	@Description	What the `type` of a problem document leads to: what the code means and what to do about it.
//	@ID				getProblemType
//	@Tags			service
//	@Produce		json
//	@Security
//	@Param			code			path	string	true	"The problem's code"	example(parent-not-found)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	ProblemType	"The explanation"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such problem type"
//	@Router			/problems/{code} [get]
func (p *responder) problemPage(w http.ResponseWriter, r *http.Request) error {
	code := errs.Code(chi.URLParam(r, "code"))
	if meaning(code) == "" {
		return errs.New(errs.NotFound, "there is no problem type %s", words.Quote(string(code)))
	}
	return p.writeJSON(w, r, http.StatusOK, ProblemType{
		Type: "/problems/" + string(code), Code: code, Title: code.Title(),
		Status: statusOf(code.Class()), Meaning: meaning(code),
	})
}

// meaning says what a code tells a client and what to do about it; "" for an
// unknown code.
func meaning(code errs.Code) string {
	switch code {
	case errs.Internal:
		return "A fault of the server. The log has the cause under the request id; trying again may help."
	case errs.InvalidRequest:
		return "A part of the body breaks a rule. errors names each one by JSON pointer and rule."
	case errs.MalformedJSON:
		return "The body is not one strict JSON value: a syntax error, a key given twice, text after the value, or bytes that are not UTF-8."
	case errs.MalformedYAML:
		return "The document is not one YAML value of the known shape."
	case errs.InvalidParameter:
		return "A query parameter is unknown, repeated, or has a value that is not allowed. errors names each one."
	case errs.InvalidHeader:
		return "A request header cannot be understood. errors names it."
	case errs.InvalidFrequency:
		return "frequency_hz is not one the agent's level allows: L0 999, L1 888, L2 555 or 666, L3 444."
	case errs.ParentNotFound:
		return "parent_id names no agent."
	case errs.InvalidParentLevel:
		return "The parent must stand exactly one level above: L1 under L0, L2 under L1, L3 under L2."
	case errs.ImmutableField:
		return "id, level and frequency_hz cannot be changed once the agent exists."
	}
	return accessMeaning(code)
}

// accessMeaning goes on with who may ask for what.
func accessMeaning(code errs.Code) string {
	switch code {
	case errs.Unauthenticated:
		return "The request has no bearer token, or one that is unknown, expired or revoked."
	case errs.MissingScope:
		return "The token is valid but lacks the scope that the request needs; scope names it."
	case errs.AgentInactive:
		return "The token is bound to an agent that is deactivated."
	case errs.NotFound:
		return "There is nothing at this address."
	case errs.MethodNotAllowed:
		return "The address exists for other methods; the Allow header lists them."
	case errs.NotAcceptable:
		return "The Accept header asks for a form the server does not have."
	case errs.RateLimited:
		return "The token has used up its requests for now; Retry-After says when to try again."
	case errs.Timeout:
		return "The request took longer than the server allows. What it was to change may or may not have been changed."
	case errs.Unavailable:
		return "The database or the message bus does not answer. Try again after Retry-After."
	case errs.Busy:
		return "A queue of the server is full. Try again after Retry-After."
	}
	return stateMeaning(code)
}

// spendingMeaning goes on with the ledger and the webhooks.
func spendingMeaning(code errs.Code) string {
	switch code {
	case errs.ForeignAgent:
		return "The token is bound to one agent and writes usage for that agent only."
	case errs.AgentDeactivated:
		return "The agent is deactivated and gets no permission to spend. What it has used can still be recorded."
	case errs.RequestIDReused:
		return "The request_id was recorded before with another content. Nothing of the request was recorded."
	case errs.ReservationEnded:
		return "The reservation was settled or released before, in another way; state tells which."
	case errs.BudgetExceeded:
		return "The budget does not cover the tokens. Nothing was reserved; Retry-After counts to the next midnight UTC, when the budget starts anew."
	case errs.LimitReached:
		return "There is a most of these, and it is reached."
	case errs.WebhookDisabled:
		return "The webhook is disabled, so nothing is delivered to it. Enable it first."
	case errs.AddressRefused:
		return "The server does not connect to addresses of this kind: loopback, private, link-local and the like. webhooks.allow_networks opens ranges."
	}
	return workMeaning(code)
}

// workMeaning goes on with tasks.
func workMeaning(code errs.Code) string {
	switch code {
	case errs.TaskState:
		return "The task stands where it cannot take this step; state tells where. A task that has ended stays as it is."
	case errs.TaskExists:
		return "A task with this id exists, made by another request."
	case errs.CodeFailed:
		return "The code that was run failed, or the task that was asked for. tool_error names how, and tool_details has the line, the logs and what the run took."
	case errs.ToolDenied:
		return "The policy of the token does not allow this call, for instance because of an argument. An admin reads and changes it at /api/v1/tokens/{token_id}/tool-policy."
	case errs.UpstreamFailed:
		return "The MCP server behind the tool is down, too slow, or answered with an error of the protocol. GET /api/v1/upstreams says how it stands. Where it was too slow the tool may have done its work all the same: look before it is called again."
	case errs.UnsupportedWork:
		return "No registered agent offers what the task needs."
	case errs.NoAgent:
		return "Agents that could do it are registered, but none is there to take it. Try again after Retry-After."
	}
	return ""
}

// stateMeaning goes on with what stands in the way of a change.
func stateMeaning(code errs.Code) string {
	switch code {
	case errs.AgentExists:
		return "An agent with this id exists, perhaps deactivated. Ids are never used again."
	case errs.SystemAgentExists:
		return "There is exactly one L0 agent, and it exists."
	case errs.ProtectedAgent:
		return "L0 and L1 agents can be neither deleted nor deactivated."
	case errs.ActiveChildren:
		return "The agent has active children; deactivate or move them first."
	case errs.ParentInactive:
		return "An active agent cannot stand under a parent that is deactivated."
	case errs.LastAdminToken:
		return "The change would leave no token with the scope admin."
	case errs.TokenRevoked:
		return "The token is already revoked."
	case errs.IdempotencyKeyReused:
		return "The Idempotency-Key was used before with another request."
	case errs.Conflict:
		return "The change met another one. Read the resource again and repeat it."
	case errs.PreconditionFailed:
		return "If-Match or If-None-Match does not hold: the resource has changed; current_version is where it stands."
	case errs.BodyTooLarge:
		return "The body is longer than the route allows; limit gives the bytes."
	case errs.UnsupportedMediaType:
		return "The body's Content-Type or Content-Encoding is not one the route takes; the Accept header lists the types."
	case errs.RangeNotSatisfiable:
		return "The Range begins behind the end of the output; Content-Range tells how long it is."
	case errs.BudgetExceedsMaximum:
		return "token_budget is over the maximum of the agent's level: L1 500,000, L2 100,000, L3 50,000."
	}
	return spendingMeaning(code)
}
