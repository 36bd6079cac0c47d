package api

import (
	"context"
	"net/http"
	"time"

	"comet/internal/errs"
)

// readyWithin bounds the checks of /readyz.
const readyWithin = 3 * time.Second

// healthStatus says how the server is.
type healthStatus struct {
	Status string            `json:"status" example:"ready" enums:"alive,ready"`
	Checks map[string]string `json:"checks,omitempty"` // What was checked, by name.
}

// health says that the process is alive.
//
//	@Summary		Is the process alive
//	@Description	Answers without asking anything else. A process that does not answer should be restarted.
//	@ID				getHealth
//	@Tags			service
//	@Produce		json
//	@Security
//	@Success		200	{object}	healthStatus	"Alive"
//	@Header			200	{string}	ETag
//	@Router			/healthz [get]
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, r, http.StatusOK, healthStatus{Status: "alive"})
}

// ready says whether requests should be sent here.
//
//	@Summary		Is the server ready
//	@Description	Checks the database, its migrations and the event relay. A server that is shutting down is not ready.
//	@ID				getReadiness
//	@Tags			service
//	@Produce		json
//	@Security
//	@Success		200	{object}	healthStatus	"Ready"
//	@Header			200	{string}	ETag
//	@Failure		503	{object}	Problem			"Not ready; `checks` says what is missing"
//	@Router			/readyz [get]
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	checks, failed := map[string]string{}, ""
	for name, check := range s.opts.Checks {
		checks[name] = "ok"
		if err := check(ctx); err != nil {
			checks[name], failed = errs.From(err).Detail, name
			s.log.WarnContext(r.Context(), "not ready", "check", name, "error", err)
		}
	}
	if failed != "" {
		w.Header().Set("Connection", "close") // to ask another server the next time
		return errs.New(errs.Unavailable, "the server is not ready").With("checks", checks)
	}
	return s.writeJSON(w, r, http.StatusOK, healthStatus{"ready", checks})
}

// metrics serves the Prometheus metrics.
//
//	@Summary		Metrics
//	@Description	Prometheus text format.
//	@ID				getMetrics
//	@Tags			service
//	@Produce		plain
//	@Security
//	@Success		200	{string}	string	"The metrics"
//	@Router			/metrics [get]
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) { s.opts.Metrics.ServeHTTP(w, r) }
