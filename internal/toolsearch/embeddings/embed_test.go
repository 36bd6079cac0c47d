package embeddings_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/errs"
	"comet/internal/toolsearch/embeddings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server and counts its requests.
func serve(t *testing.T, handler http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// lengths responds with vectors of the lengths of the texts, the last one first.
func lengths(w http.ResponseWriter, r *http.Request) {
	var req struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var data []string
	for i := len(req.Input) - 1; i >= 0; i-- {
		data = append(data, fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[%d,1]}`, i, len(req.Input[i])))
	}
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"m","usage":{"prompt_tokens":1}}`, strings.Join(data, ","))
}

func client(t *testing.T, url string, opts *embeddings.Options) *embeddings.Client {
	t.Helper()
	if opts == nil {
		opts = &embeddings.Options{}
	}
	opts.Pause = time.Millisecond
	c, err := embeddings.New(url, "m", opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestEmbed(t *testing.T) {
	t.Parallel()

	t.Run("keeps the order", func(t *testing.T) {
		t.Parallel()
		url, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			lengths(w, r)
		})
		got, err := client(t, url, &embeddings.Options{Token: "secret"}).Embed(t.Context(), []string{"a", "bb", "ccc", "dddd", "eeeee"})
		require.NoError(t, err)
		require.Equal(t, [][]float32{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}, got)
		require.EqualValues(t, 1, requests.Load())
	})

	t.Run("retries a busy server", func(t *testing.T) {
		t.Parallel()
		for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
			var n atomic.Int64
			url, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) < 3 {
					w.WriteHeader(status)
					return
				}
				lengths(w, r)
			})
			_, err := client(t, url, nil).Embed(t.Context(), []string{"a"})
			require.NoError(t, err, status)
			require.EqualValues(t, 3, requests.Load())
		}
	})

	t.Run("stops after the last try", func(t *testing.T) {
		t.Parallel()
		url, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		_, err := client(t, url, nil).Embed(t.Context(), []string{"a"})
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Equal(t, "the embeddings server returned status 502", errs.From(err).Detail)
		require.EqualValues(t, 3, requests.Load())
	})
}

func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status         int
		response, want string
	}{
		"a wrong token":                {http.StatusUnauthorized, `{"error":"who are you"}`, "returned status 401"},
		"an unknown model":             {http.StatusNotFound, ``, "returned status 404"},
		"broken JSON":                  {http.StatusOK, `{"data":[{"index":0,"embed`, "something other than vectors"},
		"an HTML page":                 {http.StatusOK, `<html>`, "something other than vectors"},
		"no vector":                    {http.StatusOK, `{"data":[]}`, "0 vectors for 2 texts"},
		"too many vectors":             {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]},{"index":2,"embedding":[1]}]}`, "3 vectors for 2 texts"},
		"a duplicate index":            {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, "invalid vectors"},
		"an index that is too high":    {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`, "invalid vectors"},
		"a negative index":             {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":-1,"embedding":[1]}]}`, "invalid vectors"},
		"an empty vector":              {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[]}]}`, "invalid vectors"},
		"vectors of different lengths": {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`, "different lengths"},
		"an invalid number":            {http.StatusOK, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1e60]}]}`, "something other than vectors"},
		"a response that is too long":  {http.StatusOK, strings.Repeat(" ", 2000), "more than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.response))
			})
			_, err := client(t, url, &embeddings.Options{MaxBody: 1000}).Embed(t.Context(), []string{"a", "b"})
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			require.Contains(t, errs.From(err).Detail, c.want)
			require.NotContains(t, err.Error(), "who are you")
			require.EqualValues(t, 1, requests.Load())
		})
	}
}

func TestSlowServers(t *testing.T) {
	t.Parallel()
	// A server detects that the client has gone after it has read the body.
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}

	t.Run("time out", func(t *testing.T) {
		t.Parallel()
		url, _ := serve(t, silent)
		_, err := client(t, url, &embeddings.Options{Timeout: 10 * time.Millisecond, Tries: 2}).Embed(t.Context(), []string{"a"})
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Equal(t, "the embeddings server cannot be reached", errs.From(err).Detail)
	})

	t.Run("end with the caller's context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			silent(w, r)
		})
		_, err := client(t, url, nil).Embed(ctx, []string{"a"})
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()

	t.Run("to another host are rejected", func(t *testing.T) {
		t.Parallel()
		other, requests := serve(t, lengths)
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+"/v1/embeddings", http.StatusTemporaryRedirect)
		})
		_, err := client(t, url, &embeddings.Options{Token: "secret"}).Embed(t.Context(), []string{"a"})
		require.ErrorContains(t, err, "redirects to another host")
		require.Zero(t, requests.Load())
	})

	t.Run("on the same host are followed", func(t *testing.T) {
		t.Parallel()
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/embeddings" {
				http.Redirect(w, r, "/v2/embeddings", http.StatusTemporaryRedirect)
				return
			}
			lengths(w, r)
		})
		got, err := client(t, url, nil).Embed(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.Equal(t, [][]float32{{1, 1}}, got)
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "models.example", "ftp://models.example", "http://", "http://me:secret@models.example", "http://models.example?key=secret", "http://[::1"} {
		_, err := embeddings.New(base, "m", nil)
		require.True(t, errs.Is(err, errs.InvalidRequest), "%s: %v", base, err)
		require.NotContains(t, fmt.Sprint(err), "secret")
	}
	_, err := embeddings.New("http://models.example", "", nil)
	require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
	c, err := embeddings.New("http://127.0.0.1:1/v1/", "m", &embeddings.Options{Tries: 1})
	require.NoError(t, err)
	require.Equal(t, "m", c.Model())
	_, err = c.Embed(t.Context(), []string{"a"})
	require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	var refused net.Error
	require.ErrorAs(t, err, &refused, "the cause is in the error for the log")
}
