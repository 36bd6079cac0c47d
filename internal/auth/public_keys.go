package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/signatures"
)

// maxLiveKeys is how many valid public keys an agent may have, so that it can rotate them with an overlap.
const maxLiveKeys = 4

// maxListedKeys is how many public keys of an agent List returns.
const maxListedKeys = 100

// PublicKeyDraft is a request to pin an Ed25519 public key to an agent.
type PublicKeyDraft struct {
	// PublicKey is Text as bytes, which the caller has parsed.
	PublicKey     ed25519.PublicKey `json:"-"`
	Text          string            `json:"public_key" validate:"required" example:"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=" maxLength:"1024"` // The Ed25519 public key: 32 bytes in base64 or 64 hexadecimal digits, or its SubjectPublicKeyInfo in base64 or PEM.
	Profile       string            `json:"profile" validate:"omitempty,oneof=v1 jcs" example:"jcs" enums:"v1,jcs" default:"v1"`                                    // What a signature must cover: `v1` the members of the message that its protocol selects, `jcs` the whole message (RFC 8785).
	Required      bool              `json:"required" example:"true"`                                                                                                // Whether every message of the agent must be signed.
	SignatureOnly bool              `json:"signature_only" example:"false"`                                                                                         // Whether a signature replaces a token. The agent can then send messages without a token, with the scope messages:send.
	NotAfter      *time.Time        `json:"not_after" example:"2027-01-10T00:00:00Z" extensions:"x-nullable"`                                                       // When the key expires, null for never.
}

// PublicKeyChange is a request to change the settings of a public key. Absent members stay as they are.
type PublicKeyChange struct {
	Profile       models.Optional[string]    `json:"profile" validate:"omitnil,oneof=v1 jcs" swaggertype:"string" example:"jcs" enums:"v1,jcs"`                // What a signature must cover.
	Required      models.Optional[bool]      `json:"required" swaggertype:"boolean" example:"true"`                                                            // Whether every message of the agent must be signed.
	SignatureOnly models.Optional[bool]      `json:"signature_only" swaggertype:"boolean" example:"false"`                                                     // Whether a signature replaces a token.
	NotAfter      models.Optional[time.Time] `json:"not_after" swaggertype:"string" format:"date-time" example:"2027-01-10T00:00:00Z" extensions:"x-nullable"` // When the key expires, null for never.
}

// Pin adds a public key to an agent. It returns errs.NotFound for an unknown agent, errs.InvalidRequest for an
// invalid draft, errs.Conflict for a key that this or another agent has or had, and errs.LimitReached if the agent
// has maxLiveKeys valid keys.
func (k *Keys) Pin(ctx context.Context, by models.Principal, agentID string, d PublicKeyDraft, once *models.Idempotency) (out models.AgentKey, err error) {
	var v errs.Violations
	if len(d.PublicKey) != ed25519.PublicKeySize {
		v.Add(errs.InvalidRequest, "/public_key", "public_key", "public_key must have %d bytes, not %d", ed25519.PublicKeySize, len(d.PublicKey))
	}
	d.Profile = cmp.Or(d.Profile, ProfileV1)
	if d.Profile != ProfileV1 && d.Profile != ProfileJCS {
		v.Add(errs.InvalidRequest, "/profile", "oneof", "profile must be v1 or jcs, not %s", input.Quote(d.Profile))
	}
	checkNotAfter(&v, d.NotAfter, k.store.Now())
	if err := v.Err(); err != nil {
		return out, err
	}
	key := models.AgentKey{
		AgentID: agentID, KeyID: publicKeyID(d.PublicKey), Algorithm: Ed25519, PublicKey: base64.StdEncoding.EncodeToString(d.PublicKey),
		Profile: d.Profile, Required: d.Required, SignatureOnly: d.SignatureOnly, NotAfter: stored(d.NotAfter), CreatedBy: by.Name,
	}
	err = k.store.Once(ctx, once, func(tx *store.Tx) (any, error) {
		agent, err := tx.Agents().Lock(agentID)
		if err != nil {
			return nil, err
		}
		switch known, err := signatures.Public(tx, key.PublicKey); {
		case err == nil && known.AgentID != agentID:
			return nil, errs.New(errs.Conflict, "another agent has or had this public key; generate a key pair for each agent")
		case err == nil && known.RevokedAt != nil:
			return nil, errs.New(errs.Conflict, "the key %s of the agent %q was revoked and cannot be used again; generate another one", known.KeyID, agentID)
		case err == nil:
			return nil, errs.New(errs.Conflict, "the agent %q already has this public key, as %s", agentID, known.KeyID)
		case !errs.Is(err, errs.NotFound):
			return nil, err
		}
		key.CreatedAt = tx.Now()
		out = shown(key)
		if err := checkLive(tx, key); err != nil {
			return nil, err
		}
		return out, record(ctx, tx, by, agent, models.AgentKey{}, key, models.AuditKeyIssued)
	})
	k.forget(keyID{agentID, Ed25519})
	return out, err
}

