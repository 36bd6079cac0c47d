package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"golang.org/x/net/netutil"

	"comet/internal/config"
	"comet/internal/errs"
	"comet/internal/httpkit"
)

// httpServer is a listener and its HTTP server as one service.
type httpServer struct {
	srv   *http.Server
	log   *slog.Logger
	flag  string // names the address in errors
	addr  string
	tls   bool
	delay time.Duration
	// connections limits the open connections.
	connections int
	listener    net.Listener
	draining    atomic.Bool
	served      chan struct{} // closed when Serve has returned
	failed      chan error    // receives the error with which Serve failed
}

func newHTTPServer(cfg config.Config, flag, addr string, log *slog.Logger, handler http.Handler) *httpServer {
	s := &httpServer{log: log, flag: flag, addr: addr, delay: cfg.HTTP.DrainDelay, connections: cfg.HTTP.MaxConnections, served: make(chan struct{}), failed: make(chan error, 1)}
	s.srv = &http.Server{
		Handler:           s.closeWhileDraining(handler),
		ReadHeaderTimeout: 10 * time.Second,
		// It also limits bodies that no handler reads: the server waits for them before it responds.
		ReadTimeout:    cfg.HTTP.RequestTimeout + 5*time.Second,
		WriteTimeout:   cfg.HTTP.RequestTimeout + 30*time.Second, // for clients that read slowly
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	s.srv.ErrorLog.SetOutput(serverLog{log})
	s.srv.Protocols = new(http.Protocols)
	s.srv.Protocols.SetHTTP1(true) // HTTP/2 resets a stream when its write deadline passes, even an idle one
	return s
}

// metricsHandler serves the metrics, and the health checks of the API.
func metricsHandler(metrics, api http.Handler) http.Handler {
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", metrics)
	routes.Handle("/healthz", api)
	routes.Handle("/readyz", api)
	return routes
}

// debugHandler serves profiles and metrics to admins.
func debugHandler(authenticator *httpkit.Authenticator, metrics http.Handler) http.Handler {
	routes := chi.NewRouter()
	routes.Mount("/debug", middleware.Profiler())
	routes.Handle("/metrics", metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, err := authenticator.Authenticate(w, r)
		const required = "the request requires a token with the scope admin for the whole system"
		switch {
		case err == nil && identity.Administers():
			routes.ServeHTTP(w, r)
		case err == nil:
			http.Error(w, required, http.StatusForbidden)
		case errs.Is(err, errs.Unauthenticated):
			http.Error(w, required, http.StatusUnauthorized)
		default:
			http.Error(w, "the token cannot be verified", http.StatusServiceUnavailable)
		}
	})
}

// serverLog logs what net/http reports: failures to accept connections, such as too many open files,
// as warnings, and failures of single clients at debug level.
type serverLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	level, text := slog.LevelDebug, strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "http: Accept error") {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, text)
	return len(line), nil
}

// closeWhileDraining closes the connection after each response of a draining server, so that no
// client sends another request over it.
func (s *httpServer) closeWhileDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Start implements background.Service.
func (s *httpServer) Start(ctx context.Context) error {
	if s.listener != nil {
		return nil
	}
	l, err := listen(ctx, s.addr, s.flag)
	if err != nil {
		return err
	}
	s.listener = netutil.LimitListener(l, s.connections)
	go func() {
		defer close(s.served)
		serve := s.srv.Serve
		if s.tls {
			serve = func(l net.Listener) error { return s.srv.ServeTLS(l, "", "") }
		}
		if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	return nil
}

// listen listens on the address that a flag sets.
func listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		err = fmt.Errorf("%w; choose another address with %s, port 0 picks a free one", err, flag)
	}
	return l, err
}

// Stop implements background.Service. The server becomes not ready, serves requests for the drain
// delay, closes the listener and waits for the requests in flight. After three quarters of the
// time until ctx's deadline it closes their connections: a client that never sends the rest of its
// request must not delay the stop, and the services that stop later need time, too.
func (s *httpServer) Stop(ctx context.Context) error {
	s.draining.Store(true)
	if s.listener == nil {
		return nil
	}
	select {
	case <-time.After(s.delay):
	case <-s.served:
	case <-ctx.Done():
	}
	graceful, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		graceful, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
	}
	defer cancel()
	err := s.srv.Shutdown(graceful)
	if err != nil {
		s.log.Warn("requests did not end in time; their connections are closed", "error", err)
		err = s.srv.Close()
	}
	<-s.served
	return err
}

// url returns the URL of the server for clients on this machine.
func (s *httpServer) url() string {
	return LocalURL(s.listener.Addr().String(), s.tls)
}

// LocalURL returns the URL of a listener's address for clients on this machine.
func LocalURL(address string, secure bool) string {
	host, port, _ := net.SplitHostPort(address) // a listener's address and a configured one are valid
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return map[bool]string{false: "http://", true: "https://"}[secure] + net.JoinHostPort(host, port)
}
