package remote

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"comet/internal/a2a/client"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/remotes"
)

const (
	// workerProtocol and workerTransport are those of the workers.
	workerProtocol, workerTransport = "a2a", "remote"
	// heartbeatInterval is how often a session sends a heartbeat.
	heartbeatInterval = 10 * time.Second
	// forwardFor is how long a cancellation is forwarded if the remote agent does not respond.
	forwardFor = 10 * time.Minute
	// maxNotices is how many messages are read in addition to the assignments that an agent may have.
	maxNotices = 100
)

// errLost says that a session ended because its settings or its connection changed.
var errLost = errors.New("the remote agent has new settings or another connection")

// session processes the inbox of an agent whose card was checked, until a check of the card fails, the settings change or the
// connection is lost. The remote tasks continue; the next session, on any replica, follows them.
type session struct {
	*agent
	// checked has the result of the last check; run alone uses it.
	checked remotes.Agent

	mu       sync.Mutex
	attempts map[attemptKey]*attempt
	// forwarding has the cancellations that are being forwarded, by the ids of their messages.
	forwarding map[string]bool
	running    sync.WaitGroup
}

// run processes the inbox until ctx ends or the session is over, and returns why it is over.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, over := s.work.Inbox(s.AgentID)
	defer over()
	defer func() {
		cancel()
		s.running.Wait()
		s.leave(ctx)
	}()
	if err := s.join(ctx); err != nil {
		return err
	}
	open, err := s.work.OpenTasksOf(ctx, s.AgentID)
	if err != nil {
		return err
	}
	for _, o := range open {
		s.start(ctx, attemptKey{o.Task.ID, o.Task.Attempt})
	}
	for shown := s.clock(); ctx.Err() == nil; {
		if now := s.clock(); now.Sub(shown) >= heartbeatInterval || s.work.CachedWorker(s.AgentID).State == models.WorkerOffline {
			if err := s.stayJoined(ctx); err != nil {
				return err
			}
			shown = now
		}
		row, err := remotes.Get(s.store.Reads(ctx), s.AgentID)
		if err == nil && (row.Holder != s.Holder || s.work.CachedWorker(s.AgentID).ConnectionID != s.Holder) {
			return errLost
		}
		if err == nil && s.clock().Sub(row.CheckedAt) >= s.opts.Recheck {
			s.suspect.Set()
		}
		if err == nil {
			err = s.processInbox(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("read the inbox of a remote agent", "agent", s.AgentID, "error", err)
		}
		select {
		case <-s.suspect:
			if err := s.recheck(ctx); err != nil {
				return err
			}
		case <-wake:
		case <-time.After(s.opts.Poll):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (s *session) join(ctx context.Context) error {
	_, err := s.work.Join(ctx, s.AgentID, orchestrator.JoinRequest{
		Protocol: workerProtocol, ProtocolVersion: s.endpoint.Version, Transport: workerTransport, ConnectionID: s.Holder, Concurrency: s.Concurrency,
	})
	return err
}

func (s *session) stayJoined(ctx context.Context) error {
	away, err := s.work.KeepAlive(ctx, []string{s.AgentID})
	if err == nil && len(away) > 0 {
		err = s.join(ctx)
	}
	if err != nil && errs.From(err).Code != errs.AgentInactive && errs.From(err).Code != errs.NotFound {
		return nil // an error of the database; the next heartbeat follows
	}
	return err
}

func (s *session) leave(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	if err := s.work.Disconnect(end, s.AgentID, s.Holder); err != nil && !errs.Is(err, errs.NotFound) {
		s.log.Debug("disconnect a remote agent", "agent", s.AgentID, "error", err)
	}
}

// recheck reads the card again. It returns an error if it is not usable, or if it has changed: the next session has the new one.
func (s *session) recheck(ctx context.Context) error {
	if err := s.check(ctx, &s.checked); err != nil {
		return err
	}
	if string(s.checked.Card) != string(s.Card) {
		return errLost
	}
	return nil
}

// processInbox handles the messages of the inbox.
func (s *session) processInbox(ctx context.Context) error {
	all, err := s.work.Messages(ctx, s.AgentID, s.Concurrency+maxNotices)
	if err != nil {
		return err
	}
	var handled []string
	for _, m := range all {
		key := attemptKey{m.TaskID, m.Attempt}
		switch m.Kind {
		case models.MessageAssign:
			s.start(ctx, key)
		case models.MessageCancel:
			s.forwardCancel(ctx, m, key)
			continue
		case models.MessageReply:
			var data struct {
				Answer string `json:"answer"`
			}
			a := s.attempt(key)
			if a != nil && json.Unmarshal(m.Data, &data) == nil {
				select {
				case a.replies <- reply{m.ID, data.Answer}:
				default: // it is there already
				}
				continue
			}
		}
		handled = append(handled, m.ID)
	}
	_, err = s.work.Acknowledge(ctx, s.AgentID, handled)
	return err
}

func (s *session) attempt(key attemptKey) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[key]
}

// start starts an attempt unless it runs. An earlier attempt at the task ends.
func (s *session) start(ctx context.Context, key attemptKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts[key] != nil {
		return
	}
	for other, a := range s.attempts {
		if other.task == key.task {
			a.cancel(errCancelled)
		}
	}
	a := &attempt{agent: s.agent, key: key, done: make(chan struct{}), replies: make(chan reply, 1)}
	ctx, a.cancel = context.WithCancelCause(ctx)
	s.attempts[key] = a
	s.running.Go(func() {
		defer close(a.done)
		defer a.cancel(nil)
		a.run(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.attempts, key)
	})
}

// forwardCancel cancels an attempt here and at the remote agent, and acknowledges the message once the remote agent has responded.
func (s *session) forwardCancel(ctx context.Context, m models.InboxMessage, key attemptKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forwarding[m.ID] {
		return
	}
	s.forwarding[m.ID] = true
	a := s.attempts[key]
	s.running.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.forwarding, m.ID)
		}()
		if a != nil {
			a.cancel(errCancelled)
			<-a.done
		}
		row, err := remotes.TaskOf(s.store.Reads(ctx), key.task, key.number)
		if err == nil && row.RemoteID != "" {
			_, err = s.client.Cancel(ctx, row.RemoteID)
			if failed, ok := asClientError(err); ok && failed.Kind != client.Unreachable { // it has ended or does not support it
				err = nil
			}
		}
		if err == nil || ctx.Err() == nil && s.clock().Sub(m.CreatedAt) > forwardFor {
			_, err = s.work.Acknowledge(ctx, s.AgentID, []string{m.ID})
		}
		if err != nil && ctx.Err() == nil {
			s.log.Debug("forward a cancellation to a remote agent; retrying", "agent", s.AgentID, "task", key.task, "error", err)
		}
	})
}
