package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCallerRejectsUnexpectedResponses(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	}))
	t.Cleanup(server.Close)
	c := newCaller(t, strings.TrimPrefix(server.URL, "http://"))

	require.NoError(t, c.expect(get("/", "a"), 200, []byte("Bearer a")))
	require.NoError(t, c.expect(post("/", "b", []byte("{}")), 200, []byte("Bearer b")), "on the same connection")
	require.ErrorContains(t, c.expect(get("/", "a"), 200, []byte("Bearer b")), "instead of")
	require.ErrorContains(t, c.expect(get("/refused", "a"), 200, []byte("Bearer a")), "403")
}

func TestRatioIsTheMedianOverRounds(t *testing.T) {
	t.Parallel()
	p := rates{
		"a": {{rate: 80, cpu: 2}, {rate: 1, cpu: 2}, {rate: 90, cpu: 2}, {rate: 100, cpu: 2}, {rate: 70, cpu: 2}},
		"b": {{rate: 100, cpu: 1}, {rate: 100, cpu: 1}, {rate: 100, cpu: 1}, {rate: 100, cpu: 4}, {rate: 100, cpu: 1}},
	}
	median, low, high := p.ratio("a", "b")
	require.Equal(t, []float64{0.8, 0.7, 0.9}, []float64{median, low, high})
	require.InDelta(t, 80, p.rate("a"), 0)
	require.InDelta(t, 0.5, p.saving("a", "b"), 0)
}