// IsPinned reports whether an agent has or had a public key.
func (k *Keys) IsPinned(ctx context.Context, key ed25519.PublicKey) (bool, error) {
	_, err := signatures.Public(k.store.Reads(ctx), base64.StdEncoding.EncodeToString(key))
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// checkLive returns errs.LimitReached if an agent with a new valid key would have more than maxLiveKeys.
func checkLive(tx *store.Tx, key models.AgentKey) error {
	live, err := signatures.Live(tx, key.AgentID, tx.Now())
	if err == nil && len(live) >= maxLiveKeys {
		err = errs.New(errs.LimitReached, "the agent %q has %d valid public keys, which is the maximum; revoke one of them first", key.AgentID, len(live))
	}
	return err
}

func checkNotAfter(v *errs.Violations, at *time.Time, now time.Time) {
	if at != nil && (!at.After(now) || at.UTC().Year() > maxYear) {
		v.Add(errs.InvalidRequest, "/not_after", "future", "not_after must be in the future and not later than the year %d in UTC", maxYear)
	}
}

// stored returns a time as the database stores it.
func stored(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	return new(at.UTC().Truncate(time.Microsecond))
}

func publicKeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// List returns the public keys of an agent: first those that are not revoked, the newest first, at most
// maxListedKeys. It returns errs.NotFound for an unknown agent.
func (k *Keys) List(ctx context.Context, agentID string) ([]models.AgentKey, error) {
	if _, err := k.store.Agents(ctx).Get(agentID); err != nil {
		return nil, err
	}
	return signatures.Keys(k.store.Reads(ctx), agentID, maxListedKeys)
}

// Public returns a public key of an agent, even an expired or revoked one, or errs.NotFound.
func (k *Keys) Public(ctx context.Context, agentID, id string) (models.AgentKey, error) {
	key, err := signatures.Key(k.store.Reads(ctx), agentID, id)
	return key, publicMissing(err, agentID, id)
}

func publicMissing(err error, agentID, id string) error {
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "the agent %q has no public key %s", agentID, input.Quote(id))
	}
	return err
}

// Change changes the settings of a public key. It returns errs.NotFound for an unknown key, errs.InvalidRequest for
// an invalid change, and errs.Conflict for a revoked key.
func (k *Keys) Change(ctx context.Context, by models.Principal, agentID, id string, d PublicKeyChange) (out models.AgentKey, err error) {
	v := input.ValidatePatch(d)
	checkNotAfter(&v, d.NotAfter.Pointer(), k.store.Now())
	if err := v.Err(); err != nil {
		return out, err
	}
	err = k.changePublic(ctx, agentID, id, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		if before.RevokedAt != nil {
			return errs.New(errs.Conflict, "the key %s of the agent %q is revoked; pin another one", id, agentID)
		}
		out = before
		d.Profile.Apply(&out.Profile)
		d.Required.Apply(&out.Required)
		d.SignatureOnly.Apply(&out.SignatureOnly)
		if d.NotAfter.Set {
			out.NotAfter = stored(d.NotAfter.Pointer())
		}
		if len(differences(before, out)) == 0 {
			return nil
		}
		if !before.Live(tx.Now()) && out.Live(tx.Now()) {
			if err := checkLive(tx, out); err != nil {
				return err
			}
		}
		return record(ctx, tx, by, agent, before, out, models.AuditKeyChanged)
	})
	return shown(out), err
}

