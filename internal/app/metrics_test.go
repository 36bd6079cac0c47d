package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/telemetry"
	"comet/store/storetest"
)

// TestReadinessAndMetrics tests the routes for operators on a complete server.
func TestReadinessAndMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			a, err := app.New(t.Context(), cfg, &app.Options{Build: telemetry.Build{Version: "v1.2.3", Go: "go1"}})
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			c := newClient(t, a.URL(), adminToken(t, cfg.Data))
			status, _, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", specialist("spec"))
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, status)
			require.Equal(t, http.StatusNotFound, c.status(t, "/nowhere"))

			t.Run("the server is ready when all services are", func(t *testing.T) {
				eventually(t, func() bool { return answers(t, a.URL()+"/readyz") == http.StatusOK }, "it is ready")
				_, body := read(t, a.URL()+"/readyz")
				var ready struct {
					Status string
					Checks map[string]string
				}
				require.NoError(t, json.Unmarshal([]byte(body), &ready))
				require.Equal(t, "ready", ready.Status)
				require.Equal(t, map[string]string{"server": "ok", "database": "ok", "migrations": "ok", "disk": "ok", "events": "ok", "bus": "ok", "agents": "ok"}, ready.Checks)
			})

			t.Run("metrics show requests, commits and pending work", func(t *testing.T) {
				text := ""
				eventually(t, func() bool { // the relay and the jobs catch up
					_, text = read(t, a.URL()+"/metrics")
					return !slices.ContainsFunc(operatorsLines(), func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") })
				}, strings.Join(operatorsLines(), "\n"))
				for _, name := range []string{"comet_store_commit_callers_count", "comet_store_commit_duration_seconds_count", "go_goroutines"} {
					require.Regexp(t, `(?m)^`+name+` [1-9]`, text)
				}
			})
		})
	}
}

func operatorsLines() []string {
	return []string{
		`comet_build_info{goversion="go1",revision="",version="v1.2.3"} 1`,
		`comet_http_requests_total{method="POST",route="/api/v1/agents",status="2xx"} 1`,
		`comet_http_requests_total{method="GET",route="unmatched",status="4xx"} 1`,
		`comet_http_request_duration_seconds_count{method="POST",route="/api/v1/agents"} 1`,
		`comet_http_requests_in_flight 1`, // this request
		`comet_store_writes_waiting 0`,
		`comet_events_unnumbered 0`,
		`comet_jobs_due 0`,
		`comet_webhook_attempt_duration_seconds_count{result="success"} 0`,
		`comet_webhook_attempt_duration_seconds_count{result="failure"} 0`,
	}
}
