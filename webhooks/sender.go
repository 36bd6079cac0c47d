package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/webhooks/signature"
)

// bodyTimeout limits the wait for the body of a response.
const bodyTimeout = time.Second

// sender makes attempts. It is safe for concurrent use and keeps only idle connections.
type sender struct {
	transport *http.Transport
	timeout   time.Duration
	userAgent []string
	render    func(context.Context, models.Webhook, models.Delivery) (body []byte, mediaType string, err error)
}

func newSender(o Options) *sender {
	return &sender{render: o.Render, timeout: o.Timeout, userAgent: []string{o.UserAgent}, transport: o.Guard.Transport(o.Timeout)}
}

func (s *sender) close() { s.transport.CloseIdleConnections() }

// send makes one attempt at the time now. The status decides: a receiver that answered 200 has
// accepted the event, even if the rest of its response, awaited for one second, never arrives.
func (s *sender) send(ctx context.Context, hook models.Webhook, d models.Delivery, now time.Time) attemptResult {
	started := time.Now()
	out := attemptResult{attempt: models.DeliveryAttempt{At: now}}
	timeout := attemptTimeout(hook, s.timeout)
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if body, mediaType, err := s.body(attempt, hook, d); err != nil {
		out.attempt.Error, out.gone = errs.From(err).Detail, errs.Is(err, errs.Unauthenticated)
	} else if resp, err := s.post(attempt, hook, d.EventID, body, mediaType, now); err != nil {
		out.attempt.Error = failure(ctx, err, timeout)
	} else {
		late := time.AfterFunc(bodyTimeout, cancel)
		out.read(resp, now)
		late.Stop()
	}
	out.attempt.DurationMS = time.Since(started).Milliseconds()
	return out
}

// attemptTimeout limits an attempt at a webhook; byDefault is the server's limit.
func attemptTimeout(hook models.Webhook, byDefault time.Duration) time.Duration {
	return cmp.Or(time.Duration(hook.TimeoutSeconds)*time.Second, byDefault)
}

// body returns the body of an attempt and its media type.
func (s *sender) body(ctx context.Context, hook models.Webhook, d models.Delivery) ([]byte, string, error) {
	if hook.Format != "" {
		return s.render(ctx, hook, d)
	}
	return payload(d), "application/json", nil
}

// post makes one request. The transport repeats it only if nothing of it was written.
func (s *sender) post(ctx context.Context, hook models.Webhook, eventID string, body []byte, mediaType string, now time.Time) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{
		"Content-Type":      {mediaType},
		"User-Agent":        s.userAgent,
		"Webhook-Id":        {eventID},
		"Webhook-Timestamp": {signature.Timestamp(now)},
		"Webhook-Signature": {signatures(hook.Keys, eventID, now, body)},
	}
	for name, value := range hook.Headers {
		req.Header.Set(name, value)
	}
	return s.transport.RoundTrip(req)
}

// payload returns the body of a delivery, the same bytes for every attempt.
func payload(d models.Delivery) []byte {
	const around = 96 // member names, type and time
	body := make([]byte, 0, len(d.Data)+around)
	body = append(body, `{"type":"`...)
	body = append(body, d.Type...) // letters, dots and underscores
	body = append(body, `","timestamp":"`...)
	body = d.EventAt.UTC().AppendFormat(body, time.RFC3339Nano)
	body = append(body, `","data":`...)
	body = append(body, d.Data...)
	return append(body, '}')
}

// PublicKeys returns the public halves whpk_… of the active signing keys, the newest first.
func PublicKeys(k models.WebhookKeys, now time.Time) []string {
	var all []string
	for _, p := range activeKeys(k, now) {
		if p.SigningKey != nil {
			all = append(all, signature.PublicKey(p.SigningKey))
		}
	}
	return all
}

// activeKeys returns the keys that sign at a time, the newest first.
func activeKeys(k models.WebhookKeys, at time.Time) []models.PreviousKeys {
	all := []models.PreviousKeys{{Secret: k.Secret, SigningKey: k.SigningKey}}
	for _, p := range k.PreviousKeys {
		if at.Before(p.Until) {
			all = append(all, p)
		}
	}
	return all
}

// signatures returns the signature header: those of the secrets, then of the signing keys, the
// newest first. After a rotation the old keys sign too, so that receivers can switch at any time.
func signatures(k models.WebhookKeys, id string, at time.Time, body []byte) string {
	var symmetric, asymmetric []string
	for _, p := range activeKeys(k, at) {
		symmetric = append(symmetric, signature.Sign(p.Secret, id, at, body))
		if p.SigningKey != nil {
			asymmetric = append(asymmetric, signature.SignAsymmetric(p.SigningKey, id, at, body))
		}
	}
	return strings.Join(append(symmetric, asymmetric...), " ")
}
