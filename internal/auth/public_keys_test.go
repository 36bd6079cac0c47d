package auth_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/registry"
	"comet/internal/wire/genesis"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return private
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// pin pins the public key of a key to an agent.
func pin(t *testing.T, keys *auth.Keys, agentID string, key ed25519.PrivateKey, d auth.PublicKeyDraft) models.AgentKey {
	t.Helper()
	d.PublicKey = publicOf(key)
	out, err := keys.Pin(t.Context(), models.Principal{Name: "ops", TokenID: "t1"}, agentID, d, nil)
	require.NoError(t, err)
	return out
}

// replica returns another program's store on the database, on SQLite that of the only program.
func replica(t *testing.T, db *storetest.DB) *store.Store {
	t.Helper()
	if db.Alone() {
		return db.Store
	}
	s, err := store.Open(t.Context(), db.Options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newMessage returns a parsed REQUEST, signed unless the key is nil.
func newMessage(t *testing.T, from string, key ed25519.PrivateKey, profile genesis.Profile) genesis.Message {
	t.Helper()
	m := genesis.Message{ID: uuid.NewString(), From: from, To: "nova", Timestamp: time.Now().UnixNano(), Body: genesis.Request{
		Intent: "analyze_data", Entities: []genesis.Entity{}, Payload: []byte(`{"n":1}`), Context: []byte(`{}`), Priority: genesis.Normal,
	}}
	if key == nil {
		return m
	}
	require.NoError(t, m.Sign(key, profile))
	return m
}

// verify verifies a message as a protocol does and returns the form that was verified.
func verify(t *testing.T, keys *auth.Keys, agentID string, m genesis.Message) (key models.AgentKey, form genesis.Form, err error) {
	t.Helper()
	key, err = keys.VerifyMessage(t.Context(), agentID, auth.SignedMessage{
		Public: m.PublicKey, V1: len(m.Signature) > 0, JCS: len(m.SignatureJCS) > 0,
		Verify: func(key ed25519.PublicKey, profile string) (err error) {
			forms := []genesis.Form{genesis.AsSent, genesis.AsJavaScript}
			if profile == auth.ProfileJCS {
				forms = []genesis.Form{genesis.JCS}
			}
			form, err = m.Verify(key, forms...)
			return err
		},
	})
	return key, form, err
}

// TestPinnedKeys manages the public keys of an agent.
func TestPinnedKeys(t *testing.T) {
	t.Parallel()
	keyRule(t, "at most four are valid", func(t *testing.T, db *storetest.DB) {
		keys, by := auth.NewKeys(db.Store, nil), models.System()
		expires := db.Now().Add(time.Hour)
		var first models.AgentKey
		for i := range 4 {
			d := auth.PublicKeyDraft{}
			if i == 0 {
				d.NotAfter = &expires
			}
			key := pin(t, keys, keyed, newKey(t), d)
			if i == 0 {
				first = key
			}
		}
		fifth := auth.PublicKeyDraft{PublicKey: publicOf(newKey(t))}
		_, err := keys.Pin(t.Context(), by, keyed, fifth, nil)
		require.True(t, errs.Is(err, errs.LimitReached), err)
		require.ErrorContains(t, err, "has 4 valid public keys, which is the maximum; revoke one of them first")
		db.Clock.Advance(time.Hour) // the first one has expired
		added, err := keys.Pin(t.Context(), by, keyed, fifth, nil)
		require.NoError(t, err)
		_, err = keys.Change(t.Context(), by, keyed, first.KeyID, auth.PublicKeyChange{NotAfter: models.Optional[time.Time]{Set: true, Null: true}})
		require.True(t, errs.Is(err, errs.LimitReached), err)
		require.NoError(t, keys.RevokePublic(t.Context(), by, keyed, added.KeyID))
		require.NoError(t, keys.RevokePublic(t.Context(), by, keyed, added.KeyID), "again")
		changed, err := keys.Change(t.Context(), by, keyed, first.KeyID, auth.PublicKeyChange{NotAfter: models.Optional[time.Time]{Set: true, Null: true}})
		require.NoError(t, err)
		require.Nil(t, changed.NotAfter)
		listed, err := keys.List(t.Context(), keyed)
		require.NoError(t, err)
		require.Len(t, listed, 5)
		require.Equal(t, added.KeyID, listed[4].KeyID, "revoked keys are last")
		require.Equal(t, new(db.Now()), listed[4].RevokedAt)
	})
	keyRule(t, "concurrent additions do not exceed the limit", func(t *testing.T, db *storetest.DB) {
		stores := []*store.Store{db.Store, replica(t, db)}
		var added atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			key := publicOf(newKey(t))
			all.Go(func() {
				_, err := auth.NewKeys(stores[i%2], nil).Pin(t.Context(), models.System(), keyed, auth.PublicKeyDraft{PublicKey: key}, nil)
				if err == nil {
					added.Add(1)
				} else if !errs.Is(err, errs.LimitReached) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 4, added.Load())
	})
	keyRule(t, "a key belongs to one agent, for good", func(t *testing.T, db *storetest.DB) {
		keys, key := auth.NewKeys(db.Store, nil), newKey(t)
		d := auth.PublicKeyDraft{PublicKey: publicOf(key)}
		pinned := pin(t, keys, keyed, key, auth.PublicKeyDraft{})
		for agentID, want := range map[string]string{keyed: "already has this public key, as " + pinned.KeyID, "orch-social": "another agent has or had this public key"} {
			_, err := keys.Pin(t.Context(), models.System(), agentID, d, nil)
			require.True(t, errs.Is(err, errs.Conflict), err)
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, keys.RevokePublic(t.Context(), models.System(), keyed, pinned.KeyID))
		for agentID, want := range map[string]string{keyed: "was revoked and cannot be used again", "orch-social": "another agent has or had this public key"} {
			_, err := keys.Pin(t.Context(), models.System(), agentID, d, nil)
			require.True(t, errs.Is(err, errs.Conflict), err)
			require.ErrorContains(t, err, want)
		}
		_, err := keys.Change(t.Context(), models.System(), keyed, pinned.KeyID, auth.PublicKeyChange{Required: models.Some(true)})
		require.True(t, errs.Is(err, errs.Conflict), err)

		stores := []*store.Store{db.Store, replica(t, db)}
		other := auth.PublicKeyDraft{PublicKey: publicOf(newKey(t))}
		failures := make([]error, 2)
		var all sync.WaitGroup
		for i, agentID := range []string{keyed, "orch-social"} {
			all.Go(func() {
				_, failures[i] = auth.NewKeys(stores[i], nil).Pin(t.Context(), models.System(), agentID, other, nil)
			})
		}
		all.Wait()
		require.Len(t, slices.DeleteFunc(slices.Clone(failures), func(err error) bool { return err == nil }), 1, failures)
		require.True(t, errs.Is(errors.Join(failures...), errs.Conflict), failures)
	})
	keyRule(t, "invalid requests", func(t *testing.T, db *storetest.DB) {
		keys, by := auth.NewKeys(db.Store, nil), models.System()
		for pointer, d := range map[string]auth.PublicKeyDraft{
			"/public_key": {PublicKey: make([]byte, 31)},
			"/not_after":  {PublicKey: publicOf(newKey(t)), NotAfter: new(db.Now())},
			"/profile":    {PublicKey: publicOf(newKey(t)), Profile: "v2"},
		} {
			_, err := keys.Pin(t.Context(), by, keyed, d, nil)
			require.True(t, errs.Is(err, errs.InvalidRequest), err)
			require.Equal(t, pointer, errs.From(err).Fields[0].Pointer)
		}
		key := pin(t, keys, keyed, newKey(t), auth.PublicKeyDraft{})
		_, err := keys.Change(t.Context(), by, keyed, key.KeyID, auth.PublicKeyChange{NotAfter: models.Some(db.Now())})
		require.True(t, errs.Is(err, errs.InvalidRequest), err)
		_, pinErr := keys.Pin(t.Context(), by, "unknown", auth.PublicKeyDraft{PublicKey: publicOf(newKey(t))}, nil)
		_, listErr := keys.List(t.Context(), "unknown")
		_, getErr := keys.Public(t.Context(), "orch-social", key.KeyID)
		_, changeErr := keys.Change(t.Context(), by, "orch-social", key.KeyID, auth.PublicKeyChange{})
		for _, err := range []error{pinErr, listErr, getErr, changeErr, keys.RevokePublic(t.Context(), by, "orch-social", key.KeyID)} {
			require.True(t, errs.Is(err, errs.NotFound), err)
		}
	})
	keyRule(t, "events and audit records", func(t *testing.T, db *storetest.DB) {
		keys, by := auth.NewKeys(db.Store, nil), models.Principal{Name: "ops", TokenID: "t1"}
		expires := db.Now().Add(time.Hour)
		key := pin(t, keys, keyed, newKey(t), auth.PublicKeyDraft{Profile: auth.ProfileJCS, Required: true})
		for range 2 { // the second time changes nothing
			changed, err := keys.Change(t.Context(), by, keyed, key.KeyID, auth.PublicKeyChange{Profile: models.Some("v1"), SignatureOnly: models.Some(true), NotAfter: models.Some(expires)})
			require.NoError(t, err)
			require.Equal(t, []any{"v1", true, true, expires}, []any{changed.Profile, changed.Required, changed.SignatureOnly, *changed.NotAfter})
		}
		require.NoError(t, keys.RevokePublic(t.Context(), by, keyed, key.KeyID))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
		found, err := db.Events(t.Context()).Between(0, 1000, []models.EventType{events.KeyIssued, events.KeyChanged, events.KeyRevoked}, 10)
		require.NoError(t, err)
		require.Len(t, found, 3)
		require.JSONEq(t, fmt.Sprintf(`{"agent_id":%q,"algorithm":"ed25519","fingerprint":%q,"required":true,"actor":"ops","key_id":%q,"profile":"jcs"}`, keyed, key.KeyID[:8], key.KeyID), string(found[0].Data))
		require.JSONEq(t, fmt.Sprintf(`{"agent_id":%q,"algorithm":"ed25519","fingerprint":%q,"required":true,"actor":"ops","key_id":%q,"profile":"v1","signature_only":true,"not_after":"2026-01-10T16:30:00Z"}`, keyed, key.KeyID[:8], key.KeyID), string(found[2].Data))
		trail, err := db.Agents(t.Context()).AuditTrail(keyed, 0, 3)
		require.NoError(t, err)
		text, err := json.Marshal(trail[1].Changes)
		require.NoError(t, err)
		require.JSONEq(t, `[{"field":"key_profile","from":"jcs","to":"v1"},{"field":"key_signature_only","from":false,"to":true},{"field":"key_not_after","from":null,"to":"2026-01-10T16:30:00Z"}]`, string(text))
	})
	keyRule(t, "the secret of PROTOCOL_V5 is independent", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		key := pin(t, keys, keyed, newKey(t), auth.PublicKeyDraft{Required: true})
		_, err := keys.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{Key: new(agreed)})
		require.NoError(t, err)
		require.NoError(t, keys.RevokePublic(t.Context(), models.System(), keyed, key.KeyID))
		secret, err := keys.Signing(t.Context(), keyed, auth.HMACSHA256)
		require.NoError(t, err)
		require.Equal(t, []any{agreed, false}, []any{secret.Secret, secret.Required})
		public, err := keys.Signing(t.Context(), keyed, auth.Ed25519)
		require.NoError(t, err)
		require.Zero(t, public)
		listed, err := keys.List(t.Context(), keyed)
		require.NoError(t, err)
		require.Len(t, listed, 1)
	})
}

// TestVerifyMessage verifies messages of Genesis.
func TestVerifyMessage(t *testing.T) {
	t.Parallel()
	keyRule(t, "profiles", func(t *testing.T, db *storetest.DB) {
		keys, v1, jcs := auth.NewKeys(db.Store, nil), newKey(t), newKey(t)
		pin(t, keys, keyed, v1, auth.PublicKeyDraft{})
		pin(t, keys, keyed, jcs, auth.PublicKeyDraft{Profile: auth.ProfileJCS})
		for _, c := range []struct {
			name    string
			key     ed25519.PrivateKey
			profile genesis.Profile
			form    genesis.Form
			refusal auth.Refusal
		}{
			{"v1 with v1", v1, genesis.ProfileV1, genesis.AsSent, ""},
			{"v1 with both", v1, genesis.ProfileJCS, genesis.JCS, ""},
			{"jcs with both", jcs, genesis.ProfileJCS, genesis.JCS, ""},
			{"jcs with v1", jcs, genesis.ProfileV1, 0, auth.SignatureRequired},
		} {
			key, form, err := verify(t, keys, keyed, newMessage(t, keyed, c.key, c.profile))
			require.Equal(t, c.refusal, auth.RefusalOf(err), c.name)
			require.Equal(t, c.refusal == "", err == nil, c.name)
			if err == nil {
				require.Equal(t, base64.StdEncoding.EncodeToString(publicOf(c.key)), key.PublicKey, c.name)
				require.Equal(t, c.form, form, c.name)
			}
		}
		for name, change := range map[string]func(*genesis.Message){
			"another v1 signature":                  func(m *genesis.Message) { m.SignatureJCS, m.Signature[0] = nil, m.Signature[0]^1 },
			"another jcs signature, valid v1":       func(m *genesis.Message) { m.SignatureJCS[0] ^= 1 },
			"the v1 signature as the jcs signature": func(m *genesis.Message) { m.SignatureJCS = m.Signature },
		} {
			m := newMessage(t, keyed, v1, genesis.ProfileJCS)
			change(&m)
			_, _, err := verify(t, keys, keyed, m)
			require.Equal(t, auth.SignatureInvalid, auth.RefusalOf(err), name)
			wire, ok := errors.AsType[*genesis.Error](err)
			require.True(t, ok, "the cause is known")
			require.Equal(t, genesis.CodeSignatureInvalid, wire.Code)
		}
	})
	keyRule(t, "required", func(t *testing.T, db *storetest.DB) {
		keys, key := auth.NewKeys(db.Store, nil), newKey(t)
		unsigned := newMessage(t, keyed, nil, "")
		accepted := func(want auth.Refusal) {
			t.Helper()
			key, _, err := verify(t, keys, keyed, unsigned)
			require.Equal(t, want, auth.RefusalOf(err))
			require.Equal(t, want == "", err == nil)
			require.Zero(t, key)
		}
		accepted("")
		pinned := pin(t, keys, keyed, key, auth.PublicKeyDraft{})
		accepted("")
		_, err := keys.Change(t.Context(), models.System(), keyed, pinned.KeyID, auth.PublicKeyChange{Required: models.Some(true)})
		require.NoError(t, err)
		pin(t, keys, keyed, newKey(t), auth.PublicKeyDraft{})
		accepted(auth.SignatureRequired)
		require.NoError(t, keys.RevokePublic(t.Context(), models.System(), keyed, pinned.KeyID))
		accepted("")
	})
	keyRule(t, "unknown keys are not told apart", func(t *testing.T, db *storetest.DB) {
		keys, expired, revoked, others := auth.NewKeys(db.Store, nil), newKey(t), newKey(t), newKey(t)
		pin(t, keys, keyed, expired, auth.PublicKeyDraft{NotAfter: new(db.Now().Add(time.Minute))})
		_, _, err := verify(t, keys, keyed, newMessage(t, keyed, expired, genesis.ProfileV1))
		require.NoError(t, err)
		db.Clock.Advance(time.Minute)
		require.NoError(t, keys.RevokePublic(t.Context(), models.System(), keyed, pin(t, keys, keyed, revoked, auth.PublicKeyDraft{}).KeyID))
		pin(t, keys, "orch-social", others, auth.PublicKeyDraft{})
		texts := map[string]bool{}
		for _, from := range []string{keyed, "unknown", "orch-business"} {
			for _, key := range []ed25519.PrivateKey{expired, revoked, others, newKey(t)} {
				_, _, err := verify(t, keys, from, newMessage(t, from, key, genesis.ProfileJCS))
				require.Equal(t, auth.KeyUnknown, auth.RefusalOf(err))
				texts[err.Error()] = true
			}
		}
		m := newMessage(t, keyed, others, genesis.ProfileV1)
		m.PublicKey = nil
		_, _, err = verify(t, keys, keyed, m)
		texts[err.Error()] = true
		require.Len(t, texts, 1)
	})
	keyRule(t, "replicas", func(t *testing.T, db *storetest.DB) {
		steady := time.Now()
		here, elsewhere := auth.NewKeys(db.Store, nil), auth.NewKeys(replica(t, db), &auth.KeysOptions{Clock: func() time.Time { return steady }})
		key, next := newKey(t), newKey(t)
		_, _, err := verify(t, elsewhere, keyed, newMessage(t, keyed, key, genesis.ProfileV1))
		require.Equal(t, auth.KeyUnknown, auth.RefusalOf(err))
		pinned := pin(t, here, keyed, key, auth.PublicKeyDraft{})
		for _, one := range []*auth.Keys{here, elsewhere} {
			_, _, err = verify(t, one, keyed, newMessage(t, keyed, key, genesis.ProfileV1))
			require.NoError(t, err, "at once")
		}
		pin(t, here, keyed, next, auth.PublicKeyDraft{})
		require.NoError(t, here.RevokePublic(t.Context(), models.System(), keyed, pinned.KeyID))
		_, _, err = verify(t, here, keyed, newMessage(t, keyed, key, genesis.ProfileV1))
		require.Equal(t, auth.KeyUnknown, auth.RefusalOf(err), "at once")
		_, _, err = verify(t, elsewhere, keyed, newMessage(t, keyed, key, genesis.ProfileV1))
		require.NoError(t, err, "keys are not read for every message")
		steady = steady.Add(time.Second)
		_, _, err = verify(t, elsewhere, keyed, newMessage(t, keyed, key, genesis.ProfileV1))
		require.Equal(t, auth.KeyUnknown, auth.RefusalOf(err))
		_, _, err = verify(t, elsewhere, keyed, newMessage(t, keyed, next, genesis.ProfileV1))
		require.NoError(t, err)
	})
}

// TestRotationUnderLoad rotates a key with an overlap while an agent sends messages to two replicas.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	keyRule(t, "no message is refused", func(t *testing.T, db *storetest.DB) {
		replicas := []*auth.Keys{auth.NewKeys(db.Store, nil), auth.NewKeys(replica(t, db), nil)}
		var current atomic.Pointer[ed25519.PrivateKey]
		key := newKey(t)
		id := pin(t, replicas[0], keyed, key, auth.PublicKeyDraft{Required: true}).KeyID
		current.Store(&key)
		stop, sent := make(chan struct{}), atomic.Int64{}
		var senders sync.WaitGroup
		var sending sync.RWMutex // a sender has stopped using the former key before that is revoked
		for i := range 4 {
			senders.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					sending.RLock()
					_, _, err := verify(t, replicas[i%2], keyed, newMessage(t, keyed, *current.Load(), genesis.ProfileJCS))
					sending.RUnlock()
					if err != nil {
						t.Error(err)
						return
					}
					sent.Add(1)
				}
			})
		}
		defer senders.Wait()
		defer close(stop)
		for i := range 10 {
			next := newKey(t)
			nextID := pin(t, replicas[i%2], keyed, next, auth.PublicKeyDraft{Required: true}).KeyID
			sending.Lock()
			current.Store(&next)
			sending.Unlock()
			require.NoError(t, replicas[(i+1)%2].RevokePublic(t.Context(), models.System(), keyed, id))
			id = nextID
			before := sent.Load()
			require.Eventually(t, func() bool { return sent.Load() > before+8 }, 30*time.Second, time.Millisecond)
		}
	})
}

