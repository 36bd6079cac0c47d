package bustest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
)

// ServeIfAsked makes this process a NATS server if Start has started it as one. It returns true
// when the server has ended; TestMain then returns at once.
func ServeIfAsked() bool {
	text, asked := os.LookupEnv(variable)
	if !asked {
		return false
	}
	if err := serve(text); err != nil {
		fmt.Println("failed:", err)
	}
	return true
}

// serve runs a server until its parent process ends it, or ends.
func serve(text string) error {
	var settings Settings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return err
	}
	opts, err := settings.options()
	if err != nil {
		return err
	}
	if err := awaitPort(opts); err != nil {
		return err
	}
	s, err := natsserver.NewServer(opts)
	if err != nil {
		return err
	}
	if settings.Account != "" {
		claims, err := jwt.DecodeAccountClaims(settings.Account)
		if err != nil {
			return err
		}
		if err := s.AccountResolver().Store(claims.Subject, settings.Account); err != nil {
			return err
		}
	}
	s.Start()
	if !s.ReadyForConnections(long) {
		return fmt.Errorf("not ready after %s", long)
	}
	fmt.Println("ready", s.Addr().(*net.TCPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (s *Settings) options() (*natsserver.Options, error) {
	opts := &natsserver.Options{
		Host: "127.0.0.1", Port: s.Port, NoSigs: true, NoLog: true,
		Username: s.User, Password: s.Password, MaxPayload: int32(s.MaxPayload),
	}
	if s.Port == 0 {
		opts.Port = natsserver.RANDOM_PORT
	}
	if s.Nkey != "" {
		opts.Nkeys = []*natsserver.NkeyUser{{Nkey: s.Nkey}}
	}
	if s.Operator != "" {
		claims, err := jwt.DecodeOperatorClaims(s.Operator)
		if err != nil {
			return nil, err
		}
		opts.TrustedOperators = []*jwt.OperatorClaims{claims}
		opts.AccountResolver = &natsserver.MemAccResolver{}
	}
	if s.Cert == "" {
		return opts, nil
	}
	var err error
	opts.TLSConfig, err = natsserver.GenTLSConfig(&natsserver.TLSConfigOpts{
		CertFile: s.Cert, KeyFile: s.Key, CaFile: s.CA, Verify: s.CA != "", MinVersion: tls.VersionTLS12,
	})
	opts.TLSTimeout = long.Seconds()
	return opts, err
}

// awaitPort waits until the previous server's port is free.
func awaitPort(opts *natsserver.Options) error {
	if opts.Port == natsserver.RANDOM_PORT {
		return nil
	}
	end := time.Now().Add(long)
	for {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(opts.Host, fmt.Sprint(opts.Port)))
		if err == nil {
			return l.Close()
		}
		if time.Now().After(end) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}
