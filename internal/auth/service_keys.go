package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"sync/atomic"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/seal"
	"comet/store/signatures"
)

// retiredFor is how long a retired key of comet is published, so that its signatures can be verified.
const retiredFor = 30 * 24 * time.Hour

// seedColumn is the purpose of sealed seeds.
const seedColumn = "service_keys.seed"

// ServiceKeys are the Ed25519 keys with which comet signs, the same on all replicas. The first one is created when
// it is needed. It is safe for concurrent use.
type ServiceKeys struct {
	store   *store.Store
	keyring *seal.Keyring
	clock   func() time.Time
	read    atomic.Pointer[serviceReading]
	changes atomic.Int64 // of keys here; a reading that began before one is not cached
}

type serviceReading struct {
	keys  []ServiceKey
	until time.Time // on the monotonic clock
}

// ServiceKey is a key of comet.
type ServiceKey struct {
	// ID is the first 16 hexadecimal digits of the SHA-256 of the public key.
	ID     string
	Public ed25519.PublicKey
	// Private is nil for a retired key.
	Private   ed25519.PrivateKey
	CreatedAt time.Time
	// RetiredAt is when another key replaced it, nil for the current key.
	RetiredAt *time.Time
}

// NewServiceKeys returns comet's keys in the store. The keyring seals them, nil for none. The clock of the options
// ages cached keys.
func NewServiceKeys(s *store.Store, keyring *seal.Keyring, opts *KeysOptions) *ServiceKeys {
	k := &ServiceKeys{store: s, keyring: keyring, clock: cmp.Or(opts, &KeysOptions{}).Clock}
	if k.clock == nil {
		k.clock = time.Now
	}
	return k
}

// Current returns the key with which comet signs. After a rotation on another replica it may return the former key
// for less than a second; that key stays in Public.
func (k *ServiceKeys) Current(ctx context.Context) (ServiceKey, error) {
	keys, err := k.all(ctx)
	if err != nil {
		return ServiceKey{}, err
	}
	return keys[0], nil
}

// Public returns the keys that verify signatures of comet, without the private keys: the current one, then those
// that were retired in the last 30 days, the newest first.
func (k *ServiceKeys) Public(ctx context.Context) ([]ServiceKey, error) {
	keys, err := k.all(ctx)
	out := make([]ServiceKey, len(keys))
	for i, key := range keys {
		key.Private = nil
		out[i] = key
	}
	return out, err
}

// all returns the current key and the retired ones. It creates the first key.
func (k *ServiceKeys) all(ctx context.Context) ([]ServiceKey, error) {
	begun, seen := k.clock(), k.changes.Load()
	if r := k.read.Load(); r != nil && begun.Before(r.until) {
		return r.keys, nil
	}
	after := k.store.Now().Add(-retiredFor)
	rows, err := signatures.ServiceKeys(k.store.Reads(ctx), after)
	if err == nil && (len(rows) == 0 || rows[0].RetiredAt != nil) {
		err = k.store.Write(ctx, func(tx *store.Tx) error {
			if _, err := k.add(tx); err != nil {
				return err
			}
			rows, err = signatures.ServiceKeys(tx, after)
			return err
		})
	}
	keys := make([]ServiceKey, 0, len(rows))
	for _, row := range rows {
		if err == nil {
			var key ServiceKey
			key, err = k.open(row)
			keys = append(keys, key)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 || keys[0].Private == nil {
		return nil, errs.New(errs.Internal, "there is no current key of comet after its creation")
	}
	reading := &serviceReading{keys, begun.Add(verifyFor)}
	if k.read.Store(reading); k.changes.Load() != seen {
		k.read.CompareAndSwap(reading, nil)
	}
	return keys, nil
}

// add stores a new key unless there is a current one.
func (k *ServiceKeys) add(tx *store.Tx) (added bool, err error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return false, err
	}
	return signatures.AddServiceKey(tx, signatures.ServiceKey{
		KeyID: publicKeyID(public), PublicKey: base64.StdEncoding.EncodeToString(public),
		Seed: k.keyring.Seal(seedColumn, private.Seed()), CreatedAt: tx.Now(),
	})
}

func (k *ServiceKeys) open(row signatures.ServiceKey) (ServiceKey, error) {
	public, err := base64.StdEncoding.DecodeString(row.PublicKey)
	key := ServiceKey{ID: row.KeyID, Public: public, CreatedAt: row.CreatedAt, RetiredAt: row.RetiredAt}
	if err != nil || row.RetiredAt != nil {
		return key, err
	}
	seed, err := k.keyring.Open(seedColumn, row.Seed)
	if err == nil && len(seed) != ed25519.SeedSize {
		err = errs.New(errs.Internal, "the private key %s of comet has %d bytes", row.KeyID, len(seed))
	}
	if err == nil {
		key.Private = ed25519.NewKeyFromSeed(seed)
	}
	return key, err
}

// Rotate replaces the current key, erases its private key, and returns the new key without the private key. A
// concurrent rotation has the same result. It takes effect at once on this replica and within a second on others.
func (k *ServiceKeys) Rotate(ctx context.Context, by models.Principal) (ServiceKey, error) {
	var current ServiceKey
	err := k.store.Write(ctx, func(tx *store.Tx) error {
		if err := signatures.Retire(tx, tx.Now().Add(-retiredFor)); err != nil {
			return err
		}
		added, err := k.add(tx)
		if err != nil {
			return err
		}
		rows, err := signatures.ServiceKeys(tx, tx.Now())
		if err != nil {
			return err
		}
		if current, err = k.open(rows[0]); err != nil || !added {
			return err
		}
		return tx.Events().Emit(events.KeyIssued, "service_key:"+current.ID, KeyChanged{Algorithm: Ed25519, Fingerprint: current.ID[:8], KeyID: current.ID, Actor: by.Name})
	})
	k.changes.Add(1)
	k.read.Store(nil)
	current.Private = nil
	return current, err
}
