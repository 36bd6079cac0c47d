// Package seal encrypts the secrets that comet must read back, such as those of webhooks, for their
// columns.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"comet/internal/errs"
)

// A sealed value is text: the prefix with the version of the format, the id of the key, a colon, and in
// base64 the nonce, the ciphertext and the tag of AES-256-GCM. The purpose is its associated data.
const (
	prefix   = "sealed:1:"
	keyBytes = 32
	idBytes  = 4
	// maxFile limits a file with keys.
	maxFile = 64 << 10
	// Setting names the setting of the file with the keys in errors.
	Setting = "--secret-key-file (COMET_SECRET_KEY_FILE)"
)

// Keyring holds the keys of sealed values: the first seals, all open. It is safe for concurrent use.
type Keyring struct{ keys []key }

type key struct {
	id   string // the beginning of its SHA-256, in hexadecimal
	aead cipher.AEAD
}

// NewKey returns a random key as a line of a file with keys.
func NewKey() string {
	random := make([]byte, keyBytes)
	_, _ = rand.Read(random) // never fails
	return base64.StdEncoding.EncodeToString(random)
}

// Load reads a file with one key of 32 bytes in base64 per line. It skips empty lines and those that
// begin with #. exposed reports whether other users of the machine can read the file.
func Load(path string) (ring *Keyring, exposed bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, fmt.Errorf("the secret key file cannot be read: %w; name another with %s", err, Setting)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, false, errs.New(errs.InvalidRequest, "the secret key file %s is not a file of at most %d KiB; name another with %s", path, maxFile>>10, Setting)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("the secret key file cannot be read: %w; name another with %s", err, Setting)
	}
	ring, err = Parse(string(content))
	if err != nil {
		return nil, false, errs.New(errs.InvalidRequest, "the secret key file %s cannot be used: %v; “openssl rand -base64 32” makes a key", path, err)
	}
	return ring, info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows", nil
}

// Parse returns the keys of the content of a file as Load does. Its errors contain no part of a key.
func Parse(content string) (*Keyring, error) {
	ring := &Keyring{}
	n := 0
	for line := range strings.Lines(content) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64", n)
		}
		if len(raw) != keyBytes {
			return nil, fmt.Errorf("the key on line %d has %d bytes instead of %d", n, len(raw), keyBytes)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		ring.keys = append(ring.keys, key{hex.EncodeToString(sum[:idBytes]), aead})
	}
	if len(ring.keys) == 0 {
		return nil, errors.New("it contains no key")
	}
	return ring, nil
}

// ID returns the id of the key that seals.
func (r *Keyring) ID() string { return r.keys[0].id }

// Seal encrypts a value. Only Open with the same purpose, such as the name of its column, decrypts it.
func (r *Keyring) Seal(purpose string, plain []byte) []byte {
	sealed := r.keys[0].aead.Seal(nil, nil, plain, []byte(purpose))
	return base64.RawStdEncoding.AppendEncode([]byte(r.Prefix()), sealed)
}

// Prefix returns the beginning of every value that Seal returns.
func (r *Keyring) Prefix() string { return prefix + r.ID() + ":" }

// IsSealed reports whether a value is sealed, with any key.
func IsSealed(value []byte) bool { return bytes.HasPrefix(value, []byte(prefix)) }

// Open decrypts a value that Seal has encrypted. Its errors name the purpose and the key, and what to do.
func (r *Keyring) Open(purpose string, sealed []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(prefix))
	id, text, cut := bytes.Cut(rest, []byte(":"))
	if !ok || !cut {
		return nil, fmt.Errorf("the secret %s is not sealed", purpose)
	}
	for _, k := range r.keys {
		if k.id != string(id) {
			continue
		}
		data, err := base64.RawStdEncoding.AppendDecode(nil, text)
		if err == nil {
			data, err = k.aead.Open(nil, nil, data, []byte(purpose))
		}
		if err != nil {
			return nil, fmt.Errorf("the secret %s is damaged or of another column: it cannot be decrypted with the key %s", purpose, id)
		}
		return data, nil
	}
	return nil, errs.New(errs.Conflict, "the secret %s is encrypted with the key %s, which the secret key file does not contain: name the file with it with %s", purpose, id, Setting)
}
