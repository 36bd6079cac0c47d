package agent

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"comet/internal/wire/v5"
)

// signer signs lines (PROTOCOL_V5 §11). The server takes a line that is signed once, also on
// another connection, so each gets a number of its own when it is sent, and not when it is
// written: what is said again is another line.
type signer struct {
	key  []byte
	last atomic.Int64
	// mutual is that the server has signed what it said: it goes on doing so.
	mutual atomic.Bool
}

// newSigner returns nil where there is no key.
func newSigner(key string) *signer {
	if key == "" {
		return nil
	}
	s := &signer{key: []byte(key)}
	s.last.Store(mrand.Int64N(v5.MaxNumber)) //nolint:gosec // a number to begin with
	return s
}

// sign returns a line with the next number and a signature; a nil signer returns it as it is.
// A heartbeat says the time too: within a day there are more of them than numbers.
func (s *signer) sign(text string) (string, error) {
	if s == nil {
		return text, nil
	}
	m, err := v5.Parse(text)
	if err != nil {
		return "", err
	}
	m.Number = int(s.last.Add(1)%v5.MaxNumber) + 1
	if m.Type == v5.Heartbeat || m.Type == v5.Join {
		m.Data += v5.Data(";at=" + strconv.FormatInt(time.Now().UnixMilli(), 10))
	}
	if text, err = v5.Format(m); err != nil {
		return "", err
	}
	return s.seal(text, m.Context)
}

// seal signs a line as it is.
func (s *signer) seal(text, session string) (string, error) {
	nonce := make([]byte, 2)
	_, _ = rand.Read(nonce) // never fails; it ends the program where there is no randomness
	return v5.Sign(text, s.key, cmp.Or(session, v5.SystemContext), hex.EncodeToString(nonce))
}

// verify returns an error for a line of the server's that is not to be acted upon: one with a
// signature that is not the key's, or that is about another session than it says, and once
// the server has signed, which it does where the key is required, one without. Only an E may
// be, since it may answer what the server does not know to be the agent's.
func (s *signer) verify(text string, m v5.Message) error {
	if s == nil {
		return nil
	}
	err := v5.Verify(text, s.key)
	var refused *v5.Error
	switch {
	case err == nil && m.Auth.Session != cmp.Or(m.Context, v5.SystemContext):
		return errors.New("the server's signature is that of another session")
	case err == nil:
		s.mutual.Store(true)
		return nil
	case errors.As(err, &refused) && refused.Reason() == v5.ReasonUnsigned:
		if s.mutual.Load() && m.Type != v5.Failure {
			return errors.New("the server signs, and this is not signed")
		}
		return nil
	}
	return fmt.Errorf("the server's signature is not that of the key: %w", err)
}
