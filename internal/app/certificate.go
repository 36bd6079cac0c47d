package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"comet/internal/config"
)

// certificate is the certificate of a listener. It is read again when its files have changed.
type certificate struct {
	files config.TLS
	log   *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	version string // of the files when they were last read, "" after a failure
	failure string // the last one that was logged, "" after a success
}

// newTLSConfig returns the TLS configuration of a listener, nil if no certificate is configured.
func newTLSConfig(files config.TLS, log *slog.Logger) (*tls.Config, error) {
	if files.CertFile == "" {
		return nil, nil
	}
	c := &certificate{files: files, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// read reads the files. The caller holds mu or is the only user.
func (c *certificate) read() error {
	c.version = c.versionOfFiles() // before the files, so that a later change is noticed
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		c.version = "" // permissions may change, which the version does not show
		return fmt.Errorf("the certificate of --tls-cert and --tls-key cannot be used: %w", err)
	}
	c.current = &pair
	return nil
}

// get is tls.Config.GetCertificate. While changed files cannot be used, the previous certificate stays in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versionOfFiles() == c.version {
		return c.current, nil
	}
	switch err := c.read(); {
	case err == nil:
		c.failure = ""
		c.log.Info("the TLS certificate was replaced", "expires", c.current.Leaf.NotAfter)
	case err.Error() != c.failure:
		c.failure = err.Error()
		c.log.Warn("the previous TLS certificate stays in use", "error", err)
	}
	return c.current, nil
}

// versionOfFiles returns a text that changes when the files change, "" if they do not exist.
func (c *certificate) versionOfFiles() (version string) {
	for _, path := range []string{c.files.CertFile, c.files.KeyFile} {
		if info, err := os.Stat(path); err == nil {
			version += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
		}
	}
	return version
}
