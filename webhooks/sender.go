package webhooks

import (
	"bytes"
	"context"
	"net/http"
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
	attempt, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if resp, err := s.post(attempt, hook, d, now); err != nil {
		out.attempt.Error = failure(ctx, err, s.timeout)
	} else {
		late := time.AfterFunc(bodyTimeout, cancel)
		out.read(resp, now)
		late.Stop()
	}
	out.attempt.DurationMS = time.Since(started).Milliseconds()
	return out
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
	if k.SigningKey != nil {
		all = append(all, signature.PublicKey(k.SigningKey))
	}
	if k.OldSigningKey != nil && now.Before(k.OldUntil) {
		all = append(all, signature.PublicKey(k.OldSigningKey))
	}
	return all
}

// signatures returns the signature header: those of the secrets, then of the signing keys, the
// newest first. After a rotation the old keys sign too, so that receivers can switch at any time.
func signatures(k models.WebhookKeys, id string, at time.Time, body []byte) string {
	old := at.Before(k.OldUntil)
	header := signature.Sign(k.Secret, id, at, body)
	if old && k.OldSecret != nil {
		header += " " + signature.Sign(k.OldSecret, id, at, body)
	}
	if k.SigningKey != nil {
		header += " " + signature.SignAsymmetric(k.SigningKey, id, at, body)
	}
	if old && k.OldSigningKey != nil {
		header += " " + signature.SignAsymmetric(k.OldSigningKey, id, at, body)
	}
	return header
}