// RevokePublic ends a public key: at once on this replica, within a second on others. A second call changes nothing.
// It returns errs.NotFound for an unknown key.
func (k *Keys) RevokePublic(ctx context.Context, by models.Principal, agentID, id string) error {
	return k.changePublic(ctx, agentID, id, func(tx *store.Tx, agent models.Agent, before models.AgentKey) error {
		if before.RevokedAt != nil {
			return nil
		}
		return record(ctx, tx, by, agent, before, models.AgentKey{}, models.AuditKeyRevoked)
	})
}

// changePublic calls do with an agent, whose row it locks, and one of its public keys.
func (k *Keys) changePublic(ctx context.Context, agentID, id string, do func(tx *store.Tx, agent models.Agent, before models.AgentKey) error) error {
	err := k.store.Write(ctx, func(tx *store.Tx) error {
		agent, err := tx.Agents().Lock(agentID)
		if err != nil {
			return err
		}
		before, err := signatures.Key(tx, agentID, id)
		if err != nil {
			return publicMissing(err, agentID, id)
		}
		return do(tx, agent, before)
	})
	k.forget(keyID{agentID, Ed25519})
	return err
}

// The profiles of signatures.
const (
	// ProfileV1 covers the members of a message that its protocol selects, ProfileJCS the whole message.
	ProfileV1  = "v1"
	ProfileJCS = "jcs"
)

// Refusal is why VerifyMessage does not accept a message.
type Refusal string

// The reasons. KeyUnknown does not say whether a key is unknown, revoked, expired or that of another agent.
const (
	KeyUnknown        Refusal = "KEY_UNKNOWN"
	SignatureRequired Refusal = "SIGNATURE_REQUIRED"
	SignatureInvalid  Refusal = "SIGNATURE_INVALID"
)

// RefusalOf returns the reason in an error of VerifyMessage, "" for other errors.
func RefusalOf(err error) Refusal {
	if !errs.Is(err, errs.Unauthenticated) {
		return ""
	}
	reason, _ := errs.From(err).Meta["reason"].(Refusal)
	return reason
}

func refuse(reason Refusal, cause error, format string, args ...any) error {
	return errs.Wrap(errs.Unauthenticated, cause, format, args...).With("reason", reason)
}

// SignedMessage is what VerifyMessage needs of a message.
type SignedMessage struct {
	// Public is the key that the message states. It proves nothing by itself.
	Public ed25519.PublicKey
	// V1 and JCS say which signatures the message has.
	V1, JCS bool
	// Verify verifies the signature of a profile with a key. It is called at most once.
	Verify func(key ed25519.PublicKey, profile string) error
}

