package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

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
}

func newSender(o Options) *sender {
	return &sender{timeout: o.Timeout, userAgent: []string{o.UserAgent}, transport: o.Guard.Transport(o.Timeout)}
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
	if resp, err := s.post(attempt, hook, d, now); err != nil {
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

// post makes one request. The transport repeats it only if nothing of it was written.
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
