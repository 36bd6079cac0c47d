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

// Approver says who approves the steps of a workflow and decides about lost results.
type Approver string

// Values of Approver.
const (
	// ApproverCaller is the owner, and administrators.
	ApproverCaller Approver = ""
	// ApproverOther is a token with the scope workflows:approve that is not the owner's. If it is bound to an agent, the
	// agent neither pays for the workflow nor may execute what is approved.
	ApproverOther Approver = "other"
	// ApproverHuman is a person: one that Decision.Via names, or a token as for ApproverOther that is bound to no agent.
	ApproverHuman Approver = "human"
)

// Via is the way in which a person has decided.
type Via string

// Values of Via, "" for the request of a token.
const (
	ViaElicitation Via = "elicitation"
	ViaDashboard   Via = "dashboard"
)

// visible returns WORKFLOW_NOT_FOUND for an unknown workflow, and for one of another token that the principal neither
// administers nor approves.
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
// d'erreur”). It is for principals that change the workflow.
func (e *environment) present(ctx context.Context, w workflows.Workflow, err error, by models.Principal, id string) error {
	if err = e.visible(ctx, w, err, by, id); err == nil && w.ErrorCode == codeExpired {
		return tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "the workflow %s expired at %s, because no decision was made", id, w.EndedAt.Format(time.RFC3339))
	}
	return err
}

func owns(w workflows.Workflow, by models.Principal) bool {
	return w.TokenID == by.TokenID || by.Administers()
}

// requireOwner returns APPROVAL_DENIED for principals that may only approve.
func requireOwner(w workflows.Workflow, by models.Principal) error {
	if owns(w, by) {
		return nil
	}
	return errDenied("only the token that started the workflow %s, and administrators, may do this", w.ID)
}

func errDenied(format string, args ...any) error {
	return tools.NewError(errs.ToolDenied, "APPROVAL_DENIED", format, args...)
}

// mayDecide returns APPROVAL_DENIED unless the principal may make a decision on the newest checkpoint. The owner may reject
// what it may not approve, because it may also abort the workflow.
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
		return errDenied("the token that started the workflow %s may not approve its steps: its approver is %s", x.row.ID, policy)
	case !by.Has(models.ScopeWorkflowsApprove):
		return errDenied("the token %q lacks the scope %s", by.Name, models.ScopeWorkflowsApprove)
	case by.AgentID == nil:
		return nil
	case policy == ApproverHuman:
		return errDenied("the token %q is bound to an agent, and the approver of the workflow is human", by.Name)
	case *by.AgentID == x.row.Payer:
		return errDenied("the agent %q pays for the workflow and may not approve its steps", x.row.Payer)
	case !d.Approved:
		return nil
	}
	return x.notExecutor(by, true)
}

// notExecutor returns APPROVAL_DENIED if the agent of a principal executes a step that the checkpoint shows, or, with
// possibly, if it could be chosen for one.
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
			return errDenied("the agent %q may execute the step %q and so may not approve it", *by.AgentID, s.ID)
		}
	}
	return nil
}
