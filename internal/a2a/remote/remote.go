// Package remote makes remote A2A agents execute the tasks of agents of the registry. One replica at a time processes the
// inbox of such an agent: it sends each attempt to the remote agent as a message, follows the task that the remote agent
// creates for it, and forwards output, questions and cancellations (docs/adr/0061-remote-a2a-agents.md).
package remote

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/netguard"
	"comet/internal/orchestrator"
	"comet/store"
	"comet/store/remotes"
	"comet/store/seal"
)

// The kinds of authentication.
const (
	AuthNone   = "none"
	AuthBearer = "bearer"
	AuthHeader = "header"
)

const (
	maxURL = 2048 // bytes of an address
	// goodbyeTimeout limits the last requests of an attempt or a session.
	goodbyeTimeout = 5 * time.Second
)

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
	holdings  map[holdingKey]*holding // used by claimAll alone
	running   sync.WaitGroup
}

// holdingKey identifies a version of the settings of a remote agent.
type holdingKey struct {
	agentID            string
	version, createdAt int64
}

// holding is what this process knows of a remote agent: whether it has it, or waits after a failure for retry.
type holding struct {
	held  atomic.Bool
	retry time.Duration
}

// Options configures New; nil is the zero value.
type Options struct {
	// Guard decides which addresses comet may connect to, default netguard.New(nil). HTTPSOnly rejects other schemes.
	Guard     *netguard.Guard
	HTTPSOnly bool
	// Keys encrypts the secrets; if it is nil, they are not encrypted.
	Keys      *seal.Keyring
	UserAgent string
	// Poll is how often the inbox is read without a wake-up, default 2 s.
	Poll time.Duration
	// Recheck is how often the card is read, default 1 h. After a failure it is read again after RetryMin, default 1 s; the
	// wait then grows up to RetryMax, default 1 min.
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
func (r *Remotes) usable(row remotes.Agent) (client.Card, a2a.AgentInterface, error) {
	card, err := client.ParseCard(row.Card)
	if err != nil {
		return card, a2a.AgentInterface{}, err
	}
	e, err := card.Endpoint(row.CardURL, row.AuthType != AuthNone, func(address string) error {
		_, err := r.opts.Guard.CheckURL(address, maxURL, r.opts.HTTPSOnly)
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

// readCard reads and verifies the card of a remote agent unless the known one is current and was verified.
func (r *Remotes) readCard(ctx context.Context, options *client.Options, row *remotes.Agent) error {
	fresh, known := *row, row.ETag
	if before, err := client.ParseCard(row.Card); err != nil || before.Signature == "" || strings.HasPrefix(before.Signature, client.Unverified) {
		known = ""
	}
	raw, etag, err := client.FetchCard(ctx, options, row.CardURL, known)
	if err != nil || raw == nil {
		return err
	}
	fresh.Card, fresh.ETag = raw, etag
	if _, _, err := r.usable(fresh); err != nil {
		return err
	}
	result, err := client.VerifyCard(ctx, *options, row.CardURL, raw)
	if err != nil {
		return err
	}
	fresh.Card = client.Mark(raw, result)
	*row = fresh
	return nil
}

// describe is an error of a request or a card for clients.
func describe(err error) string {
	if client.Is(err) {
		return err.Error()
	}
	return errs.From(err).Detail
}

func sleep(ctx context.Context, d time.Duration) error { return background.Sleep(ctx, d) }
