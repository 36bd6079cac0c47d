package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/telemetry"
	"comet/store/storetest"
	"comet/webhooks/signature"
)

// delivered is a delivery as received.
type delivered struct {
	header http.Header
	body   []byte
}

// subscriber receives deliveries and responds to each after answer has returned.
func subscriber(t *testing.T, answer func(r *http.Request)) (url string, arrived <-chan delivered) {
	t.Helper()
	got := make(chan delivered, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got <- delivered{r.Header, body}
		answer(r)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func take(t *testing.T, arrived <-chan delivered) delivered {
	t.Helper()
	select {
	case d := <-arrived:
		return d
	case <-time.After(long):
		require.Fail(t, "no delivery")
	}
	return delivered{}
}

// subscribe creates a webhook for new agents and returns its secret.
func subscribe(t *testing.T, c *client, url string) (secret string) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/webhooks", map[string]any{"url": url, "events": []string{"agent.created"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	var made struct{ Secret string }
	require.NoError(t, json.Unmarshal(body, &made))
	return made.Secret
}

func (c *client) createAgent(t *testing.T, d draft) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", d)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
}

func TestEventIsDeliveredAndCounted(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Webhooks.AllowNetworks = []string{"127.0.0.1"}
			a, err := app.New(t.Context(), cfg, &app.Options{Build: telemetry.Build{Version: "v1.2.3"}})
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			url, arrived := subscriber(t, func(*http.Request) {})
			c := newClient(t, a.URL(), adminToken(t, cfg.Data))
			secret := subscribe(t, c, url)
			c.createAgent(t, specialist("spec"))

			d := take(t, arrived)
			v, err := signature.NewVerifier(secret)
			require.NoError(t, err)
			require.NoError(t, v.Verify(d.header, d.body, time.Now()))
			require.Equal(t, "comet/v1.2.3", d.header.Get("User-Agent"))
			eventually(t, func() bool {
				_, text := read(t, a.URL()+"/metrics")
				return strings.Contains(text, `comet_webhook_attempt_duration_seconds_count{result="success"} 1`) &&
					strings.Contains(text, `comet_webhook_attempt_duration_seconds_count{result="failure"} 0`)
			}, "it is counted")
		})
	}
}

func TestWebhookNetworkSettings(t *testing.T) {
	t.Parallel()
	refusal := func(t *testing.T, url string, settings ...setting) (code, detail string) {
		t.Helper()
		data := t.TempDir()
		p := serve(t, data, settings...)
		c := newClient(t, p.url(t), adminToken(t, data))
		status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/webhooks", map[string]any{"url": url, "events": []string{"agent.created"}})
		require.NoError(t, err)
		p.stop(t)
		if status == http.StatusCreated {
			return "", ""
		}
		var problem struct{ Code, Detail string }
		require.NoError(t, json.Unmarshal(body, &problem))
		return problem.Code, problem.Detail
	}
	allow := env("COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8,10.0.0.0/8")

	t.Run("the loopback interface needs a permission", func(t *testing.T) {
		t.Parallel()
		code, detail := refusal(t, "http://127.0.0.1:9/hook")
		require.Equal(t, "address-refused", code)
		require.Contains(t, detail, "webhooks.allow_networks")
		code, _ = refusal(t, "http://127.0.0.1:9/hook", allow)
		require.Empty(t, code)
		code, _ = refusal(t, "http://192.168.0.1/hook", allow)
		require.Equal(t, "address-refused", code)
	})
	t.Run("HTTPS may be required", func(t *testing.T) {
		t.Parallel()
		only := env("COMET_WEBHOOKS_HTTPS_ONLY=true")
		code, detail := refusal(t, "http://10.0.0.1/hook", allow, only)
		require.Equal(t, "invalid-request", code)
		require.Contains(t, detail, "https://")
		code, _ = refusal(t, "https://10.0.0.1/hook", allow, only)
		require.Empty(t, code)
	})
}

// TestHangingReceiverDoesNotBlockStop: the attempt is cut off after the stop timeout and repeated
// by the next server.
func TestHangingReceiverDoesNotBlockStop(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		ctx, cancel := context.WithCancel(t.Context())
		url, arrived := subscriber(t, func(r *http.Request) {
			select {
			case <-ctx.Done():
			case <-r.Context().Done():
			}
		})
		t.Cleanup(cancel)
		data := t.TempDir()
		settings := []setting{
			database, env("COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.1", "COMET_WEBHOOKS_TIMEOUT=60s", "COMET_HTTP_SHUTDOWN_TIMEOUT=500ms"),
		}
		p := serve(t, data, settings...)
		c := newClient(t, p.url(t), adminToken(t, data))
		subscribe(t, c, url)
		c.createAgent(t, specialist("spec"))
		first := take(t, arrived)
		p.stop(t)

		cancel() // responds from now on
		p = serve(t, data, settings...)
		p.url(t)
		again := take(t, arrived)
		require.Equal(t, first.header.Get(signature.HeaderID), again.header.Get(signature.HeaderID))
		require.Equal(t, string(first.body), string(again.body))
		p.stop(t)
	})
}
