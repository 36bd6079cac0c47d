package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"comet/internal/config"
	"comet/internal/errs"
)

// httpServer is the listener and the server behind it, as one service.
type httpServer struct {
	srv      *http.Server
	log      *slog.Logger
	addr     string
	delay    time.Duration
	listener net.Listener
	draining atomic.Bool
	served   chan struct{} // closed when Serve has returned
	failed   chan error    // receives why Serve returned by itself
}

func newHTTPServer(cfg config.Config, log *slog.Logger, door http.Handler) *httpServer {
	s := &httpServer{log: log, addr: cfg.Listen, delay: cfg.HTTP.DrainDelay, served: make(chan struct{}), failed: make(chan error, 1)}
	s.srv = &http.Server{
		Handler:           s.lastAnswers(door),
		ReadHeaderTimeout: 10 * time.Second,
		// Also for bodies nobody reads: the server waits for them before it answers.
		ReadTimeout:    cfg.HTTP.RequestTimeout + 5*time.Second,
		WriteTimeout:   cfg.HTTP.RequestTimeout + 30*time.Second, // for clients that read slowly
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s
}

// lastAnswers asks the clients of a draining server to come back on another
// connection, so that none is cut while a request is on its way.
func (s *httpServer) lastAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Start implements lifecycle.Service.
func (s *httpServer) Start(ctx context.Context) error {
	if s.listener != nil {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen, port 0 picks a free one", s.addr, err)
	}
	s.listener = l
	go func() {
		defer close(s.served)
		if err := s.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	}()
	return nil
}

// Stop implements lifecycle.Service: the server says that it is not ready, takes
// requests for the drain delay, closes the listener and waits for the requests in
// flight. Those that have not ended after three quarters of ctx's time are cut
// off: a client that never sends the rest of its request must not keep the
// server, and what stops after it needs time too.
func (s *httpServer) Stop(ctx context.Context) error {
	s.draining.Store(true)
	if s.listener == nil {
		return nil
	}
	turned := time.NewTimer(s.delay)
	defer turned.Stop()
	select {
	case <-turned.C:
	case <-s.served:
	case <-ctx.Done():
	}
	patience, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		patience, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
	}
	defer cancel()
	err := s.srv.Shutdown(patience)
	if err != nil {
		s.log.Warn("requests were cut off", "error", err)
		err = s.srv.Close()
	}
	<-s.served
	return err
}

// ready is what /readyz asks of it.
func (s *httpServer) ready(context.Context) error {
	if s.draining.Load() {
		return errs.New(errs.Unavailable, "shutting down")
	}
	return nil
}

// url is where a client on this machine finds the server.
func (s *httpServer) url() string { return localURL(s.listener.Addr().String()) }

// localURL is where something that listens on an address is found from the same
// machine.
func localURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
