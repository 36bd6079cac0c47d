package embeddings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
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

// Embed returns a vector for each text, all of one length. The error is errs.Unavailable
// where the server has not made them, or ctx's own.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		some := texts[:min(len(texts), c.opts.Batch)]
		texts = texts[len(some):]
		made, err := c.persist(ctx, some)
		if err != nil {
			return nil, err
		}
		out = append(out, made...)
	}
	for _, v := range out {
		if len(v) != len(out[0]) {
			return nil, errs.New(errs.Unavailable, "the embeddings server answers with vectors of different lengths")
		}
	}
	return out, nil
}

// persist sends one request until it succeeds, or nothing is won by sending it again.
func (c *Client) persist(ctx context.Context, texts []string) ([][]float32, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = c.opts.Pause
	out, err := backoff.Retry(ctx, func() ([][]float32, error) { return c.once(ctx, texts) },
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

// once sends one request.
func (c *Client) once(ctx context.Context, texts []string) ([][]float32, error) {
	body, err := json.Marshal(request{Model: c.model, Input: texts, Format: "float"})
	if err != nil {
		return nil, backoff.Permanent(err)
	}
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
		return nil, unreached(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refused(resp)
	}
	// One byte more than allowed tells a long answer from one that just fits.
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxBody+1))
	switch {
	case err != nil:
		return nil, errs.Wrap(errs.Unavailable, err, "the embeddings server breaks off its answer")
	case int64(len(text)) > c.opts.MaxBody:
		return nil, backoff.Permanent(errs.New(errs.Unavailable, "the embeddings server answers with more than %d bytes", c.opts.MaxBody))
	}
	out, err := vectors(text, len(texts))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	return out, nil
}

// unreached is the error of a request without an answer. Our own errors, of an address or
// a redirect that is refused, are the same the next time.
func unreached(err error) error {
	var own *errs.Error
	if errors.As(err, &own) {
		return backoff.Permanent(own)
	}
	return errs.Wrap(errs.Unavailable, err, "the embeddings server cannot be reached")
}

// refused is the error of an answer without vectors.
func refused(resp *http.Response) error {
	err := errs.New(errs.Unavailable, "the embeddings server answers with %d", resp.StatusCode)
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

// vectors reads the n vectors of an answer, in the order of their texts.
func vectors(text []byte, n int) ([][]float32, error) {
	var r response
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the embeddings server answers with something else than vectors")
	}
	if len(r.Data) != n {
		return nil, errs.New(errs.Unavailable, "the embeddings server answers with %d vectors to %d texts", len(r.Data), n)
	}
	out := make([][]float32, n)
	for _, d := range r.Data {
		if d.Index < 0 || d.Index >= n || out[d.Index] != nil || len(d.Embedding) == 0 || len(d.Embedding) > maxWidth || !finite(d.Embedding) {
			return nil, errs.New(errs.Unavailable, "the embeddings server answers with vectors that cannot be used")
		}
		out[d.Index] = d.Embedding
	}
	return out, nil
}

func finite(v []float32) bool {
	for _, f := range v {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return false
		}
	}
	return true
}
