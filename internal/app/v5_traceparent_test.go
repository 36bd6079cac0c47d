package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// TestTheTraceOfARequestInLines (Trace Context §3.2): what was asked for in a line belongs to
// the trace of the request that it came in.
func TestTheTraceOfARequestInLines(t *testing.T) {
	t.Parallel()
	cfg := configured(t, storetest.Databases()[0])
	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	worker := dialTCP(t, a.V5Addr())
	require.Equal(t, "W1", worker.join(";name=digger;caps=custom:dig"))
	eventually(t, func() bool { return c.online(t, "v5-digger") }, "it is there")
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/api/v5/messages", strings.NewReader("M1|User>O1|R|-|P1|N|-|0|-|-|call=dig"))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Traceparent", parent)
	resp, err := c.http.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	shown := get[struct{ Request struct{ Traceparent string } }](t, c, resp.Header.Get("Location"))
	require.Equal(t, parent, shown.Request.Traceparent)
}
