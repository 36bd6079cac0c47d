package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const (
	// maxResponseRead is how much of a response is read so that its connection can be reused, in
	// bytes.
	maxResponseRead = 64 << 10
	// pushTimeout limits one request.
	pushTimeout = 10 * time.Second
)

// errGone says that the target wants no more messages.
var errGone = errors.New("the address returned 410 Gone")

// pushClient sends requests to push targets. It follows no redirects, which would bypass the check
// of the target.
type pushClient struct {
	transport *http.Transport
	userAgent string
}

// probe checks that the target responds, with HEAD, or with an empty POST if HEAD fails.
func (c *pushClient) probe(ctx context.Context, t models.PushTarget) error {
	status, err := c.request(ctx, t, http.MethodHead, "", nil)
	if err != nil || status == http.StatusGone || isSuccess(status) {
		return statusError(status, err)
	}
	status, err = c.request(ctx, t, http.MethodPost, "", nil)
	return statusError(status, err)
}

// post pushes one message. nil means that the target accepted it. It returns errGone if the target
// wants no more messages.
func (c *pushClient) post(ctx context.Context, t models.PushTarget, contentType string, body []byte) error {
	return statusError(c.request(ctx, t, http.MethodPost, contentType, body))
}

func isSuccess(status int) bool { return status/100 == 2 }

func statusError(status int, err error) error {
	switch {
	case err != nil:
		return err
	case isSuccess(status):
		return nil
	case status == http.StatusGone:
		return errGone
	}
	return errs.New(errs.Unavailable, "the address responded with %d", status)
}

func (c *pushClient) request(ctx context.Context, t models.PushTarget, method, contentType string, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+t.Secret)
	req.Header.Set("User-Agent", c.userAgent)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, errs.Wrap(errs.Unavailable, err, "the address cannot be reached")
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponseRead) // only the status matters
	return resp.StatusCode, nil
}
