package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/requestid"
	"comet/models"
	"comet/store"
)

// replayWindow is how long a signed message is remembered by default.
const replayWindow = 24 * time.Hour

// Keys stores agents' signing keys and the signed messages that were accepted (PROTOCOL_V5 §11).
// Keys are stored in clear, because a signature cannot be computed from a hash. It is safe for
// concurrent use.
type Keys struct {
	store  *store.Store
	clock  func() time.Time
	window time.Duration
	read   *lru.Cache[string, reading]
	// changes counts changes of keys on this replica. A look-up that began before a change must
	// not be cached after it.
	changes atomic.Int64
}

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
	cache, err := lru.New[string, reading](cacheSize)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	k := &Keys{store: s, read: cache, clock: time.Now, window: replayWindow}
	if opts != nil && opts.Clock != nil {
		k.clock = opts.Clock
	}
	if opts != nil && opts.Window > 0 {
		k.window = opts.Window
	}
	return k
}

// Signing returns the key with which an agent signs, the zero AgentKey for none. A change takes
// effect at once on this replica and within a second on others.
func (k *Keys) Signing(ctx context.Context, agentID string) (models.AgentKey, error) {
	begun := k.clock()
	if r, ok := k.read.Get(agentID); ok && begun.Before(r.until) {
		return r.key, nil
	}
	seen := k.changes.Load()
	key, err := k.store.AgentKey(ctx, agentID)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return models.AgentKey{}, err
	}
	if k.changes.Load() == seen {
		k.read.Add(agentID, reading{key, begun.Add(verifyFor)})
		if k.changes.Load() != seen { // changed between the check and the insert
			k.read.Remove(agentID)
		}
	}
	return key, nil
}

// forget removes an agent's key from the cache after a committed change.
func (k *Keys) forget(agentID string) {
	k.changes.Add(1)
	k.read.Remove(agentID)
}

// Get returns an agent's key without its secret, or errs.NotFound.
func (k *Keys) Get(ctx context.Context, agentID string) (models.AgentKey, error) {
	key, err := k.store.AgentKey(ctx, agentID)
	return shown(key), err
}

// shown returns a key without its secret.
func shown(key models.AgentKey) models.AgentKey {
	if key.Secret != "" {
		key.Fingerprint = fingerprint(key.Secret)
	}
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

// Issue gives an agent a key, which replaces an earlier one: 256 random bits as hex, or an
// imported key. It returns errs.NotFound for an unknown agent, and errs.InvalidRequest for an
// invalid key.
func (k *Keys) Issue(ctx context.Context, by models.Principal, agentID string, d models.AgentKeyDraft) (out IssuedKey, err error) {
	secret := ""
	if d.Key != nil {
		if err := checkKey(*d.Key); err != nil {
			return out, err
		}
		secret = *d.Key
	} else {
		out.Secret = newKey()
		secret = out.Secret
	}
	err = k.change(ctx, agentID, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		out.First = before.Secret == ""
		n, err := tx.AgentNumber(agentID)
		if err != nil {
			return err
		}
		after := models.AgentKey{
			AgentID: agentID, Number: n, Secret: secret, Required: before.Required, CreatedAt: tx.Now(), CreatedBy: by.Name,
		}
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

// Require sets whether every message of an agent must be signed, and returns its key without the
// secret, or errs.NotFound.
func (k *Keys) Require(ctx context.Context, by models.Principal, agentID string, d models.AgentKeyChange) (out models.AgentKey, err error) {
	v := input.Validate(d)
	if err := v.Err(); err != nil {
		return out, err
	}
	err = k.change(ctx, agentID, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		after := before
		after.Required, out = *d.Required, shown(before)
		out.Required = after.Required
		switch {
		case before.Secret == "":
			return errs.New(errs.NotFound, "the agent %q has no key", agentID)
		case after == before:
			return nil
		}
		return record(ctx, tx, by, agent, before, after, models.AuditKeyChanged)
	})
	return out, err
}

// Revoke ends an agent's key: at once on this replica, within a second on others. It returns
// errs.NotFound without a key.
func (k *Keys) Revoke(ctx context.Context, by models.Principal, agentID string) error {
	return k.change(ctx, agentID, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		if before.Secret == "" {
			return errs.New(errs.NotFound, "the agent %q has no key", agentID)
		}
		return record(ctx, tx, by, agent, before, models.AgentKey{AgentID: agentID}, models.AuditKeyRevoked)
	})
}

// change lets do write a change of an agent's key; before is the zero AgentKey for none. The lock
// on the agent's row serialises changes.
func (k *Keys) change(ctx context.Context, agentID string, do func(tx *store.Tx, agent models.Agent, before models.AgentKey) error) error {
	err := k.store.Write(ctx, func(tx *store.Tx) error {
		agent, err := tx.Agent(agentID)
		if err != nil {
			return err
		}
		before, err := tx.AgentKey(agentID)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		return do(tx, agent, before)
	})
	k.forget(agentID)
	return err
}

// record writes a changed key with its event and the record in the agent's audit log. Neither
// contains the key.
func record(ctx context.Context, tx *store.Tx, by models.Principal, agent models.Agent, before, after models.AgentKey, action models.AuditAction) error {
	kind, told, save := models.EventKeyIssued, shown(after), func() error { return tx.SaveAgentKey(after) }
	switch action {
	case models.AuditKeyChanged:
		kind = models.EventKeyChanged
	case models.AuditKeyRevoked:
		kind, told, save = models.EventKeyRevoked, shown(before), func() error { return tx.DeleteAgentKey(agent.ID) }
	}
	if err := save(); err != nil {
		return err
	}
	if err := tx.Emit(kind, "key:"+agent.ID, models.KeyChanged{
		AgentID: agent.ID, Fingerprint: told.Fingerprint, Required: told.Required, Actor: by.Name,
	}); err != nil {
		return err
	}
	return tx.Audit(models.AuditEntry{
		AgentID: agent.ID, Actor: by.Name, ActorID: by.TokenID, Action: action, RequestID: requestid.From(ctx),
		Version: agent.Version, Changes: differences(before, after),
	})
}

// differences returns the visible changes of a key: its fingerprint, null for none, and whether
// it is required.
func differences(before, after models.AgentKey) []models.Change {
	show := func(key models.AgentKey) (fingerprinted, required any) {
		if key.Secret == "" {
			return nil, nil
		}
		return fingerprint(key.Secret), key.Required
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

// fingerprint identifies a key without revealing it.
func fingerprint(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:4])
}

// newKey returns 256 random bits as 64 hexadecimal characters.
func newKey() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails; without randomness it ends the program
	return hex.EncodeToString(b)
}

// checkKey validates an imported key. Its messages do not contain the key.
func checkKey(key string) error {
	var v errs.Violations
	switch {
	case len(key) < models.MinAgentKey:
		v.Add(errs.InvalidRequest, "/key", "min", "key must have at least %d bytes, not %d", models.MinAgentKey, len(key))
	case len(key) > models.MaxAgentKey:
		v.Add(errs.InvalidRequest, "/key", "max", "key must have at most %d bytes, not %d", models.MaxAgentKey, len(key))
	case !isText(key):
		v.Add(errs.InvalidRequest, "/key", "printable", "key must be text without control characters")
	}
	return v.Err()
}

func isText(key string) bool {
	for _, r := range key {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(key)
}
