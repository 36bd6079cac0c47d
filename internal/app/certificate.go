package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"comet/internal/config"
)

// certificate is the certificate of a listener. It is read again when its files have changed.
type certificate struct {
	files config.TLS
	log   *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	version string    // of the files when they were last read
	retry   time.Time // when to read them again after a failure
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
		return fmt.Errorf("the certificate of --tls-cert and --tls-key cannot be used: %w", err)
	}
	c.current = &pair
	return nil
}

// get is tls.Config.GetCertificate. While changed files cannot be used, the previous certificate stays in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versionOfFiles() != c.version || !c.retry.IsZero() && time.Now().After(c.retry) {
		c.retry = time.Time{}
		if err := c.read(); err != nil {
			c.retry = time.Now().Add(time.Minute)
			c.log.Warn("the previous TLS certificate stays in use", "error", err)
		} else {
			c.log.Info("the TLS certificate was replaced", "expires", c.current.Leaf.NotAfter)
		}
	}
	return c.current, nil
}

// versionOfFiles returns a text that changes when the files change.
func (c *certificate) versionOfFiles() (version string) {
	for _, path := range []string{c.files.CertFile, c.files.KeyFile} {
		if info, err := os.Stat(path); err == nil {
			version += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
		}
	}
	return version
}
