package app

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// selfRegistered is what the ids of agents begin with that have registered themselves.
// Who comes back under such a name is believed: only programs on this machine can.
const selfRegistered = "v5-"

// byItself is the description of such an agent. Whoever changes it takes the agent over:
// it then comes with a token.
const byItself = "registered itself over TCP"

// hasEnrolled reports whether an agent is one that has registered itself.
func hasEnrolled(a models.Agent) bool {
	return strings.HasPrefix(a.ID, selfRegistered) && a.Description == byItself
}

// enrolling returns what registers an agent that brings no token: L2, 555 Hz, sphere 8,
// under orch-my-team (decisions: “Agents that register themselves”).
func enrolling(reg *registry.Registry) func(ctx context.Context, name string) (agentID string, err error) {
	word := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	return func(ctx context.Context, name string) (string, error) {
		if name == "" {
			name = uuid.NewString()
		}
		if len(name) > 40 || !word.MatchString(name) {
			return "", errs.New(errs.InvalidRequest, "name must be up to 40 small letters, digits and hyphens, not %q", name)
		}
		id, level, sphere, frequency, parent := selfRegistered+name, models.LevelSpecialist, 8, 555, "orch-my-team"
		_, err := reg.Create(ctx, models.System(), models.AgentDraft{
			ID: &id, Name: &name, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent,
			Description: byItself,
		}, nil)
		if errs.Is(err, errs.AgentExists) {
			var known models.AgentDetail
			if known, err = reg.Get(ctx, id); err == nil && known.Description != byItself {
				err = errs.New(errs.Unauthenticated, "the agent %q has not registered itself; it needs token=", id).With("missing", "token")
			}
			return id, err
		}
		if err != nil {
			return "", fmt.Errorf("register the agent %s: %w", id, err)
		}
		return id, nil
	}
}
