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
	"fmt"
	"os"
	"runtime"
	"strings"

	"comet/internal/errs"
)

// A sealed value is text: the prefix, the id of the key, a colon, and in base64 the nonce, the
// ciphertext and the tag of AES-256-GCM. The purpose is the associated data.
const (
	prefix   = "sealed:1:" // with the version of the format
	keyBytes = 32
	idBytes  = 4
	maxFile  = 64 << 10
)

// Columns returns the sealed columns, which are columns of bytes, and for each the column that identifies
// a row together with the value. Their names are the purposes.
func Columns() map[string]string {
	return map[string]string{
		"agent_keys.secret": "agent_id", "push_targets.secret": "agent_id", "remote_agents.secret": "agent_id", "secret_keys.sealed": "id", "service_keys.seed": "key_id",
		"upstream_authorizations.sealed": "state", "upstream_credentials.sealed": "upstream_id",
		"webhooks.headers": "id", "webhooks.previous_keys": "id", "webhooks.secret": "id", "webhooks.signing_key": "id",
	}
}

// Keyring holds the keys of sealed values: the first one seals, every key opens. It is safe for concurrent use. A
// nil Keyring does not encrypt.
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

// Load reads a file with one key of 32 bytes in base64 per line. exposed reports whether other users of
// the machine can read the file. Errors contain no part of a key.
func Load(path string) (ring *Keyring, exposed bool, err error) {
	var content []byte
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = fmt.Errorf("it is not a file of at most %d bytes", maxFile)
	} else if err == nil {
		content, err = os.ReadFile(path)
	}
	if err == nil {
		ring, err = Parse(string(content))
	}
	if err != nil {
		return nil, false, errs.Wrap(errs.InvalidRequest, err, "the secret key file %s cannot be used: %v; name another with --secret-key-file (COMET_SECRET_KEY_FILE)", path, err)
	}
	return ring, info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows", nil
}

// Parse returns the keys of the content of a file that Load reads. It skips empty lines and those that
// begin with #.
func Parse(content string) (*Keyring, error) {
	ring := &Keyring{}
	for i, line := range strings.Split(content, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != keyBytes {
			return nil, fmt.Errorf("line %d is not a key of %d bytes in base64, as “openssl rand -base64 %d” prints it", i+1, keyBytes, keyBytes)
		}
		block, _ := aes.NewCipher(raw)                   // fails only for other lengths
		aead, err := cipher.NewGCMWithRandomNonce(block) // fails only for other ciphers
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(raw)
		ring.keys = append(ring.keys, key{fmt.Sprintf("%x", sum[:idBytes]), aead})
	}
	if len(ring.keys) == 0 {
		return nil, fmt.Errorf("it contains no key")
	}
	return ring, nil
}

// Prefix returns the beginning of every value that Seal returns.
func (r *Keyring) Prefix() []byte { return []byte(prefix + r.keys[0].id + ":") }

// Seal encrypts a value that is not empty. Only Open with the same purpose decrypts it.
func (r *Keyring) Seal(purpose string, plain []byte) []byte {
	if r == nil || len(plain) == 0 {
		return plain
	}
	return base64.RawStdEncoding.AppendEncode(r.Prefix(), r.keys[0].aead.Seal(nil, nil, plain, []byte(purpose)))
}

// Open decrypts a value that Seal has encrypted. It returns any other value, which an earlier program may
// have stored, as it is.
func (r *Keyring) Open(purpose string, sealed []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(prefix))
	if !ok || r == nil {
		return sealed, nil
	}
	id, text, _ := bytes.Cut(rest, []byte(":"))
	for _, k := range r.keys {
		if k.id == string(id) {
			data, _ := base64.RawStdEncoding.AppendDecode(nil, text)
			if data, err := k.aead.Open(nil, nil, data, []byte(purpose)); err == nil {
				return data, nil
			}
			return nil, fmt.Errorf("the secret %s is damaged or belongs to another column: the key %s does not decrypt it", purpose, id)
		}
	}
	return nil, errs.New(errs.Conflict, "the database has a secret (%s) that is encrypted with the key %s, which this server does not have: "+
		"name the file that contains it with --secret-key-file (COMET_SECRET_KEY_FILE); all replicas use the same file", purpose, id)
}
