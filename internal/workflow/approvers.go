package workflow

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// Approver says which principals can approve the steps of a workflow and decide about lost results.
type Approver string

// Values of Approver.
const (
	// ApproverCaller allows the owner and administrators.
	ApproverCaller Approver = ""
	// ApproverOther allows tokens with the scope workflows:approve other than the owner. If such a token is bound to an
	// agent, the agent must neither pay for the workflow nor be able to execute an approved step.
	ApproverOther Approver = "other"
	// ApproverHuman allows persons: a decision with Via, or one of a token as for ApproverOther that is not bound to an agent.
	ApproverHuman Approver = "human"
)

// Via is how a person has decided without a token of their own.
type Via string

// ViaElicitation is the reply to a form of an MCP client; "" is a decision of the token of the request.
const ViaElicitation Via = "elicitation"

// visible returns a workflow, or WORKFLOW_NOT_FOUND if it is unknown, or belongs to another token and the principal can
// neither administer nor approve it.
func (e *environment) visible(ctx context.Context, w workflows.Workflow, err error, by models.Principal, id string) error {
	if err == nil && w.TokenID != by.TokenID && !by.Administers() {
		if err = errUnknown(id); w.Approver != "" && by.Has(models.ScopeWorkflowsApprove) {
			if confined := e.Store.Agents(ctx).Confine(by, w.Payer); !errs.Is(confined, errs.ForeignAgent) {
				err = confined
			}
		}
	}
	if errs.Is(err, errs.NotFound) {
		err = errUnknown(id)
	}
	return err
}

func errUnknown(id string) error {
	return tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", input.Clip(id))
}

// present returns the errors of visible, and WORKFLOW_NOT_FOUND for a workflow that has expired (AgentCards, “Codes
// d'erreur”). Operations that change the workflow call it.
func (e *environment) present(ctx context.Context, w workflows.Workflow, err error, by models.Principal, id string) error {
	if err = e.visible(ctx, w, err, by, id); err == nil && w.ErrorCode == codeExpired {
		return tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "the workflow %s expired at %s, because no decision was made", id, w.EndedAt.Format(time.RFC3339))
	}
	return err
}

func owns(w workflows.Workflow, by models.Principal) bool {
	return w.TokenID == by.TokenID || by.Administers()
}

// requireOwner returns APPROVAL_DENIED unless the principal is the owner or an administrator.
func requireOwner(w workflows.Workflow, by models.Principal) error {
	if owns(w, by) {
		return nil
	}
	return errDenied("only the token that started the workflow %s or a token with admin for the whole system may do this", w.ID)
}

func errDenied(format string, args ...any) error {
	return tools.NewError(errs.ToolDenied, "APPROVAL_DENIED", format, args...)
}

// mayDecide returns APPROVAL_DENIED unless the principal may make a decision on the newest checkpoint. The owner can always
// reject, because it can also abort the workflow.
func (x *execution) mayDecide(by models.Principal, d Decision) error {
	kind := plan.Pause(x.checkpoint.Kind)
	approval := kind == plan.PauseApproval || kind == plan.PauseUncertain
	policy := Approver(x.row.Approver)
	if owns(x.row, by) && !d.Approved {
		return nil
	}
	if !approval || policy == ApproverCaller {
		if err := requireOwner(x.row, by); err != nil || !approval {
			return err
		}
		return x.notExecutor(by, false)
	}
	switch {
	case policy == ApproverHuman && d.Via != "":
		return nil
	case by.TokenID == x.row.TokenID:
		return errDenied("the token that started the workflow %s may not approve its steps, because its approver is %s; use another token with the scope workflows:approve", x.row.ID, policy)
	case !by.Has(models.ScopeWorkflowsApprove):
		return errDenied("the token %q lacks the scope %s", by.Name, models.ScopeWorkflowsApprove)
	case by.AgentID == nil:
		return nil
	case policy == ApproverHuman:
		return errDenied("the token %q is bound to an agent, but the approver of the workflow is human; use a token that is not bound to an agent", by.Name)
	case *by.AgentID == x.row.Payer:
		return errDenied("the agent %q pays for the workflow and may not approve its steps", x.row.Payer)
	case !d.Approved:
		return nil
	}
	return x.notExecutor(by, true)
}

// notExecutor returns APPROVAL_DENIED if a step of the checkpoint is requested from the agent of the principal or, with
// possibly, if such a step could be assigned to it.
func (x *execution) notExecutor(by models.Principal, possibly bool) error {
	if by.AgentID == nil {
		return nil
	}
	shown, err := shownSteps(*x.checkpoint)
	if err != nil {
		return err
	}
	for _, s := range shown {
		if s.Type == plan.KindAgent && (s.Agent == *by.AgentID || s.Agent == "" && possibly) {
			return errDenied("the agent %q may execute the step %q, so it may not approve it", *by.AgentID, s.ID)
		}
	}
	return nil
}
