package api_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/shortid"
	"comet/models"
	"comet/store"
)

// startWork runs what tasks need: the relay that numbers events, the
// orchestrator, and the timers.
func (h *fixture) startWork(t testing.TB, s *store.Store, feed *events.Feed) {
	t.Helper()
	relay := events.NewRelay(s, feed, &events.Options{Poll: 20 * time.Millisecond, Deliveries: h.webhooks})
	timers := jobs.New(s, &jobs.Options{Poll: 20 * time.Millisecond})
	h.orchestrator.RegisterJobs(timers)
	for _, service := range []background.Service{relay, h.orchestrator, timers} {
		require.NoError(t, service.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, service.Stop(context.Background())) })
	}
	require.Eventually(t, func() bool { return h.orchestrator.Check(t.Context()) == nil }, time.Minute, 5*time.Millisecond)
}

// joinWorker connects an agent as a worker.
func (h *fixture) joinWorker(t testing.TB, id string, places int) {
	t.Helper()
	_, err := h.orchestrator.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "envelope", Transport: "websocket", Concurrency: places})
	require.NoError(t, err)
}

// worker connects an agent that executes all its tasks until the test ends.
func (h *fixture) worker(t testing.TB, id, output string) {
	t.Helper()
	h.joinWorker(t, id, 10)
	news, stop := h.orchestrator.Inbox(id)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			h.completeTask(ctx, id, output)
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		stop()
		cancel()
		busy.Wait()
	})
}

// completeTask executes the tasks in an agent's inbox. The task shows a failure.
func (h *fixture) completeTask(ctx context.Context, id, output string) {
	messages, err := h.orchestrator.Messages(ctx, id, 100)
	if err != nil {
		return
	}
	for _, m := range messages {
		_, _ = h.orchestrator.Acknowledge(ctx, id, []string{m.ID})
		if m.Kind == models.MessageAssign {
			_, _ = h.orchestrator.Complete(ctx, id, m.TaskID, orchestrator.Result{Output: []byte(output), ExitCode: new(0)})
		}
	}
}

// seedWork does what agents do; it reports whether it knows the command.
func (p *transcriptPlayer) seedWork(command string, words []string) bool {
	p.t.Helper()
	ctx, work := p.t.Context(), p.h.orchestrator
	text := func(from int) string { return strings.Join(words[min(from, len(words)):], " ") }
	var err error
	switch n := len(words); {
	case command == "worker" && n >= 1:
		p.h.worker(p.t, words[0], text(1))
	case command == "join" && n == 2:
		p.h.joinWorker(p.t, words[0], p.number(words[1]))
	case command == "number" && n == 1: // as PROTOCOL_V5 needs it
		_, err = shortid.AgentNumber(ctx, p.h.db.Store, words[0])
	case command == "accept" && n == 2:
		require.Eventually(p.t, func() bool { // the end of another task may free the worker
			inbox, _ := work.Messages(ctx, words[0], 100)
			return slices.ContainsFunc(inbox, func(m models.InboxMessage) bool { return m.TaskID == words[1] })
		}, time.Minute, 5*time.Millisecond)
		_, err = work.Accept(ctx, words[0], words[1])
	case command == "progress" && n >= 3:
		_, err = work.Progress(ctx, words[0], words[1], orchestrator.Progress{Percent: new(p.number(words[2])), Log: []byte(text(3))})
	case command == "complete" && n >= 2:
		_, err = work.Complete(ctx, words[0], words[1], orchestrator.Result{Output: []byte(text(2)), ExitCode: new(0)})
	case command == "fail" && n >= 4:
		_, err = work.Complete(ctx, words[0], words[1], orchestrator.Result{Failure: orchestrator.Failure(words[2]), Text: text(3), ExitCode: new(1)})
	case command == "ask" && n >= 3:
		_, err = work.Clarify(ctx, words[0], words[1], orchestrator.Question{Text: text(2), Options: []string{"yes", "no"}})
	case command == "ended" && n == 1:
		p.h.waitForEnd(p.t, words[0])
	default:
		return false
	}
	require.NoError(p.t, err, "%s %q", command, words)
	return true
}

// waitForEnd waits for the end of a task.
func (h *fixture) waitForEnd(t testing.TB, id string) models.Task {
	t.Helper()
	task, err := h.orchestrator.Wait(t.Context(), "", id, time.Minute)
	require.NoError(t, err)
	require.True(t, task.State.Ended(), "%s is %s", id, task.State)
	return task
}
