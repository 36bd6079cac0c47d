package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Options configures New; nil means defaults: an embedded server that other processes cannot reach.
type Options struct {
	// URL lists the NATS servers, separated by commas: nats://[user:password@]host:port, or
	// tls://. "" embeds a server.
	URL string
	// Credentials is a file with comet's identity, for a URL only: a .creds file (a JWT and its
	// seed) or an nkey seed. It is read at each connection.
	Credentials string
	// CAFile contains trusted certificate authorities in PEM. With a URL they verify the server,
	// and TLS is required; with Listen they verify clients, which must then show a certificate.
	CAFile string
	// CertFile and KeyFile are comet's own certificate and key in PEM, as a client of the URL or
	// as the listening server.
	CertFile, KeyFile string

	// Listen is a host:port at which the embedded server accepts agents; port 0 picks one, which
	// Addr returns. Default none. An agent may publish to its outbox and subscribe to its inbox,
	// nothing else.
	Listen string
	// Authenticate returns the agent of a token that an address sent, or an error. Each connection at Listen presents
	// a token as its token or password and may use that agent's subjects only. Without
	// Authenticate every client may use the subjects of every agent, so Listen must be a loopback
	// address. It must return within two seconds.
	Authenticate func(ctx context.Context, token string, client netip.Addr) (agent string, err error)
	// Recheck is how often the token of each connection is verified again, default 15 s. With
	// errs.Unauthenticated or errs.AgentInactive the connection is closed; after any other error
	// it stays.
	Recheck time.Duration

	// MaxPayload is the largest message in bytes, default 1 MiB. An external server may allow less.
	MaxPayload int
	// PendingMessages and PendingBytes limit the backlog of one subscription, default 4,096
	// messages and 8 MiB. Further messages are dropped, and OnGap reports it.
	PendingMessages, PendingBytes int
	// PublishBuffer is how many bytes are buffered while NATS is unreachable; default 4 MiB.
	// Further messages are refused.
	PublishBuffer int
	// Logger receives the loss and return of NATS; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.MaxPayload = cmp.Or(out.MaxPayload, 1<<20)
	out.PendingMessages = cmp.Or(out.PendingMessages, 4096)
	out.PendingBytes = cmp.Or(out.PendingBytes, 8<<20)
	out.PublishBuffer = cmp.Or(out.PublishBuffer, 4<<20)
	out.Recheck = cmp.Or(out.Recheck, 15*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// maxMaxPayload is the largest MaxPayload that NATS servers allow.
const maxMaxPayload = 64 << 20

// check returns all reasons why the options are invalid.
func (o *Options) check() error {
	var all []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Errorf("bus: "+format, args...))
		}
	}
	wrong(o.MaxPayload < 0 || o.MaxPayload > maxMaxPayload, "MaxPayload is %d, not between 1 and %d bytes", o.MaxPayload, maxMaxPayload)
	wrong(min(o.PendingMessages, o.PendingBytes, o.PublishBuffer) < 0 || o.Recheck < 0, "a limit is negative")
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

func (o *Options) urls() []string {
	return slices.DeleteFunc(strings.Split(o.URL, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// isServer validates one server of URL; an error could contain the password.
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

// checkFiles reads the files once, so that an invalid one is found before the start.
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

// identity returns comet's credentials for an external server and the authorities that verify it.
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
	if err != nil { // the error may contain the file's text
		return nil, fmt.Errorf("bus: Credentials %q is neither a .creds file nor an nkey's user seed", o.Credentials)
	}
	return append(all, nkey), nil
}

// serverTLS returns the TLS configuration of the embedded server, nil for none.
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
	// This is how the client library itself reads the file.
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
