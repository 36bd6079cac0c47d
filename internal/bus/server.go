package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"comet/internal/background"
)

const (
	// startTimeout allows for a very busy machine.
	startTimeout = 10 * time.Second
	// clientBacklog is how many bytes may be queued for an agent that does not read; then its
	// connection is closed.
	clientBacklog = 16 << 20
)

// server is a NATS server in this process.
type server struct {
	nats *natsserver.Server
	// secret authenticates our own connection.
	secret string
	// watch verifies the connections of agents.
	watch *background.Loop
}

// startServer returns a server that accepts connections.
func startServer(ctx context.Context, o *Options) (*server, error) {
	s := &server{secret: rand.Text()}
	settings, err := s.settings(o)
	if err != nil {
		return nil, err
	}
	if s.nats, err = natsserver.NewServer(settings); err != nil {
		return nil, fmt.Errorf("the embedded NATS server: %w", err)
	}
	log := &serverLog{log: o.Logger.With("part", "nats")}
	s.nats.SetLoggerV2(log, false, false, false)
	s.nats.Start()
	if err := log.fatal(); err != nil {
		return nil, errors.Join(fmt.Errorf("the embedded NATS server: %w", err), s.stop(ctx))
	}
	if !s.nats.ReadyForConnections(startTimeout) {
		return nil, errors.Join(errors.New("the embedded NATS server does not start"), s.stop(ctx))
	}
	if auth, ok := settings.CustomClientAuthentication.(*agentAuth); ok && o.Authenticate != nil {
		s.watch = background.NewLoop(background.NewPollLoop(background.PollOptions{}, func(ctx context.Context) (time.Duration, error) {
			auth.verifyAll(ctx, s.nats)
			return o.Recheck, nil
		}).Run)
		if err := s.watch.Start(ctx); err != nil {
			return nil, errors.Join(err, s.stop(ctx))
		}
	}
	return s, nil
}

func (s *server) settings(o *Options) (*natsserver.Options, error) {
	settings := &natsserver.Options{
		NoSigs: true, NoLog: true, NoSystemAccount: true,
		DontListen: o.Listen == "",
		MaxPayload: int32(o.MaxPayload), //nolint:gosec // check has bounded it
	}
	if o.Listen == "" {
		return settings, nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	settings.Port = cmp.Or(int(number), natsserver.RANDOM_PORT)
	settings.Host = host
	settings.MaxPending = clientBacklog
	settings.CustomClientAuthentication = &agentAuth{secret: s.secret, authenticate: o.Authenticate, log: o.Logger, connections: map[uint64]agentConn{}}
	settings.AuthTimeout = 2 * authTimeout.Seconds()
	settings.TLSConfig, err = o.serverTLS()
	settings.TLSTimeout = authTimeout.Seconds()
	return settings, err
}

// stop ends the server. It may be repeated.
func (s *server) stop(ctx context.Context) error {
	if s.watch != nil {
		if err := s.watch.Stop(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	shutDown := func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
	atLeast, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if background.WaitFor(atLeast, shutDown) == nil { // ctx may have ended while other services stopped
		return nil
	}
	if err := background.WaitFor(ctx, shutDown); err != nil {
		return fmt.Errorf("the embedded NATS server: %w", err)
	}
	return nil
}

// serverLog receives the embedded server's log. The server's notices are logged at debug level.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	first error
}

// fatal returns why the server cannot run, nil if it can.
func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *serverLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }

// Fatalf keeps the error for Start; by default the server would end the program.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf(format, v...)
	}
}