// TestTakeMessage tells repetitions of a message from other messages with the same id.
func TestTakeMessage(t *testing.T) {
	t.Parallel()
	keyRule(t, "in the transaction of the caller", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, &auth.KeysOptions{Window: time.Minute})
		elsewhere, other := auth.NewKeys(replica(t, db), &auth.KeysOptions{Window: time.Minute}), replica(t, db)
		failed := errors.New("the effect failed")
		take := func(k *auth.Keys, s *store.Store, scope, agentID, id, content string, fail error) (repeated bool, err error) {
			err = s.Write(t.Context(), func(tx *store.Tx) error {
				if repeated, err = k.TakeMessage(tx, scope, agentID, id, []byte(content)); err != nil {
					return err
				}
				return fail
			})
			return repeated, err
		}
		_, err := take(keys, db.Store, "genesis", keyed, "id-1", "a", failed)
		require.ErrorIs(t, err, failed)
		for i, want := range []bool{false, true, true} {
			repeated, err := take(keys, db.Store, "genesis", keyed, "id-1", "a", nil)
			require.NoError(t, err)
			require.Equal(t, want, repeated, "%d: the failed transaction has recorded nothing", i)
		}
		repeated, err := take(elsewhere, other, "genesis", keyed, "id-1", "a", nil)
		require.NoError(t, err)
		require.True(t, repeated, "on another replica")
		_, err = take(elsewhere, other, "genesis", keyed, "id-1", "b", nil)
		require.True(t, errs.Is(err, errs.Conflict), err)
		for _, c := range [][3]string{{"genesis", keyed, "id-2"}, {"genesis", "orch-social", "id-1"}, {"lines", keyed, "id-1"}} {
			repeated, err = take(keys, db.Store, c[0], c[1], c[2], "b", nil)
			require.NoError(t, err)
			require.False(t, repeated, "another id, agent and scope")
		}
		db.Clock.Advance(15 * time.Minute)
		require.NoError(t, keys.Purge(t.Context()))
		repeated, err = take(keys, db.Store, "genesis", keyed, "id-1", "a", nil)
		require.NoError(t, err)
		require.True(t, repeated, "twice the accepted skew and more, although the window is shorter")
		db.Clock.Advance(time.Microsecond)
		repeated, err = take(keys, db.Store, "genesis", keyed, "id-1", "b", nil)
		require.NoError(t, err)
		require.False(t, repeated)
		_, err = take(keys, db.Store, "genesis", keyed, "id-1", "a", nil)
		require.True(t, errs.Is(err, errs.Conflict), "the new content has replaced the former: %v", err)
	})
	keyRule(t, "once of many at the same time", func(t *testing.T, db *storetest.DB) {
		stores := []*store.Store{db.Store, replica(t, db)}
		keys := auth.NewKeys(db.Store, nil)
		var first, repeated, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				again := false
				err := stores[i%2].Write(t.Context(), func(tx *store.Tx) (err error) {
					again, err = keys.TakeMessage(tx, "genesis", keyed, "id", []byte{byte(i % 3 / 2)})
					return err
				})
				switch {
				case errs.Is(err, errs.Conflict):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case again:
					repeated.Add(1)
				default:
					first.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, first.Load())
		require.EqualValues(t, 23, repeated.Load()+refused.Load())
		require.Contains(t, []int64{8, 16}, refused.Load(), "the content that was not the first")
	})
}

