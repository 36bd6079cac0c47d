package v5

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

// selfRegisteredPrefix begins the ids of agents that have registered themselves. A program that
// connects with such a name is accepted as this agent, because only programs on this machine can.
const selfRegisteredPrefix = "v5-"

// selfRegisteredDescription is the description of such an agent. Once it is changed, the agent
// needs a token.
const selfRegisteredDescription = "registered itself over TCP"

// IsSelfRegistered reports whether an agent has registered itself and needs no token.
func IsSelfRegistered(a models.Agent) bool {
	return strings.HasPrefix(a.ID, selfRegisteredPrefix) && a.Description == selfRegisteredDescription
}

// SelfRegistration returns a function that registers an agent without a token: L2, 555 Hz, sphere
// 8, below orch-my-team (decisions: “Agents that register themselves”).
func SelfRegistration(reg *registry.Registry) func(ctx context.Context, name string) (agentID string, err error) {
	word := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	return func(ctx context.Context, name string) (string, error) {
		if name == "" {
			name = uuid.NewString()
		}
		if len(name) > 40 || !word.MatchString(name) {
			return "", errs.New(errs.InvalidRequest, "name must be up to 40 lowercase letters, digits and hyphens, not %q", name)
		}
		id, level, sphere, frequency, parent := selfRegisteredPrefix+name, models.LevelSpecialist, 8, 555, "orch-my-team"
		_, err := reg.Create(ctx, models.System(), models.AgentDraft{
			ID: &id, Name: &name, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent,
			Description: selfRegisteredDescription,
		}, nil)
		if errs.Is(err, errs.AgentExists) {
			var known models.AgentDetail
			if known, err = reg.Get(ctx, id); err == nil && known.Description != selfRegisteredDescription {
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
