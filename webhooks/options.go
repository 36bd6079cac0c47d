package webhooks

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"comet/internal/errs"
	"comet/internal/netguard"
	"comet/models"
)

// Options configures New; nil means defaults.
type Options struct {
	// Guard decides which addresses may be connected to, default public ones only.
	Guard *netguard.Guard
	// HTTPSOnly refuses URLs that begin with http:.
	HTTPSOnly bool
	// UserAgent is the header of every attempt, default "comet".
	UserAgent string
	// Timeout limits an attempt, default 15 s.
	Timeout time.Duration
	// Concurrency is how many attempts run in parallel at one healthy webhook, default 16.
	Concurrency int
	// MaxAttempts is how many attempts run in parallel in this process, tests included, default
	// 512; more of them wait.
	MaxAttempts int
	// Poll is the interval at which the dispatcher looks for deliveries without a wake-up:
	// retries that are due, and deliveries of other replicas; default 500 ms.
	Poll time.Duration
	// Retention is how long a finished delivery is kept, default 30 days.
	Retention time.Duration
	// Grace is how long Stop waits for attempts that it has cancelled, default 5 s.
	Grace time.Duration
	// Random varies the waits before retries: in [0, 1), safe for concurrent use, default rand/v2.
	Random func() float64
	// Render returns the body of a delivery to a webhook with a format, and its media type. Its error fails the attempt, and
	// errs.Unauthenticated also disables the webhook; default is an error.
	Render func(context.Context, models.Webhook, models.Delivery) (body []byte, mediaType string, err error)
	// TaskEvents are the types of events that webhooks of tasks receive.
	TaskEvents []models.EventType
	// OnAttempt is called after every attempt with tests and must return at once; default none.
	OnAttempt func(succeeded bool, took time.Duration)
	// Logger receives disabled webhooks and database failures; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.UserAgent = cmp.Or(out.UserAgent, "comet")
	out.Guard = cmp.Or(out.Guard, netguard.New(nil))
	out.Concurrency = cmp.Or(out.Concurrency, 16)
	out.MaxAttempts = cmp.Or(out.MaxAttempts, 512)
	out.Timeout = cmp.Or(out.Timeout, 15*time.Second)
	out.Poll = cmp.Or(out.Poll, 500*time.Millisecond)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.Grace = cmp.Or(out.Grace, 5*time.Second)
	if out.Random == nil {
		out.Random = rand.Float64
	}
	if out.Render == nil {
		out.Render = func(_ context.Context, hook models.Webhook, _ models.Delivery) ([]byte, string, error) {
			return nil, "", errs.New(errs.Internal, "the format %q is unknown", hook.Format)
		}
	}
	if out.OnAttempt == nil {
		out.OnAttempt = func(bool, time.Duration) {}
	}
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}