// VerifyMessage verifies a message that claims to be from an agent and returns the key that has signed it, the zero
// AgentKey for an unsigned message of an agent whose keys do not require a signature. A signature is verified
// even if none is required. The message must have a signature of the key's profile; if it has both, that of
// ProfileJCS is verified, because it covers more. An error of a message that is not accepted is errs.Unauthenticated with
// a Refusal. A new key takes effect at once, another change within a second on other replicas.
func (k *Keys) VerifyMessage(ctx context.Context, agentID string, m SignedMessage) (models.AgentKey, error) {
	keys, err := k.live(ctx, agentID, Ed25519)
	if err != nil {
		return models.AgentKey{}, err
	}
	if !m.V1 && !m.JCS {
		if slices.ContainsFunc(keys, required) {
			err = refuse(SignatureRequired, nil, "every message of the agent %q must be signed with one of its keys", agentID)
		}
		return models.AgentKey{}, err
	}
	text := base64.StdEncoding.EncodeToString(m.Public)
	signer := func(key models.AgentKey) bool { return key.PublicKey == text }
	i := slices.IndexFunc(keys, signer)
	if i < 0 { // another replica may have added it
		k.read.Remove(keyID{agentID, Ed25519})
		if keys, err = k.live(ctx, agentID, Ed25519); err != nil {
			return models.AgentKey{}, err
		}
		i = slices.IndexFunc(keys, signer)
	}
	if i < 0 {
		return models.AgentKey{}, refuse(KeyUnknown, nil, "the message is not signed with a valid key of its sender; pin the public key with POST /api/v1/agents/{agent_id}/keys")
	}
	profile := ProfileV1
	switch {
	case m.JCS:
		profile = ProfileJCS
	case keys[i].Profile == ProfileJCS:
		return models.AgentKey{}, refuse(SignatureRequired, nil, "the profile of the key %s is jcs, so the message must have a signature of the whole message", keys[i].KeyID)
	}
	if err := m.Verify(m.Public, profile); err != nil {
		return models.AgentKey{}, refuse(SignatureInvalid, err, "the signature of the profile %s does not match the message", profile)
	}
	return keys[i], nil
}

// speakerPrefix begins the TokenID of an agent whose signature replaces a token. The rest is the id of the agent,
// not of the key, so that the agent still owns its tasks after a rotation of its keys.
const speakerPrefix = "key:"

// SignatureOnly reports whether a principal is one of Keys.Principal.
func SignatureOnly(p models.Principal) bool { return strings.HasPrefix(p.TokenID, speakerPrefix) }

// Principal returns the principal of an agent that has signed a message with a key and sends no token. It is bound
// to the agent and has the scope messages:send. It returns errs.Unauthenticated unless the key is valid and
// replaces a token, and errs.AgentInactive for a deactivated agent. The deactivation takes effect at once.
func (k *Keys) Principal(ctx context.Context, key models.AgentKey) (models.Principal, error) {
	keys, err := k.live(ctx, key.AgentID, Ed25519)
	if err != nil {
		return models.Principal{}, err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(live models.AgentKey) bool { return live.KeyID != key.KeyID })
	return speaker(ctx, k.store, key.AgentID, keys)
}

// speaker returns the principal of an agent, one of whose valid keys must replace a token.
func speaker(ctx context.Context, s *store.Store, agentID string, keys []models.AgentKey) (models.Principal, error) {
	i := slices.IndexFunc(keys, func(key models.AgentKey) bool { return key.SignatureOnly })
	if i < 0 {
		return models.Principal{}, errs.New(errs.Unauthenticated, "the agent %q needs a token, because no valid key with which it signs replaces one (signature_only)", agentID)
	}
	agent, err := s.Agents(ctx).Get(agentID)
	if err == nil && !agent.IsActive {
		err = errs.New(errs.AgentInactive, "the agent %q is inactive", agentID)
	}
	if err != nil {
		return models.Principal{}, err
	}
	return models.Principal{
		TokenID: speakerPrefix + agentID, Name: speakerPrefix + agentID + "/" + keys[i].KeyID,
		Scopes: []models.Scope{models.ScopeMessagesSend}, AgentID: &agentID,
	}, nil
}

// standingSpeaker is Standing for the principals of Keys.Principal; ok is false for others.
func (a *Auth) standingSpeaker(ctx context.Context, by models.Principal) (p models.Principal, ok bool, err error) {
	agentID, ok := strings.CutPrefix(by.TokenID, speakerPrefix)
	if !ok {
		return p, false, nil
	}
	keys, err := signatures.Live(a.store.Reads(ctx), agentID, a.store.Now())
	if err == nil {
		p, err = speaker(ctx, a.store, agentID, keys)
	}
	return p, true, err
}
