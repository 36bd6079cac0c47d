// Package remote has remote A2A agents execute the tasks of agents of the registry. One replica at a time takes the inbox of such an
// agent: it sends each attempt to the remote agent as a message, follows the task that the remote agent makes of it, and passes on its
// output, its questions and cancellations (docs/adr/0061-remote-a2a-agents.md).
package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"comet/internal/a2a/client"
	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/remotes"
	"comet/store/seal"
)

const (
	// workerProtocol and workerTransport are those of the workers, factKind is the kind of their tokens in the ledger.
	workerProtocol, workerTransport, factKind = "a2a", "remote", "a2a"
	// reloadInterval is how often the remote agents are read, to notice changes by other processes.
	reloadInterval = 2 * time.Second
)

// Options configures New; nil is the zero value.
type Options struct {
	// Guard decides which addresses comet may connect to, default netguard.New(nil). HTTPSOnly rejects other schemes.
	Guard     *netguard.Guard
	HTTPSOnly bool
	// Keys encrypts the secrets, nil does not.
	Keys      *seal.Keyring
	UserAgent string
	// Poll is how often the inbox is read without a wake-up, default 2 s.
	Poll time.Duration
	// Recheck is how often the card is read, default 1 h. After a failure it is read after RetryMin, then up to RetryMax, default 1 s
	// and 1 min.
	Recheck, RetryMin, RetryMax time.Duration
	// PollMin and PollMax are the shortest and the longest wait before a remote task is read again, default 500 ms and 10 s.
	PollMin, PollMax time.Duration
	// Timeout limits a request, default 10 s. Silence is how long a stream without events stays open, default 10 s.
	Timeout, Silence time.Duration
	// Patience is how long a remote agent may be unreachable during an attempt, default 20 s.
	Patience time.Duration
	// Alive is how often a remote agent that reports no change is reported as alive, default 5 s.
	Alive time.Duration
	// Clock returns the time, default time.Now.
	Clock  func() time.Time
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Guard = cmp.Or(out.Guard, netguard.New(nil))
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&out.Poll, 2 * time.Second}, {&out.Recheck, time.Hour}, {&out.RetryMin, time.Second}, {&out.RetryMax, time.Minute},
		{&out.PollMin, 500 * time.Millisecond}, {&out.PollMax, 10 * time.Second}, {&out.Timeout, 10 * time.Second}, {&out.Silence, 10 * time.Second},
		{&out.Patience, 20 * time.Second}, {&out.Alive, 5 * time.Second},
	} {
		*d.value = cmp.Or(*d.value, d.fallback)
	}
	if out.Clock == nil {
		out.Clock = time.Now
	}
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// Remotes runs the workers of agents with remote A2A agents. It is a background.Service.
type Remotes struct {
	*background.Loop
	store     *store.Store
	work      *orchestrator.Orchestrator
	opts      Options
	log       *slog.Logger
	clock     func() time.Time
	transport *http.Transport
	poller    *background.PollLoop
	workers   map[string]*worker // used by run alone
	running   sync.WaitGroup
}

// New returns the service.
func New(s *store.Store, work *orchestrator.Orchestrator, opts *Options) *Remotes {
	o := opts.orDefaults()
	r := &Remotes{store: s, work: work, opts: o, log: o.Logger, clock: o.Clock, transport: o.Guard.Transport(o.Timeout), workers: map[string]*worker{}}
	r.poller = background.NewPollLoop(background.PollOptions{Task: "reading the remote agents", Logger: o.Logger},
		func(ctx context.Context) (time.Duration, error) { return reloadInterval, r.syncWorkers(ctx) })
	r.Loop = background.NewLoop(r.run)
	return r
}

func (r *Remotes) run(ctx context.Context) {
	defer r.transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer r.running.Wait()
	defer cancel()
	r.poller.Run(ctx)
}

// worker waits for its turn to take the inbox of an agent.
type worker struct {
	remotes.Agent
	cancel context.CancelFunc
}

// syncWorkers starts and stops workers to match the remote agents.
func (r *Remotes) syncWorkers(ctx context.Context) error {
	if r.work.Check(ctx) != nil {
		return nil // the states of workers are not loaded yet
	}
	all, err := remotes.All(r.store.Reads(ctx))
	if err != nil {
		return err
	}
	current := map[string]remotes.Agent{}
	for _, a := range all {
		current[a.AgentID] = a
	}
	for id, w := range r.workers {
		if now := current[id]; now.Version != w.Version || !now.CreatedAt.Equal(w.CreatedAt) {
			w.cancel()
			delete(r.workers, id)
		}
	}
	for id, a := range current {
		if r.workers[id] == nil {
			w := &worker{Agent: a}
			var inner context.Context
			inner, w.cancel = context.WithCancel(ctx)
			r.workers[id] = w
			r.running.Go(func() { r.runWorker(inner, id) })
		}
	}
	return nil
}

