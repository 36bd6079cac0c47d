package app

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocalURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:8080":   "http://127.0.0.1:8080",
		"192.168.1.7:8080": "http://192.168.1.7:8080",
		"[::1]:8080":       "http://[::1]:8080",
		":8080":            "http://127.0.0.1:8080", // as it can be configured
		"0.0.0.0:8080":     "http://127.0.0.1:8080", // as Go names an IPv4 listener on every address
		"[::]:8080":        "http://127.0.0.1:8080", // and one for both families
	} {
		require.Equal(t, want, LocalURL(address))
	}
}
