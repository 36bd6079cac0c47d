package remote

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/background"
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
	*Remotes
	remotes.Agent
	card     client.Card
	endpoint a2a.AgentInterface
	client   *client.Client
	suspect  background.Signal // requests a check of the card

	mu sync.Mutex
	// attempts has the running attempts, and the cancellations that are being forwarded.
	attempts map[attemptKey]*attempt
	active   sync.WaitGroup
}

// attemptKey identifies an attempt, or its cancellation by the id of the message.
type attemptKey struct {
	task         string
	number       int
	cancellation string
}

// reply is a reply to a question, with the id of its message in the inbox.
type reply struct{ id, text string }

// attempt makes a remote agent execute an attempt at a task.
type attempt struct {
	*session
	key     attemptKey
	earlier []*attempt
	cancel  context.CancelCauseFunc
	done    chan struct{}
	replies chan reply

	// The fields below belong to the goroutine of run.
	row        remotes.Task
	assignedAt time.Time
	first      *a2a.Message
	meta       map[string]any // of all messages
	out        output
	status     a2a.TaskStatus
	tokens     int64
	// lastID is the id of the last event of the stream. streams is set while the remote agent streams, interrupted if events
	// may be missing, and waiting while its question waits for a reply. pending is a reply that was not sent yet.
	lastID      string
	streams     bool
	interrupted bool
	waiting     bool
	pending     *reply
	// contactAt is the time of the last response, and reportedAt that of the last report.
	contactAt, reportedAt time.Time
	changed               bool
}

// runSession checks the card of a remote agent and processes the inbox.
func (r *Remotes) runSession(ctx context.Context, row remotes.Agent) error {
	if err := r.check(ctx, &row); err != nil {
		return err
	}
	card, endpoint, err := r.usable(row)
	if err != nil {
		return err
	}
	options, err := r.requestOptions(row)
	if err != nil {
		return err
	}
	s := &session{
		Remotes: r, Agent: row, card: card, endpoint: endpoint, client: client.New(options, endpoint), suspect: background.NewSignal(),
		attempts: map[attemptKey]*attempt{},
	}
	return s.run(ctx)
}

// run processes the inbox until ctx ends or the session is over, and returns why it is over.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, over := s.work.Inbox(s.AgentID)
	defer over()
	defer func() {
		cancel()
		s.active.Wait()
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
		s.start(ctx, attemptKey{task: o.Task.ID, number: o.Task.Attempt}, (*attempt).run)
	}
	for shown := s.clock(); ctx.Err() == nil; {
		if now := s.clock(); now.Sub(shown) >= heartbeatInterval || s.work.CachedWorker(s.AgentID).State == models.WorkerOffline {
			if err := s.stayJoined(ctx); err != nil {
				return err
			}
			shown = now
		}
		row, err := remotes.Get(s.store.Reads(ctx), s.AgentID)
		if errs.Is(err, errs.NotFound) || err == nil && (row.Holder != s.Holder || s.work.CachedWorker(s.AgentID).ConnectionID != s.Holder) {
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
		Protocol: workerProtocol, ProtocolVersion: string(s.endpoint.ProtocolVersion), Transport: workerTransport, ConnectionID: s.Holder, Concurrency: s.Concurrency,
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
	if err := s.work.FlushAcknowledgements(end, s.AgentID); err != nil { // the next holder may be another process
		s.log.Debug("write acknowledgements of a remote agent", "agent", s.AgentID, "error", err)
	}
	if err := s.work.Disconnect(end, s.AgentID, s.Holder); err != nil && !errs.Is(err, errs.NotFound) {
		s.log.Debug("disconnect a remote agent", "agent", s.AgentID, "error", err)
	}
}

// recheck reads the card again. It returns an error if it is not usable, or if it has changed: the next session has the new one.
func (s *session) recheck(ctx context.Context) error {
	row := s.Agent
	err := s.check(ctx, &row)
	if err == nil && string(row.Card) != string(s.Card) {
		err = errLost
	}
	return err
}

// processInbox handles the messages of the inbox.
func (s *session) processInbox(ctx context.Context) error {
	all, err := s.work.Messages(ctx, s.AgentID, s.Concurrency+maxNotices)
	if err != nil {
		return err
	}
	var handled []string
	for _, m := range all {
		key := attemptKey{task: m.TaskID, number: m.Attempt}
		switch m.Kind {
		case models.MessageAssign:
			s.start(ctx, key, (*attempt).run)
		case models.MessageCancel:
			key.cancellation = m.ID
			s.start(ctx, key, func(a *attempt, ctx context.Context) { a.forwardCancel(ctx, m) })
			continue
		case models.MessageReply:
			var data struct {
				Answer string `json:"answer"`
			}
			s.mu.Lock()
			a := s.attempts[key]
			s.mu.Unlock()
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
	return s.work.AcknowledgeLater(ctx, s.AgentID, handled)
}

// start starts an attempt, or a cancellation, unless it runs. Earlier attempts at the task end, and with a cancellation its own.
func (s *session) start(ctx context.Context, key attemptKey, do func(*attempt, context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts[key] != nil {
		return
	}
	a := &attempt{session: s, key: key, done: make(chan struct{}), replies: make(chan reply, 1)}
	for other, before := range s.attempts {
		if other.task == key.task && other.number <= key.number && other.cancellation == "" {
			before.cancel(errCancelled)
			a.earlier = append(a.earlier, before)
		}
	}
	ctx, a.cancel = context.WithCancelCause(ctx)
	s.attempts[key] = a
	s.active.Go(func() {
		defer close(a.done)
		defer a.cancel(nil)
		do(a, ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.attempts, key)
	})
}

// forwardCancel cancels the remote task of an attempt that has ended here, and acknowledges the message once the remote agent has
// responded.
func (a *attempt) forwardCancel(ctx context.Context, m models.InboxMessage) {
	for _, before := range a.earlier {
		<-before.done
	}
	row, err := remotes.TaskOf(a.store.Reads(ctx), m.TaskID, m.Attempt)
	if err == nil && row.RemoteID != "" {
		if _, err = a.client.Cancel(ctx, row.RemoteID); !client.Is(err, client.Unreachable) { // it has ended or does not support it
			err = nil
		}
	}
	if err == nil || ctx.Err() == nil && a.clock().Sub(m.CreatedAt) > forwardFor {
		_, err = a.work.Acknowledge(ctx, a.AgentID, []string{m.ID})
	}
	if err != nil && ctx.Err() == nil {
		a.log.Debug("forward a cancellation to a remote agent; retrying", "agent", a.AgentID, "task", m.TaskID, "error", err)
	}
}
