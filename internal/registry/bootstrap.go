package registry

import (
	"context"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// orchestrators are the nine L1 agents by sphere (CHE·NU §1, §3.1).
var orchestrators = [...]struct{ id, name string }{
	{"orch-personnel", "Personnel"},
	{"orch-business", "Business"},
	{"orch-government", "Government"},
	{"orch-creative-studio", "Creative Studio"},
	{"orch-community", "Community"},
	{"orch-social", "Social"},
	{"orch-entertainment", "Entertainment"},
	{"orch-my-team", "My Team"},
	{"orch-scholar", "Scholar"},
}

// Bootstrap creates nova and the nine orchestrators where they are missing. Any
// number of replicas may call it at the same time.
func (r *Registry) Bootstrap(ctx context.Context) error {
	for _, a := range founders() {
		if _, err := r.store.Agents(ctx).Get(a.ID); err == nil {
			continue
		} else if !errs.Is(err, errs.NotFound) {
			return err
		}
		err := r.store.Write(ctx, func(tx *store.Tx) error {
			a.CreatedAt, a.UpdatedAt = tx.Now(), tx.Now()
			return insert(ctx, tx, models.System(), a)
		})
		if err != nil && !errs.Is(err, errs.AgentExists) && !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return nil
}

// founders are the ten agents every registry has, parents first.
func founders() []models.Agent {
	all := []models.Agent{{
		ID: models.RootAgentID, Name: "NOVA", Level: models.LevelSystem, FrequencyHz: 999, Capabilities: []string{},
		Description: "L0 System agent, root of the hierarchy", BudgetScope: models.ScopeOwn, IsActive: true, Version: 1,
	}}
	for i, o := range orchestrators {
		all = append(all, models.Agent{
			ID: o.id, Name: o.name + " Orchestrator", Level: models.LevelOrchestrator, SphereID: new(i + 1), FrequencyHz: 888,
			Capabilities: []string{}, Description: "L1 Orchestrator of the " + o.name + " sphere",
			ParentID: new(models.RootAgentID), TokenBudget: models.LevelOrchestrator.DefaultBudget(), BudgetScope: models.ScopeOwn,
			IsActive: true, Version: 1,
		})
	}
	return all
}
