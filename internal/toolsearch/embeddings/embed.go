package embeddings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/internal/errs"
)

type request struct {
	Model  string   `json:"model"`
	Input  []string `json:"input"`
	Format string   `json:"encoding_format"`
}

type response struct {
	Data []struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	} `json:"data"`
}

// Embed returns a vector for each text, all of equal length. It sends one request, again until that
// succeeds or a retry would not help. The error is errs.Unavailable for a failure of the server, or the
// context's error.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = c.opts.Pause
	out, err := backoff.Retry(ctx, func() ([][]float32, error) { return c.request(ctx, texts) },
		backoff.WithBackOff(wait), backoff.WithMaxTries(uint(c.opts.Tries)), backoff.WithMaxElapsedTime(0))
	var later *backoff.RetryAfterError
	var permanent *backoff.PermanentError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &later):
		return nil, errs.New(errs.Unavailable, "the embeddings server is busy")
	case errors.As(err, &permanent):
		return nil, permanent.Err
	}
	return out, err
}

func (c *Client) request(ctx context.Context, texts []string) ([][]float32, error) {
	body, _ := json.Marshal(request{Model: c.model, Input: texts, Format: "float"}) // strings cannot fail
	ctx, done := context.WithTimeout(ctx, c.opts.Timeout)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	// One byte more than allowed detects a longer response.
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxBody+1))
	switch {
	case err != nil:
		return nil, errs.Wrap(errs.Unavailable, err, "the response of the embeddings server ended early")
	case int64(len(text)) > c.opts.MaxBody:
		return nil, backoff.Permanent(errs.New(errs.Unavailable, "the embeddings server returned more than %d bytes", c.opts.MaxBody))
	}
	out, err := vectors(text, len(texts))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	return out, nil
}

// transportError returns the error of a request without a response. Errors of comet's own, of a
// rejected address or redirect, are permanent.
func transportError(err error) error {
	if own, ok := errors.AsType[*errs.Error](err); ok {
		return backoff.Permanent(own)
	}
	return errs.Wrap(errs.Unavailable, err, "the embeddings server cannot be reached")
}

// statusError returns the error of a response with another status than 200.
func statusError(resp *http.Response) error {
	err := errs.New(errs.Unavailable, "the embeddings server returned status %d", resp.StatusCode)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && s > 0 && s <= int(time.Minute/time.Second) {
			return backoff.RetryAfter(s)
		}
		return err
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusRequestTimeout:
		return err
	}
	return backoff.Permanent(err)
}

// vectors decodes the n vectors of a response, in the order of their texts.
func vectors(text []byte, n int) ([][]float32, error) {
	var r response
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the embeddings server returned something other than vectors")
	}
	if len(r.Data) != n {
		return nil, errs.New(errs.Unavailable, "the embeddings server returned %d vectors for %d texts", len(r.Data), n)
	}
	out := make([][]float32, n)
	for _, d := range r.Data {
		if d.Index < 0 || d.Index >= n || out[d.Index] != nil || len(d.Embedding) == 0 || len(d.Embedding) > maxWidth {
			return nil, errs.New(errs.Unavailable, "the embeddings server returned invalid vectors")
		}
		out[d.Index] = d.Embedding
	}
	for _, v := range out {
		if len(v) != len(out[0]) {
			return nil, errs.New(errs.Unavailable, "the embeddings server returned vectors of different lengths")
		}
	}
	return out, nil
}
