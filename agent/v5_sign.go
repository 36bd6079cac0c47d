package agent

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mrand "math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"comet/internal/wire/pipe"
)

// signer signs lines (PROTOCOL_V5 §11). The server takes a line that is signed once, also on
// another connection, so each gets a number of its own when it is sent, and not when it is
// written: what is said again is another line.
type signer struct {
	key  []byte
	last atomic.Int64
}

// newSigner returns nil where there is no key.
func newSigner(key string) *signer {
	if key == "" {
		return nil
	}
	s := &signer{key: []byte(key)}
	s.last.Store(mrand.Int64N(pipe.MaxNumber)) //nolint:gosec // a number to begin with
	return s
}

// sign returns a line with the next number and a signature; a nil signer returns it as it is.
// A heartbeat says the time too: within a day there are more of them than numbers.
func (s *signer) sign(text string) (string, error) {
	if s == nil {
		return text, nil
	}
	m, err := pipe.Parse(text)
	if err != nil {
		return "", err
	}
	m.Number = int(s.last.Add(1)%pipe.MaxNumber) + 1
	if m.Type == pipe.Heartbeat || m.Type == pipe.Join {
		m.Data += pipe.Data(";at=" + strconv.FormatInt(time.Now().UnixMilli(), 10))
	}
	if text, err = pipe.Format(m); err != nil {
		return "", err
	}
	return s.seal(text, m.Context)
}

// seal signs a line as it is.
func (s *signer) seal(text, session string) (string, error) {
	nonce := make([]byte, 2)
	_, _ = rand.Read(nonce) // never fails; it ends the program where there is no randomness
	return pipe.Sign(text, s.key, cmp.Or(session, pipe.SystemContext), hex.EncodeToString(nonce))
}

// verify returns an error for a line that has a signature which is not the key's. The server
// signs where the key is required.
func (s *signer) verify(text string) error {
	if s == nil {
		return nil
	}
	err := pipe.Verify(text, s.key)
	var refused *pipe.Error
	if errors.As(err, &refused) && refused.Reason() == pipe.ReasonUnsigned {
		return nil
	}
	return err
}
