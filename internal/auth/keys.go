package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
	"comet/store/signatures"
)

// replayWindow is how long a signed message is remembered by default.
const replayWindow = 24 * time.Hour

// Keys stores agents' keys and the signed messages that were accepted. Keys of hmac-sha256 are
// stored in clear, because a signature cannot be computed from a hash; of a key pair of ed25519 only
// the public key is stored. It is safe for concurrent use.
type Keys struct {
	store  *store.Store
	clock  func() time.Time
	window time.Duration
	read   *lru.Cache[keyID, reading]
	// changes counts changes of keys here. A look-up that began before one is not cached.
	changes atomic.Int64
}

type keyID struct{ agentID, algorithm string }

// reading is a key as read, the zero AgentKey for an agent without one.
type reading struct {
	key   models.AgentKey
	until time.Time // on the monotonic clock
}

// KeysOptions configures NewKeys; nil means defaults.
type KeysOptions struct {
	// Clock ages cached keys, default time.Now.
	Clock func() time.Time
	// Window is how long a signed message is refused again, default 24 h.
	Window time.Duration
}

// NewKeys returns the keys of the store.
func NewKeys(s *store.Store, opts *KeysOptions) *Keys {
	cache, _ := lru.New[keyID, reading](cacheSize) // New fails only for a size below 1
	o := cmp.Or(opts, &KeysOptions{})
	k := &Keys{store: s, read: cache, clock: o.Clock, window: cmp.Or(max(o.Window, 0), replayWindow)}
	if k.clock == nil {
		k.clock = time.Now
	}
	return k
}

// Signing returns the key of an algorithm with which an agent signs, the zero AgentKey for none. A
// change takes effect at once on this replica and within a second on others.
func (k *Keys) Signing(ctx context.Context, agentID, algorithm string) (models.AgentKey, error) {
	id, begun := keyID{agentID, algorithm}, k.clock()
	if r, ok := k.read.Get(id); ok && begun.Before(r.until) {
		return r.key, nil
	}
	seen := k.changes.Load()
	key, err := k.store.Tokens(ctx).AgentKey(agentID, algorithm)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return models.AgentKey{}, err
	}
	if k.changes.Load() == seen {
		k.read.Add(id, reading{key, begun.Add(verifyFor)})
		if k.changes.Load() != seen { // changed between the check and the insert
			k.read.Remove(id)
		}
	}
	return key, nil
}

// forget removes an agent's key from the cache after a committed change.
func (k *Keys) forget(id keyID) {
	k.changes.Add(1)
	k.read.Remove(id)
}

// Get returns an agent's key without its secret, or errs.NotFound.
func (k *Keys) Get(ctx context.Context, agentID, algorithm string) (models.AgentKey, error) {
	key, err := k.store.Tokens(ctx).AgentKey(agentID, algorithm)
	return shown(key), err
}

func shown(key models.AgentKey) models.AgentKey {
	key.Fingerprint = fingerprint(key)
	key.Secret = ""
	return key
}

// IssuedKey is a key that was generated or imported.
type IssuedKey struct {
	Key models.AgentKey
	// Secret is a generated key, which is shown once, "" for an imported one.
	Secret string
	// First says that the agent had no key before.
	First bool
}

// Issue gives an agent a key, which replaces an earlier one of the same algorithm: an imported key
// or, for hmac-sha256, 256 random bits as hex. It returns errs.NotFound for an unknown agent, and
// errs.InvalidRequest for an invalid key.
func (k *Keys) Issue(ctx context.Context, by models.Principal, agentID string, d AgentKeyDraft) (out IssuedKey, err error) {
	key := models.AgentKey{AgentID: agentID, Algorithm: d.Algorithm, CreatedBy: by.Name}
	switch {
	case d.Algorithm == Ed25519:
		key.PublicKey, err = publicKey(d.Key)
	case d.Key != nil:
		key.Algorithm, key.Secret, err = HMACSHA256, *d.Key, checkKey(*d.Key)
	default:
		out.Secret = randomHex(32)
		key.Algorithm, key.Secret = HMACSHA256, out.Secret
	}
	if err != nil {
		return out, err
	}
	err = k.change(ctx, keyID{agentID, key.Algorithm}, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		out.First = before == models.AgentKey{}
		after := key
		after.Required, after.CreatedAt = before.Required, tx.Now()
		if d.Required != nil {
			after.Required = *d.Required
		}
		out.Key = shown(after)
		return record(ctx, tx, by, agent, before, after, models.AuditKeyIssued)
	})
	if err != nil {
		return IssuedKey{}, err
	}
	return out, nil
}