// runWorker takes the inbox of an agent whenever no other replica does, until ctx ends.
func (r *Remotes) runWorker(ctx context.Context, agentID string) {
	retry := r.opts.RetryMin
	for wait := time.Duration(0); sleep(ctx, wait) == nil; {
		wait = r.opts.Poll
		worker := r.work.CachedWorker(agentID)
		if worker.State != models.WorkerOffline && worker.State != "" && worker.Transport != workerTransport {
			continue // the agent has connected itself
		}
		connectionID := r.work.NewConnectionID()
		row, err := r.claim(ctx, agentID, connectionID)
		if err != nil || row.Holder == "" {
			continue // another replica has it
		}
		begun := r.clock()
		err = r.hold(ctx, row)
		if r.clock().Sub(begun) > r.opts.RetryMax {
			retry = r.opts.RetryMin
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
		if failed := r.store.Write(end, func(tx *store.Tx) error { return remotes.Release(tx, agentID, connectionID) }); failed != nil {
			r.log.Warn("release a remote agent", "agent", agentID, "error", failed)
		}
		cancel()
		if errors.Is(err, errLost) {
			retry, wait = r.opts.RetryMin, 0
			continue
		}
		if ctx.Err() == nil {
			r.log.Warn("a remote agent is not usable; retrying", "agent", agentID, "error", err)
		}
		wait, retry = retry, min(2*retry, r.opts.RetryMax)
	}
}

// claim makes a connection the holder of a remote agent. The Holder of the row is "" if there is another one.
func (r *Remotes) claim(ctx context.Context, agentID, connectionID string) (row remotes.Agent, err error) {
	err = r.store.Write(ctx, func(tx *store.Tx) error {
		if row, err = remotes.Get(tx, agentID); err != nil {
			return err
		}
		ok, err := remotes.Claim(tx, agentID, row.Version, connectionID)
		if row.Holder = ""; ok {
			row.Holder = connectionID
		}
		return err
	})
	return row, err
}

// errLost says that a session ended because its settings or its connection changed.
var errLost = errors.New("the remote agent has new settings or another connection")

// hold checks the card and runs a session.
func (r *Remotes) hold(ctx context.Context, row remotes.Agent) error {
	if err := r.check(ctx, &row); err != nil {
		return err
	}
	s := &session{Remotes: r, Agent: row, checked: row, connectionID: row.Holder, suspect: background.NewSignal(), attempts: map[attemptKey]*attempt{}, forwarding: map[string]bool{}}
	var err error
	if s.card, s.endpoint, err = r.usable(row); err != nil {
		return err
	}
	options, err := r.requestOptions(row)
	if err != nil {
		return err
	}
	s.client = client.New(options, s.endpoint)
	return s.run(ctx)
}

// requestOptions returns the options of requests to a remote agent.
func (r *Remotes) requestOptions(row remotes.Agent) (client.Options, error) {
	secret, err := r.opts.Keys.Open(remotes.SealedSecret, row.Secret)
	out := client.Options{Transport: r.transport, UserAgent: r.opts.UserAgent, Timeout: r.opts.Timeout, Silence: r.opts.Silence, Header: row.AuthHeader, Value: string(secret)}
	if row.AuthType == AuthBearer {
		out.Value = "Bearer " + out.Value
	}
	return out, err
}

// usable returns the card of a remote agent and the interface that comet uses. A secret is only sent to the server of the card.
func (r *Remotes) usable(row remotes.Agent) (client.Card, client.Endpoint, error) {
	card, err := client.ParseCard(row.Card)
	if err != nil {
		return card, client.Endpoint{}, err
	}
	home, err := url.Parse(row.CardURL)
	if err != nil {
		return card, client.Endpoint{}, err
	}
	e, err := card.Endpoint(func(u *url.URL) error {
		if row.AuthType != AuthNone && (u.Scheme != home.Scheme || u.Host != home.Host) {
			return errs.New(errs.InvalidRequest, "%s://%s is not the server of the card, %s://%s, and would receive its secret", u.Scheme, u.Host, home.Scheme, home.Host)
		}
		_, err := r.opts.Guard.CheckURL(u.String(), maxURL, r.opts.HTTPSOnly)
		return err
	})
	return card, e, err
}

// check reads the card of a remote agent and stores the result.
func (r *Remotes) check(ctx context.Context, row *remotes.Agent) error {
	options, err := r.requestOptions(*row)
	if err == nil {
		err = r.readCard(ctx, &options, row)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if row.Error = ""; err != nil {
		row.Error = describe(err)
	}
	if stored := r.store.Write(ctx, func(tx *store.Tx) error { return remotes.SaveCard(tx, *row) }); err == nil {
		err = stored
	}
	return err
}

// readCard reads the card of a remote agent unless the known one is current.
func (r *Remotes) readCard(ctx context.Context, options *client.Options, row *remotes.Agent) error {
	raw, etag, err := client.FetchCard(ctx, options, row.CardURL, row.ETag)
	if err != nil || raw == nil {
		return err
	}
	fresh := *row
	fresh.Card, fresh.ETag = raw, etag
	if _, _, err := r.usable(fresh); err != nil {
		return err
	}
	*row = fresh
	return nil
}

// describe is an error of a request or a card for clients.
func describe(err error) string {
	if failed, ok := asClientError(err); ok {
		return failed.Text
	}
	return errs.From(err).Detail
}

func asClientError(err error) (*client.Error, bool) { return errors.AsType[*client.Error](err) }

func sleep(ctx context.Context, d time.Duration) error { return background.Sleep(ctx, d) }
