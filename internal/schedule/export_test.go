package schedule

import (
	"context"

	"comet/internal/jobs"
)

// Run runs a claimed job.
func (s *Service) Run(ctx context.Context, job *jobs.Job) error { return s.run(ctx, job) }

// RunKind is the kind of the jobs of schedules.
const RunKind = runKind