// Require sets whether every message of an agent must be signed with its key of an algorithm, and
// returns the key without the secret, or errs.NotFound.
func (k *Keys) Require(ctx context.Context, by models.Principal, agentID, algorithm string, d AgentKeyChange) (out models.AgentKey, err error) {
	v := input.Validate(d)
	if err := v.Err(); err != nil {
		return out, err
	}
	err = k.change(ctx, keyID{agentID, algorithm}, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		after := before
		after.Required, out = *d.Required, shown(before)
		out.Required = after.Required
		switch before {
		case models.AgentKey{}:
			return errs.New(errs.NotFound, "the agent %q has no %s key", agentID, algorithm)
		case after:
			return nil
		}
		return record(ctx, tx, by, agent, before, after, models.AuditKeyChanged)
	})
	return out, err
}

// Revoke ends an agent's key: at once on this replica, within a second on others; or errs.NotFound.
func (k *Keys) Revoke(ctx context.Context, by models.Principal, agentID, algorithm string) error {
	return k.change(ctx, keyID{agentID, algorithm}, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		if before == (models.AgentKey{}) {
			return errs.New(errs.NotFound, "the agent %q has no %s key", agentID, algorithm)
		}
		return record(ctx, tx, by, agent, before, models.AgentKey{}, models.AuditKeyRevoked)
	})
}

// change calls do with an agent, whose row it locks, and with the agent's key, the zero AgentKey for none.
func (k *Keys) change(ctx context.Context, id keyID, do func(tx *store.Tx, agent models.Agent, before models.AgentKey) error) error {
	err := k.store.Write(ctx, func(tx *store.Tx) error {
		agent, err := tx.Agents().Lock(id.agentID)
		if err != nil {
			return err
		}
		before, err := tx.Tokens().AgentKey(id.agentID, id.algorithm)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		return do(tx, agent, before)
	})
	k.forget(id)
	return err
}

// record writes a changed key, its event and its audit record, which do not contain the key.
func record(ctx context.Context, tx *store.Tx, by models.Principal, agent models.Agent, before, after models.AgentKey, action models.AuditAction) error {
	kind, told, save := events.KeyIssued, shown(after), func() error { return tx.Tokens().SaveAgentKey(after) }
	switch action {
	case models.AuditKeyChanged:
		kind = events.KeyChanged
	case models.AuditKeyRevoked:
		kind, told, save = events.KeyRevoked, shown(before), func() error { return tx.Tokens().DeleteAgentKey(agent.ID, before.Algorithm) }
	}
	if err := save(); err != nil {
		return err
	}
	if err := tx.Events().Emit(kind, "key:"+agent.ID, KeyChanged{
		AgentID: agent.ID, Algorithm: told.Algorithm, Fingerprint: told.Fingerprint, Required: told.Required, Actor: by.Name,
	}); err != nil {
		return err
	}
	return tx.Agents().Audit(models.AuditEntry{
		AgentID: agent.ID, Actor: by.Name, ActorID: by.TokenID, Action: action, RequestID: requestid.From(ctx),
		Version: agent.Version, Changes: differences(before, after),
	})
}

