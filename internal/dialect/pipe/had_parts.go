package pipe

import (
	"context"

	"comet/models"
)

// maxLooked is how many parts are looked through for one that has ended.
const maxLooked = 1000

// hadPart is the newest part of a task that an agent had at a depth, nil for none. What
// is said of it has no further effect, but is no unknown task: a result may be said again
// by somebody who did not hear that it was noted.
func (d *Dialect) hadPart(ctx context.Context, s speaker, of models.Task, depth int) (found *models.Task, err error) {
	level, looked := []models.Task{of}, 0
	for len(level) > 0 && looked < maxLooked && found == nil {
		var next []models.Task
		for _, t := range level {
			parts, err := d.work.Parts(ctx, t.ID)
			if err != nil {
				return nil, err
			}
			for _, part := range parts {
				if part.AgentID == s.agent && part.Depth == depth {
					found = &part
				}
				if part.Depth < depth {
					next = append(next, part)
				}
			}
			looked += len(parts) + 1
		}
		level = next
	}
	return found, nil
}

func orZero(t *models.Task) (out models.Task) {
	if t != nil {
		out = *t
	}
	return out
}
