package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Options configures New; nil is the zero value: an embedded server that no other
// process can reach.
type Options struct {
	// URL is where the NATS servers are, more than one separated by commas:
	// nats://[user:password@]host:port, or tls://. "" embeds a server.
	URL string
	// Credentials is a file that says who comet is, with a URL only: a .creds file (a
	// JWT and its seed) or an nkey's seed. It is read at each connection.
	Credentials string
	// CAFile holds, in PEM, the authorities whose certificates are believed. With a URL
	// they are the server's, and there is no connection without TLS; with Listen they
	// are those of the clients, which then must show one.
	CAFile string
	// CertFile and KeyFile are comet's own certificate and key in PEM: as a client of
	// the URL, or as the server that listens.
	CertFile, KeyFile string

	// Listen is a host:port at which the embedded server takes connections of agents;
	// port 0 picks one, which Addr tells. Default is none. An agent may publish to its
	// outbox and subscribe to its inbox, nothing else.
	Listen string
	// Authenticate returns the agent whose token it is, or an error. Each connection at
	// Listen shows one as its token or password, and can then use that agent's subjects
	// only. Without it whoever reaches the address may use those of every agent, so
	// Listen must be a loopback address. It must return within two seconds.
	Authenticate func(ctx context.Context, token string) (agent string, err error)
	// Recheck is how often Authenticate is asked again for each token that is connected,
	// default 15 s. Where its error is errs.Unauthenticated or errs.AgentInactive, the
	// connection is ended; with another error it stays.
	Recheck time.Duration

	// Name tells people who look at the NATS server whose connection it is; default
	// "comet".
	Name string
	// MaxPayload is the largest message in bytes, default 1 MiB. An external server may
	// allow less.
	MaxPayload int
	// PendingMessages and PendingBytes are how much of one subscription may wait for its
	// handler, default 4,096 messages and 8 MiB. What comes then is dropped, and OnGap
	// tells of it.
	PendingMessages, PendingBytes int
	// PublishBuffer is how many bytes are kept while NATS is away, to be sent when it is
	// back; default 4 MiB. What is published then is refused.
	PublishBuffer int
	// ConnectTimeout is how long one attempt to connect to one server may take, default
	// 2 s.
	ConnectTimeout time.Duration
	// Logger hears when NATS is away and when it is back; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Name = cmp.Or(out.Name, "comet")
	out.MaxPayload = cmp.Or(out.MaxPayload, 1<<20)
	out.PendingMessages = cmp.Or(out.PendingMessages, 4096)
	out.PendingBytes = cmp.Or(out.PendingBytes, 8<<20)
	out.PublishBuffer = cmp.Or(out.PublishBuffer, 4<<20)
	out.ConnectTimeout = cmp.Or(out.ConnectTimeout, 2*time.Second)
	out.Recheck = cmp.Or(out.Recheck, 15*time.Second)
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// maxMaxPayload is the largest MaxPayload that NATS servers allow.
const maxMaxPayload = 64 << 20

// check returns every reason why the options cannot be used.
func (o *Options) check() error {
	var all []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Errorf("bus: "+format, args...))
		}
	}
	wrong(o.MaxPayload < 0 || o.MaxPayload > maxMaxPayload, "MaxPayload is %d, not between 1 and %d bytes", o.MaxPayload, maxMaxPayload)
	wrong(min(o.PendingMessages, o.PendingBytes, o.PublishBuffer) < 0 || min(o.ConnectTimeout, o.Recheck) < 0, "a limit is negative")
	wrong(o.URL != "" && o.Listen != "", "Listen is for the embedded server, and URL names another one")
	wrong(o.URL == "" && o.Credentials != "", "Credentials are for a server that URL names")
	wrong(o.URL == "" && o.Listen == "" && o.CAFile+o.CertFile+o.KeyFile != "", "CAFile, CertFile and KeyFile are for URL or Listen")
	wrong((o.CertFile == "") != (o.KeyFile == ""), "CertFile and KeyFile belong together")
	wrong(o.Listen != "" && o.CAFile != "" && o.CertFile == "", "with Listen, CAFile needs CertFile and KeyFile")
	for i, text := range o.urls() {
		wrong(!isServer(text), "server %d of URL is not of the form nats://host:port or tls://host:port", i+1)
	}
	wrong(o.URL != "" && len(o.urls()) == 0, "URL names no server")
	if o.Listen != "" {
		all = append(all, o.checkListen())
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	return o.checkFiles()
}

// urls are the servers of URL.
func (o *Options) urls() []string {
	return slices.DeleteFunc(strings.Split(o.URL, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// isServer judges one server of URL; an error of it might show the password.
func isServer(text string) bool {
	u, err := url.Parse(strings.TrimSpace(text))
	return err == nil && slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) && u.Hostname() != "" &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}

func (o *Options) checkListen() error {
	host, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("bus: Listen %q is not of the form host:port: %w", o.Listen, err)
	}
	if ip := net.ParseIP(host); o.Authenticate == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("bus: Listen %q lets others read every agent's inbox; without Authenticate it must be a loopback address", o.Listen)
	}
	return nil
}

// checkFiles reads the files once, so that a wrong one is found before anything starts.
func (o *Options) checkFiles() error {
	if o.Listen != "" {
		_, err := o.serverTLS()
		return err
	}
	all, err := o.identity()
	if err != nil {
		return err
	}
	var trial nats.Options
	for _, set := range all {
		if err := set(&trial); err != nil {
			return fmt.Errorf("bus: %w", err)
		}
	}
	return nil
}

// identity is who we are to an external server, and whom we believe to be one.
func (o *Options) identity() ([]nats.Option, error) {
	var all []nats.Option
	if o.CAFile != "" {
		all = append(all, nats.RootCAs(o.CAFile))
	}
	if o.CertFile != "" {
		all = append(all, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	if o.Credentials == "" {
		return all, nil
	}
	text, err := os.ReadFile(o.Credentials)
	if err != nil {
		return nil, fmt.Errorf("bus: read Credentials: %w", err)
	}
	if strings.Contains(string(text), "BEGIN NATS USER JWT") {
		return append(all, nats.UserCredentials(o.Credentials)), nil
	}
	nkey, err := nats.NkeyOptionFromSeed(o.Credentials)
	if err != nil { // it may hold the file's text
		return nil, fmt.Errorf("bus: Credentials %q is neither a .creds file nor an nkey's user seed", o.Credentials)
	}
	return append(all, nkey), nil
}

// serverTLS is how the embedded server listens, nil for without TLS.
func (o *Options) serverTLS() (*tls.Config, error) {
	if o.CertFile == "" {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("bus: CertFile and KeyFile: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if o.CAFile == "" {
		return cfg, nil
	}
	// The client library's own way to read the file.
	trial := nats.Options{}
	if err := nats.RootCAs(o.CAFile)(&trial); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	if cfg.ClientCAs, err = trial.RootCAsCB(); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}
