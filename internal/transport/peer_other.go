//go:build !linux

package transport

import "errors"

// peerUser returns an error: this system does not report the user id.
func peerUser(int) (uint32, error) { return 0, errors.ErrUnsupported }
