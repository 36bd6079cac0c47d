package api

import (
	"context"

	"comet/internal/errs"
	"comet/internal/words"
	"comet/models"
)

// maxWorkerName is the longest name of a worker in PROTOCOL_V5, in characters (§2.2).
const maxWorkerName = 10

// workerNumber is the number of the worker with a name such as W41, 0 where none was sent.
func (q *query) workerNumber(name string) int64 {
	text := q.OptString(name, maxWorkerName)
	if text == nil {
		return 0
	}
	n, ok := models.WorkerNumber(*text)
	if !ok {
		q.Fail(name, "pattern", "%s must be W1 to W99, or from the 100th on W1.1, not %s", name, words.Quote(*text))
	}
	return n
}

// workersPage are up to limit workers behind an id, or the one with a number, which there
// may not be.
func (s *Server) workersPage(ctx context.Context, number int64, after string, limit int) ([]models.Worker, error) {
	if number == 0 {
		return s.work.Workers(ctx, after, limit)
	}
	id, err := s.work.AgentByNumber(ctx, number)
	if err == nil && id > after {
		var w models.Worker
		if w, err = s.work.Worker(ctx, id); err == nil {
			return []models.Worker{w}, nil
		}
	}
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return nil, err
}

// newWorkerViews are workers with their numbers.
func (s *Server) newWorkerViews(ctx context.Context, workers []models.Worker) ([]workerView, error) {
	ids := make([]string, len(workers))
	for i, w := range workers {
		ids[i] = w.AgentID
	}
	numbers, err := s.work.AgentNumbers(ctx, ids)
	views := make([]workerView, len(workers))
	for i, w := range workers {
		views[i] = s.newWorkerView(w, numbers[w.AgentID])
	}
	return views, err
}
