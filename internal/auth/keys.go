package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
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

// Keys stores agents' keys and the signed messages that were accepted. An agent has at most one key of
// hmac-sha256, which is stored encrypted, because a signature cannot be computed from a hash, and up to
// maxLiveKeys public keys of ed25519. It is safe for concurrent use.
type Keys struct {
	store  *store.Store
	clock  func() time.Time
	window time.Duration
	read   *lru.Cache[keyID, reading]
	// changes counts changes of keys here. A look-up that began before one is not cached.
	changes atomic.Int64
}

type keyID struct{ agentID, algorithm string }

// reading is a cached list of valid keys, the newest first.
type reading struct {
	keys  []models.AgentKey
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

// Signing returns the key of an algorithm with which an agent signs, the newest one if there are several; its Required
// says whether any of them is required. It returns the zero AgentKey if there is none. A change takes effect at once on this replica and within a second
// on others.
func (k *Keys) Signing(ctx context.Context, agentID, algorithm string) (models.AgentKey, error) {
	keys, err := k.live(ctx, agentID, algorithm)
	if err != nil || len(keys) == 0 {
		return models.AgentKey{}, err
	}
	key := keys[0]
	key.Required = slices.ContainsFunc(keys, required)
	return key, nil
}

func required(k models.AgentKey) bool { return k.Required }

// live returns the valid keys of an agent, the newest first.
func (k *Keys) live(ctx context.Context, agentID, algorithm string) ([]models.AgentKey, error) {
	id, begun, now := keyID{agentID, algorithm}, k.clock(), k.store.Now()
	valid := func(keys []models.AgentKey) []models.AgentKey {
		if !slices.ContainsFunc(keys, func(key models.AgentKey) bool { return !key.Live(now) }) {
			return keys
		}
		return slices.DeleteFunc(slices.Clone(keys), func(key models.AgentKey) bool { return !key.Live(now) })
	}
	if r, ok := k.read.Get(id); ok && begun.Before(r.until) {
		return valid(r.keys), nil
	}
	seen := k.changes.Load()
	var keys []models.AgentKey
	var err error
	if algorithm == Ed25519 {
		keys, err = signatures.Live(k.store.Reads(ctx), agentID, now)
	} else if key, failed := k.store.Tokens(ctx).AgentKey(agentID, algorithm); failed == nil {
		keys = []models.AgentKey{key}
	} else if !errs.Is(failed, errs.NotFound) {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	if k.changes.Load() == seen {
		k.read.Add(id, reading{keys, begun.Add(verifyFor)})
		if k.changes.Load() != seen { // changed between the check and the insert
			k.read.Remove(id)
		}
	}
	return keys, nil
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

// Issue gives an agent a key of hmac-sha256, which replaces an earlier one: an imported key or 256 random
// bits as hex. It returns errs.NotFound for an unknown agent, and errs.InvalidRequest for an invalid key.
func (k *Keys) Issue(ctx context.Context, by models.Principal, agentID string, d AgentKeyDraft) (out IssuedKey, err error) {
	key := models.AgentKey{AgentID: agentID, Algorithm: HMACSHA256, CreatedBy: by.Name}
	if d.Key != nil {
		key.Secret, err = *d.Key, checkKey(*d.Key)
	} else {
		out.Secret = randomHex(32)
		key.Secret = out.Secret
	}
	if err != nil {
		return out, err
	}
	err = k.change(ctx, keyID{agentID, key.Algorithm}, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		out.First = before == models.AgentKey{}
		after := key
		after.KeyID, after.Required, after.CreatedAt = cmp.Or(before.KeyID, randomHex(8)), before.Required, tx.Now()
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
	switch {
	case action == models.AuditKeyChanged:
		kind = events.KeyChanged
	case action == models.AuditKeyRevoked:
		kind, told, save = events.KeyRevoked, shown(before), func() error { return tx.Tokens().DeleteAgentKey(agent.ID, before.Algorithm) }
	}
	if action == models.AuditKeyRevoked && before.Algorithm == Ed25519 {
		revoked := before
		revoked.RevokedAt = new(tx.Now())
		save = func() error { return tx.Tokens().SaveAgentKey(revoked) }
	}
	if err := save(); err != nil {
		return err
	}
	event := KeyChanged{AgentID: agent.ID, Algorithm: told.Algorithm, Fingerprint: told.Fingerprint, Required: told.Required, Actor: by.Name}
	if told.Algorithm == Ed25519 {
		event.KeyID, event.Profile, event.SignatureOnly, event.NotAfter = told.KeyID, told.Profile, told.SignatureOnly, told.NotAfter
	}
	if err := tx.Events().Emit(kind, "key:"+agent.ID, event); err != nil {
		return err
	}
	return tx.Agents().Audit(models.AuditEntry{
		AgentID: agent.ID, Actor: by.Name, ActorID: by.TokenID, Action: action, RequestID: requestid.From(ctx),
		Version: agent.Version, Changes: differences(before, after),
	})
}

// differences returns the changes of a key: of its fingerprint, null for none, and of its settings.
func differences(before, after models.AgentKey) []models.Change {
	all := []models.Change{}
	was, is := settings(before), settings(after)
	for i := range is {
		if was[i].To != is[i].To {
			all = append(all, models.Change{Field: is[i].Field, From: was[i].To, To: is[i].To})
		}
	}
	return all
}

// settings returns the settings of a key for the audit log, null for the zero AgentKey.
func settings(key models.AgentKey) []models.Change {
	all := []models.Change{{Field: "key"}, {Field: "key_required"}, {Field: "key_profile"}, {Field: "key_signature_only"}, {Field: "key_not_after"}}
	if key == (models.AgentKey{}) {
		return all
	}
	all[0].To, all[1].To = fingerprint(key), key.Required
	if key.Algorithm == Ed25519 {
		all[2].To, all[3].To = key.Profile, key.SignatureOnly
		if key.NotAfter != nil {
			all[4].To = key.NotAfter.Format(time.RFC3339Nano)
		}
	}
	return all
}

// fingerprint identifies a key without revealing it. It is "" for the zero AgentKey.
func fingerprint(key models.AgentKey) string {
	if key == (models.AgentKey{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(key.Secret))
	if key.Algorithm == Ed25519 {
		public, _ := base64.StdEncoding.DecodeString(key.PublicKey)
		sum = sha256.Sum256(public)
	}
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

// AgentKeyDraft is a request to set an agent's key of hmac-sha256.
type AgentKeyDraft struct {
	Key      *string `json:"key" minLength:"16" maxLength:"128" extensions:"x-nullable"` // The key, as text; without it comet generates one.
	Required *bool   `json:"required" example:"true" extensions:"x-nullable"`            // Whether the agent must sign every message; unchanged without it, and false for a first key.
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
	// The following are those of a public key. For a key of comet, AgentID is "".
	KeyID         string     `json:"key_id,omitempty"`
	Profile       string     `json:"profile,omitempty"`
	SignatureOnly bool       `json:"signature_only,omitempty"`
	NotAfter      *time.Time `json:"not_after,omitempty"`
}