// TestPrincipalOfKey: a signature with a key of signature_only replaces a token.
func TestPrincipalOfKey(t *testing.T) {
	t.Parallel()
	keyRule(t, "bound to the agent, and ends with the key", func(t *testing.T, db *storetest.DB) {
		keys, tokens := auth.NewKeys(db.Store, nil), auth.New(db.Store, nil)
		key, next, silent := newKey(t), newKey(t), newKey(t)
		spoken, quiet := pin(t, keys, keyed, key, auth.PublicKeyDraft{SignatureOnly: true}), pin(t, keys, keyed, silent, auth.PublicKeyDraft{})
		by, err := keys.Principal(t.Context(), spoken)
		require.NoError(t, err)
		require.Equal(t, models.Principal{TokenID: "key:" + keyed, Name: "key:" + keyed + "/" + spoken.KeyID, Scopes: []models.Scope{models.ScopeMessagesSend}, AgentID: new(keyed)}, by)
		for _, none := range []models.AgentKey{quiet, {}, {AgentID: keyed, KeyID: "unknown", SignatureOnly: true}, {AgentID: "orch-social", KeyID: spoken.KeyID}} {
			_, err = keys.Principal(t.Context(), none)
			require.True(t, errs.Is(err, errs.Unauthenticated), err)
		}
		agents := db.Agents(t.Context())
		require.NoError(t, agents.Confine(by, keyed))
		require.True(t, errs.Is(agents.Confine(by, "orch-social"), errs.ForeignAgent))
		_, err = tokens.Create(t.Context(), by, auth.TokenDraft{Name: new("mine"), Scopes: []models.Scope{models.ScopeMessagesSend}}, nil)
		require.True(t, errs.Is(err, errs.MissingScope), err)
		own, err := tokens.CanRead(t.Context(), by, "key:"+keyed)
		require.NoError(t, err)
		require.True(t, own)

		added := pin(t, keys, keyed, next, auth.PublicKeyDraft{SignatureOnly: true})
		require.NoError(t, keys.RevokePublic(t.Context(), models.System(), keyed, spoken.KeyID))
		_, err = keys.Principal(t.Context(), spoken)
		require.True(t, errs.Is(err, errs.Unauthenticated), err)
		rotated, err := keys.Principal(t.Context(), added)
		require.NoError(t, err)
		require.Equal(t, by.TokenID, rotated.TokenID, "the agent owns what it owned before")
		standing, err := tokens.Standing(t.Context(), models.Principal{TokenID: by.TokenID, Name: by.Name})
		require.NoError(t, err)
		require.Equal(t, rotated, standing)
		_, err = keys.Change(t.Context(), models.System(), keyed, added.KeyID, auth.PublicKeyChange{SignatureOnly: models.Some(false)})
		require.NoError(t, err)
		_, err = keys.Principal(t.Context(), added)
		require.True(t, errs.Is(err, errs.Unauthenticated), err)
		_, err = tokens.Standing(t.Context(), by)
		require.True(t, errs.Is(err, errs.Unauthenticated), err)
	})
	keyRule(t, "ends with the agent", func(t *testing.T, db *storetest.DB) {
		keys, tokens, reg := auth.NewKeys(db.Store, nil), auth.New(db.Store, nil), registry.New(db.Store, nil)
		_, err := reg.Create(t.Context(), models.System(), models.AgentDraft{ID: new("speaker"), Name: new("speaker"), Level: new(models.LevelSpecialist), FrequencyHz: new(555), ParentID: new(keyed), Capabilities: []string{"chat"}}, nil)
		require.NoError(t, err)
		key := pin(t, keys, "speaker", newKey(t), auth.PublicKeyDraft{SignatureOnly: true})
		by, err := keys.Principal(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, reg.Deactivate(t.Context(), models.System(), "speaker", nil))
		_, err = keys.Principal(t.Context(), key)
		require.True(t, errs.Is(err, errs.AgentInactive), err)
		_, err = tokens.Standing(t.Context(), by)
		require.True(t, errs.Is(err, errs.AgentInactive), err)
		require.NotContains(t, err.Error(), key.PublicKey)
	})
}
