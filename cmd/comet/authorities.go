package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
)

// trust adds the certificate authorities in a file to those that the clients of this program trust.
func trust(caFile string) error {
	if caFile == "" {
		return nil
	}
	pem, err := os.ReadFile(caFile)
	all, poolErr := x509.SystemCertPool()
	if err = cmp.Or(err, poolErr); err != nil {
		return usagef("the certificate authorities cannot be read: %w", err)
	}
	if !all.AppendCertsFromPEM(pem) {
		return usagef("the file %s contains no certificate in PEM", caFile)
	}
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.TLSClientConfig = &tls.Config{RootCAs: all, MinVersion: tls.VersionTLS12}
	}
	return nil
}
