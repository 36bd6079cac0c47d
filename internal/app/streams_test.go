package app_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStopEndsStreams requires that a server that stops ends open event streams, also before their
// first event.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data)
	c := newClient(t, p.url(t), adminToken(t, data))
	res, err := c.Open(t.Context(), http.MethodGet, "/api/v1/events", "")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	body := bufio.NewReader(res.Body)
	first, err := body.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "retry: 1000\n", first)

	p.terminate(t)
	_, err = io.ReadAll(body)
	require.NoError(t, err, "the stream ends cleanly")
	require.Zero(t, p.exit(t), "stderr:\n%s", p.log.end())
}
