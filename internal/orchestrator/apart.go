package orchestrator

import (
	"slices"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// No agent gets two parts of one whole: of several workers that agree one would be heard
// twice. So whoever has, or had, any attempt at a part is kept from the others, for good.

// siblings returns the attempts at the other parts of a whole, nil for what is no part.
func (s *step) siblings(t models.Task, in models.TaskInput) ([]models.Attempt, error) {
	if t.ParentID == nil {
		return nil, nil
	}
	o, err := override(in)
	if err != nil || !o.Part {
		return nil, err
	}
	return s.tx.AttemptsBeside(*t.ParentID, t.ID)
}

// apart returns the agents that must not have a part.
func (s *step) apart(t models.Task, in models.TaskInput) ([]string, error) {
	all, err := s.siblings(t, in)
	var out []string
	for _, a := range all {
		if a.AgentID != "" && !slices.Contains(out, a.AgentID) {
			out = append(out, a.AgentID)
		}
	}
	return out, err
}

// refuses looks again whether an agent must not have a part, once its row is locked:
// another part may have been given to it on another replica since apart was asked.
func (s *step) refuses(t models.Task, in models.TaskInput, agentID string) (selection.Reason, error) {
	apart, err := s.apart(t, in)
	if err != nil || !slices.Contains(apart, agentID) {
		return "", err
	}
	return selection.ReasonExcluded, nil
}

// hasAnother reports whether an agent works on another part of the same whole, or has
// done one.
func (s *step) hasAnother(t models.Task, agentID string) (bool, error) {
	if t.ParentID == nil {
		return false, nil
	}
	in, err := s.tx.TaskInput(t.ID)
	if err != nil {
		return false, err
	}
	all, err := s.siblings(t, in)
	return slices.ContainsFunc(all, func(a models.Attempt) bool {
		return a.AgentID == agentID && (!a.State.Ended() || a.State == models.AttemptSucceeded)
	}), err
}
