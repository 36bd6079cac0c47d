package webhooks

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"time"

	"comet/internal/netguard"
	"comet/models"
	"comet/webhooks/signature"
)

const (
	defaultTimeout = 15 * time.Second
	// bodyTimeout is how long the body of a response is waited for.
	bodyTimeout = time.Second

	idleConnections = 64 // to one host: about as many deliveries as are made side by side
	allIdle         = 1024
	idleTimeout     = 90 * time.Second
	maxHeaderBytes  = 64 << 10
)

// outcome is what became of one attempt.
type outcome struct {
	attempt   models.DeliveryAttempt // without its number
	succeeded bool                   // the status was 2xx
	gone      bool                   // it was 410
	// retryAfter is how long the receiver asked to be left alone, at most a day; 0 for
	// not at all.
	retryAfter time.Duration
}

type senderOptions struct {
	// Timeout is for a whole attempt, from the look-up of the name to the end of the
	// response; default 15 s.
	Timeout time.Duration
	// Guard refuses addresses, default all that are not public.
	Guard *netguard.Guard
	// UserAgent is the header, default "comet".
	UserAgent string
}

func (o senderOptions) orDefaults() senderOptions {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Guard == nil {
		o.Guard = netguard.New(nil)
	}
	if o.UserAgent == "" {
		o.UserAgent = "comet"
	}
	return o
}

// sender makes attempts, those of tests and those of deliveries alike. It is safe for
// concurrent use and keeps no state but its idle connections.
type sender struct {
	transport *http.Transport
	timeout   time.Duration
	userAgent []string
}

func newSender(o senderOptions) *sender {
	o = o.orDefaults()
	return &sender{
		timeout:   o.Timeout,
		userAgent: []string{o.UserAgent},
		// No proxy: it would make the connections that the guard is to judge.
		transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				// The transport goes on connecting when the attempt is over.
				ctx, cancel := context.WithTimeout(ctx, o.Timeout)
				defer cancel()
				return o.Guard.DialContext(ctx, network, address)
			},
			TLSHandshakeTimeout:    o.Timeout,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: o.Timeout, PingTimeout: o.Timeout}, // or a dead connection is used again and again
			DisableCompression:     true,
			MaxIdleConnsPerHost:    idleConnections,
			MaxIdleConns:           allIdle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
}

// close lets go of the idle connections.
func (s *sender) close() { s.transport.CloseIdleConnections() }

// send makes one attempt to deliver at the time now. The status decides what became
// of it, and what follows it does not matter: a receiver that has said 200 has taken
// the event, even where the rest of its response never comes, which is waited for for
// a second. While ctx ends the
// attempt is given up.
func (s *sender) send(ctx context.Context, hook models.Webhook, d models.Delivery, now time.Time) outcome {
	started := time.Now()
	out := outcome{attempt: models.DeliveryAttempt{At: now}}
	attempt, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if resp, err := s.post(attempt, hook, d, now); err != nil {
		out.attempt.Error = s.failure(ctx, err)
	} else {
		late := time.AfterFunc(bodyTimeout, cancel)
		out.read(resp, now)
		late.Stop()
	}
	out.attempt.DurationMS = time.Since(started).Milliseconds()
	return out
}

// post makes one request. A POST without an Idempotency-Key is one that the transport
// repeats by itself only where nothing of it was written yet.
func (s *sender) post(ctx context.Context, hook models.Webhook, d models.Delivery, now time.Time) (*http.Response, error) {
	body := payload(d)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        s.userAgent,
		"Webhook-Id":        {d.EventID},
		"Webhook-Timestamp": {signature.Timestamp(now)},
		"Webhook-Signature": {signatures(hook.Keys, d.EventID, now, body)},
	}
	return s.transport.RoundTrip(req)
}

// payload is the body of a delivery, the same bytes on every attempt.
func payload(d models.Delivery) []byte {
	const around = 96 // names, a type and a time
	body := make([]byte, 0, len(d.Data)+around)
	body = append(body, `{"type":"`...)
	body = append(body, d.Type...) // letters, dots and underscores
	body = append(body, `","timestamp":"`...)
	body = d.EventAt.UTC().AppendFormat(body, time.RFC3339Nano)
	body = append(body, `","data":`...)
	body = append(body, d.Data...)
	return append(body, '}')
}