// differences returns the changes of a key: its fingerprint, null for none, and its requirement.
func differences(before, after models.AgentKey) []models.Change {
	show := func(key models.AgentKey) (fingerprinted, required any) {
		if key == (models.AgentKey{}) {
			return nil, nil
		}
		return fingerprint(key), key.Required
	}
	was, had := show(before)
	is, has := show(after)
	all := []models.Change{}
	if was != is {
		all = append(all, models.Change{Field: "key", From: was, To: is})
	}
	if had != has {
		all = append(all, models.Change{Field: "key_required", From: had, To: has})
	}
	return all
}

// fingerprint identifies a key without revealing it. It is "" for the zero AgentKey.
func fingerprint(key models.AgentKey) string {
	if key == (models.AgentKey{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(key.Secret + key.PublicKey))
	return hex.EncodeToString(sum[:4])
}

// checkKey validates an imported key. Its messages do not contain the key.
func checkKey(key string) error {
	switch {
	case len(key) < MinAgentKey:
		return input.Violated("/key", "min", "key must have at least %d bytes, not %d", MinAgentKey, len(key))
	case len(key) > MaxAgentKey:
		return input.Violated("/key", "max", "key must have at most %d bytes, not %d", MaxAgentKey, len(key))
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return input.Violated("/key", "printable", "key must be text without control characters")
	}
	return nil
}

// publicKey validates a public key of ed25519 and returns it in standard base64.
func publicKey(key *string) (string, error) {
	if key != nil {
		raw, err := base64.StdEncoding.DecodeString(*key)
		if err == nil && len(raw) == ed25519.PublicKeySize {
			return base64.StdEncoding.EncodeToString(raw), nil
		}
	}
	return "", input.Violated("/key", "base64", "key must be a public key of Ed25519: %d bytes in base64", ed25519.PublicKeySize)
}

// The algorithms of keys.
const (
	HMACSHA256 = "hmac-sha256"
	Ed25519    = "ed25519"
)

// The length limits of a given key of hmac-sha256, in bytes.
const (
	MinAgentKey = 16
	MaxAgentKey = 128
)

// AgentKeyDraft is a request to set an agent's key.
type AgentKeyDraft struct {
	// Algorithm is HMACSHA256 or Ed25519, "" for HMACSHA256. The REST API issues keys of HMACSHA256.
	Algorithm string  `json:"-"`
	Key       *string `json:"key" minLength:"16" maxLength:"128" extensions:"x-nullable"` // The key, as text; without it comet generates one.
	Required  *bool   `json:"required" example:"true" extensions:"x-nullable"`            // Whether the agent must sign every message; unchanged without it, and false for a first key.
}

// AgentKeyChange is a request to change the use of an agent's key.
type AgentKeyChange struct {
	Required *bool `json:"required" validate:"required" example:"true"` // Whether the agent must sign every message.
}

// KeyChanged is the data of the key events; it never holds a key.
type KeyChanged struct {
	AgentID     string `json:"agent_id"`
	Algorithm   string `json:"algorithm"`
	Fingerprint string `json:"fingerprint"`
	Required    bool   `json:"required"`
	Actor       string `json:"actor"`
}

// markLength is the number of bytes of a digest that are stored per signed message.
const markLength = 16

// TakeOnce records that a signed message of an agent is accepted. It returns errs.Conflict, and
// records nothing, if one of its marks was recorded in the same scope within the window. The record
// is committed when it returns, so restarts and other replicas know it. A scope is the name of a
// protocol, and a mark is any text that may not be repeated.
func (k *Keys) TakeOnce(ctx context.Context, scope, agentID string, marks ...string) error {
	return k.store.Write(ctx, func(tx *store.Tx) error {
		for _, mark := range marks {
			sum := sha256.Sum256([]byte(mark))
			first, err := signatures.Record(tx, scope, agentID, sum[:markLength], tx.Now().Add(-k.window))
			if err != nil {
				return err
			}
			if !first {
				return errs.New(errs.Conflict, "the message was received before")
			}
		}
		return nil
	})
}

// Purge deletes the marks that are older than the window.
func (k *Keys) Purge(ctx context.Context) error {
	return k.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return signatures.Purge(tx, tx.Now().Add(-k.window), limit)
	})
}
