package registry

import (
	"cmp"
	"context"
	"slices"

	"comet/internal/errs"
	"comet/internal/registry/roster"
	"comet/models"
	"comet/store"
	"comet/store/quotas"
)

// ImportReport is the result of an import, or of a dry run.
type ImportReport struct {
	DryRun     bool           `json:"dry_run" example:"false"` // Whether the import only checked the document.
	Valid      bool           `json:"valid" example:"true"`    // Whether the document has no errors.
	Agents     int            `json:"agents" example:"287"`    // Number of agents in the document.
	Created    int            `json:"created" example:"277"`   // Number of new agents.
	Updated    int            `json:"updated" example:"0"`     // Including those deactivated or restored.
	Unchanged  int            `json:"unchanged" example:"10"`  // Number of agents without changes.
	Changes    []ImportChange `json:"changes"`                 // One entry for each agent that is not unchanged, in the document's order.
	Violations []errs.Field   `json:"violations"`              // The errors of the document.
	Warnings   []errs.Field   `json:"warnings"`                // Fields that were accepted but should be corrected.
}

// ImportChange is the change of one agent by an import.
type ImportChange struct {
	ID     string             `json:"id" example:"finance-personal"` // The agent's id.
	Action models.AuditAction `json:"action" example:"created"`      // What was done, or would be done.
	Line   int                `json:"line" example:"42"`             // The line of the agent in the document.
}

// Import creates and changes the agents a roster lists, all or none; others stay unchanged. An
// entry describes its agent as a whole: members that are left out take their defaults. found are
// the violations of the codec. An import with violations returns one error that lists all of them
// with their lines; a dry run reports them and changes nothing.
func (r *Registry) Import(ctx context.Context, by models.Principal, doc *roster.Document, found errs.Violations, dryRun bool, once *models.Idempotency) (ImportReport, error) {
	if dryRun {
		var all []models.Agent
		if err := r.store.Agents(ctx).Each(func(a models.Agent) error { all = append(all, a); return nil }); err != nil {
			return ImportReport{}, err
		}
		p, err := r.plan(by, doc, found, all)
		if err == nil {
			err = p.authorize(r.store.Agents(ctx).Confine, by, all)
		}
		if err != nil {
			return ImportReport{}, err
		}
		report := p.report()
		report.DryRun = true
		return report, nil
	}
	var report ImportReport
	err := r.store.Once(ctx, once, func(tx *store.Tx) (_ any, err error) {
		report, err = r.importAll(ctx, tx, by, doc, found)
		return report, err
	})
	return report, err
}

func (r *Registry) importAll(ctx context.Context, tx *store.Tx, by models.Principal, doc *roster.Document, found errs.Violations) (ImportReport, error) {
	if len(found) == 0 { // what is wrong already will not be written, so its report need not wait
		if err := tx.Agents().LockChains(); err != nil {
			return ImportReport{}, err
		}
		if err := tx.Agents().LockAll(); err != nil {
			return ImportReport{}, err
		}
	}
	all, err := tx.Agents().All()
	if err != nil {
		return ImportReport{}, err
	}
	p, err := r.plan(by, doc, found, all)
	if err == nil {
		err = cmp.Or(p.authorize(tx.Agents().Confine, by, all), p.violations.All())
	}
	if err != nil {
		return ImportReport{}, err
	}
	var created, restored []string
	for _, s := range p.parentsFirst() {
		if s.before != nil {
			err = r.save(ctx, tx, by, *s.before, s.after)
			if actionOf(*s.before, s.after) == models.AuditRestored {
				restored = append(restored, s.after.ID)
			}
		} else {
			s.after.CreatedAt, s.after.UpdatedAt = tx.Now(), tx.Now()
			created = append(created, s.after.ID)
			err = r.insert(ctx, tx, by, s.after)
		}
		if err != nil {
			return ImportReport{}, err
		}
	}
	if err = quotas.Add(tx, by, "agents", created...); err == nil {
		err = quotas.Restore(tx, by, restored...)
	}
	return p.report(), err
}

func (p *plan) parentsFirst() []step {
	return slices.SortedStableFunc(slices.Values(p.steps), func(a, b step) int { return int(a.after.Level - b.after.Level) })
}

// authorize checks the changes without a query for each change. all contains the agents before the import.
func (p *plan) authorize(confine func(models.Principal, string) error, by models.Principal, all []models.Agent) error {
	below := map[string]bool{*cmp.Or(by.AgentID, new("")): true}
	for _, a := range all { // parents first
		below[a.ID] = below[a.ID] || a.ParentID != nil && below[*a.ParentID]
	}
	for _, s := range p.parentsFirst() {
		err := authorize(func(by models.Principal, id string) error {
			if below[id] {
				return nil
			}
			return confine(by, id)
		}, by, s.before, s.after)
		if err != nil {
			return err
		}
		below[s.after.ID] = true // a new agent may be the parent of another one
	}
	return nil
}

func (p *plan) report() ImportReport {
	r := ImportReport{
		Valid: len(p.violations) == 0, Agents: len(p.doc.Agents), Unchanged: p.unchanged, Changes: []ImportChange{},
		Violations: append([]errs.Field{}, p.violations...), Warnings: append([]errs.Field{}, p.warnings...),
	}
	for _, s := range p.steps {
		change := ImportChange{ID: s.after.ID, Action: models.AuditCreated, Line: p.doc.Line(pointer(s.entry, "id"))}
		if s.before == nil {
			r.Created++
		} else {
			r.Updated++
			change.Action = actionOf(*s.before, s.after)
		}
		r.Changes = append(r.Changes, change)
	}
	return r
}
