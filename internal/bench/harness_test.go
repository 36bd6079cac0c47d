package bench

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

func TestLatencyIsTheMedianOverRounds(t *testing.T) {
	t.Parallel()
	p := rates{"a": {{took: []time.Duration{1e6, 2e6, 9e6}}, {took: []time.Duration{4e6, 4e6, 5e6}}, {took: []time.Duration{3e6, 3e6, 3e6}}}, "b": {{}}}
	require.InDelta(t, 3, p.latency("a", .5), 0)
	require.InDelta(t, 5, p.latency("a", 1), 0)
	require.Zero(t, p.latency("b", .5), "not timed")
}

func TestAFigureHasAVerdictOnlyWithAnAim(t *testing.T) {
	t.Parallel()
	for f, want := range map[figure]string{
		{value: 2}: "", {value: 2, most: 2}: "met", {value: 3, most: 2}: "NOT MET", {value: 2, least: 2}: "met", {value: 1, least: 2}: "NOT MET",
	} {
		_, verdict := f.verdict()
		require.Equal(t, want, verdict, "%+v", f)
	}
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
