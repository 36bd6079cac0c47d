package auth_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/registry"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// keyRule runs one case on a fresh registry of every kind of database.
func keyRule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
			fn(t, db)
		})
	})
}

const (
	keyed  = "orch-scholar"
	agreed = "a key that was agreed on"
)

// TestAKey (PROTOCOL_V5 §11.2).
func TestAKey(t *testing.T) {
	t.Parallel()
	keyRule(t, "that is made has 256 bits, and is another each time", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		seen := map[string]bool{}
		for range 3 {
			issued, err := keys.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{})
			require.NoError(t, err)
			require.Regexp(t, `^[0-9a-f]{64}$`, issued.Secret)
			require.Equal(t, len(seen) == 0, issued.First)
			seen[issued.Secret] = true
			used, err := keys.Signing(t.Context(), keyed, auth.HMACSHA256)
			require.NoError(t, err)
			require.Equal(t, issued.Secret, used.Secret, "what is shown is what signs, as it is written")
		}
		require.Len(t, seen, 3)
	})
	keyRule(t, "is not shown again, and its fingerprint tells which it is", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		issued, err := keys.Issue(t.Context(), models.Principal{Name: "ops"}, keyed, auth.AgentKeyDraft{Key: new(agreed), Required: new(true)})
		require.NoError(t, err)
		require.Empty(t, issued.Secret, "the client has an imported key")
		got, err := keys.Get(t.Context(), keyed, auth.HMACSHA256)
		require.NoError(t, err)
		require.Equal(t, models.AgentKey{
			AgentID: keyed, KeyID: got.KeyID, Algorithm: auth.HMACSHA256, Fingerprint: "3b8c1787", Required: true, CreatedAt: db.Now(), CreatedBy: "ops",
		}, got)
		require.Equal(t, got, issued.Key)
		require.Regexp(t, `^[0-9a-f]{16}$`, got.KeyID)
	})
	keyRule(t, "that takes the place of another one stays as strict", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		for _, d := range []auth.AgentKeyDraft{{Required: new(true)}, {}, {Key: new(agreed)}} {
			issued, err := keys.Issue(t.Context(), models.System(), keyed, d)
			require.NoError(t, err)
			require.True(t, issued.Key.Required)
		}
		got, err := keys.Require(t.Context(), models.System(), keyed, auth.HMACSHA256, auth.AgentKeyChange{Required: new(false)})
		require.NoError(t, err)
		require.False(t, got.Required)
		require.Empty(t, got.Secret)
		used, err := keys.Signing(t.Context(), keyed, auth.HMACSHA256)
		require.NoError(t, err)
		require.Equal(t, []any{agreed, false}, []any{used.Secret, used.Required}, "and the key stays")
	})
	keyRule(t, "that is none is refused without being shown", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		for key, rule := range map[string]string{
			"": "min", strings.Repeat("k", 15): "min", strings.Repeat("k", 129): "max", agreed + "\x7f": "printable", agreed + "\xff": "printable",
		} {
			_, err := keys.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{Key: &key})
			require.True(t, errs.Is(err, errs.InvalidRequest), "%q", key)
			require.Equal(t, rule, errs.From(err).Fields[0].Rule)
			if len(key) > 0 {
				require.NotContains(t, err.Error(), key)
			}
		}
		_, err := keys.Issue(t.Context(), models.System(), "no-such-agent", auth.AgentKeyDraft{})
		require.True(t, errs.Is(err, errs.NotFound))
		_, err = keys.Require(t.Context(), models.System(), keyed, auth.HMACSHA256, auth.AgentKeyChange{Required: new(true)})
		require.True(t, errs.Is(err, errs.NotFound))
		require.True(t, errs.Is(keys.Revoke(t.Context(), models.System(), keyed, auth.HMACSHA256), errs.NotFound))
	})
	keyRule(t, "leaves a trail that does not hold it", func(t *testing.T, db *storetest.DB) {
		keys, by := auth.NewKeys(db.Store, nil), models.Principal{Name: "ops", TokenID: "t1"}
		issued, err := keys.Issue(t.Context(), by, keyed, auth.AgentKeyDraft{})
		require.NoError(t, err)
		for range 2 { // the second time changes nothing
			_, err = keys.Require(t.Context(), by, keyed, auth.HMACSHA256, auth.AgentKeyChange{Required: new(true)})
			require.NoError(t, err)
		}
		require.NoError(t, keys.Revoke(t.Context(), by, keyed, auth.HMACSHA256))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
		events, err := db.Events(t.Context()).Between(0, 1000, []models.EventType{events.KeyIssued, events.KeyChanged, events.KeyRevoked}, 10)
		require.NoError(t, err)
		require.Len(t, events, 3)
		require.JSONEq(t, fmt.Sprintf(`{"agent_id":%q,"algorithm":"hmac-sha256","fingerprint":%q,"required":true,"actor":"ops"}`, keyed, issued.Key.Fingerprint), string(events[2].Data))
		trail, err := db.Agents(t.Context()).AuditTrail(keyed, 0, 3)
		require.NoError(t, err)
		var actions []models.AuditAction
		for _, e := range trail {
			actions = append(actions, e.Action)
			require.Equal(t, []string{"ops", "t1"}, []string{e.Actor, e.ActorID})
		}
		require.Equal(t, []models.AuditAction{models.AuditKeyRevoked, models.AuditKeyChanged, models.AuditKeyIssued}, actions)
		all, err := json.Marshal([]any{trail, events})
		require.NoError(t, err)
		require.NotContains(t, string(all), issued.Secret)
	})
}

// TestAKeyThatEnds does so at once where it was ended, and within a second elsewhere.
func TestAKeyThatEnds(t *testing.T) {
	t.Parallel()
	keyRule(t, "is believed for less than a second by another replica", func(t *testing.T, db *storetest.DB) {
		steady := time.Now() // stands for the monotonic clock
		here, elsewhere := auth.NewKeys(db.Store, nil), auth.NewKeys(db.Store, &auth.KeysOptions{Clock: func() time.Time { return steady }})
		_, err := here.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{Key: new(agreed)})
		require.NoError(t, err)
		has := func(k *auth.Keys) bool {
			key, err := k.Signing(t.Context(), keyed, auth.HMACSHA256)
			require.NoError(t, err)
			return key.Secret == agreed
		}
		require.True(t, has(here))
		require.True(t, has(elsewhere))
		require.NoError(t, here.Revoke(t.Context(), models.System(), keyed, auth.HMACSHA256))
		require.False(t, has(here), "at once")
		require.True(t, has(elsewhere), "it is not looked up for every line")
		steady = steady.Add(time.Second)
		require.False(t, has(elsewhere))
		_, err = here.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{Key: new(agreed)})
		require.NoError(t, err)
		require.True(t, has(here), "that there was none is not believed for longer either")
		require.False(t, has(elsewhere))
		steady = steady.Add(time.Second)
		require.True(t, has(elsewhere))
	})
	keyRule(t, "is not remembered by a look-up that began before", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		for range 20 {
			_, err := keys.Issue(t.Context(), models.System(), keyed, auth.AgentKeyDraft{Key: new(agreed)})
			require.NoError(t, err)
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() { _, _ = keys.Signing(t.Context(), keyed, auth.HMACSHA256) })
			}
			require.NoError(t, keys.Revoke(t.Context(), models.System(), keyed, auth.HMACSHA256))
			key, err := keys.Signing(t.Context(), keyed, auth.HMACSHA256)
			require.NoError(t, err)
			require.Empty(t, key.Secret)
			readers.Wait()
		}
	})
}

// TestTakeOnce: what is noted once is not noted again, and a line of which a part is
// refused leaves nothing.
func TestTakeOnce(t *testing.T) {
	t.Parallel()
	keyRule(t, "all of it or nothing", func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, &auth.KeysOptions{Window: time.Hour})
		take := func(marks ...string) bool {
			err := keys.TakeOnce(t.Context(), "v5", keyed, marks...)
			if err != nil {
				require.True(t, errs.Is(err, errs.Conflict), err)
			}
			return err == nil
		}
		require.True(t, take("a", "b"))
		require.False(t, take("c", "b"))
		require.True(t, take("c", "d"))
		require.NoError(t, keys.TakeOnce(t.Context(), "v5", "orch-social", "a", "b"))
		require.NoError(t, keys.TakeOnce(t.Context(), "another-protocol", keyed, "a", "b"))
		db.Clock.Advance(time.Hour)
		require.NoError(t, keys.Purge(t.Context()))
		require.False(t, take("a"))
		db.Clock.Advance(time.Microsecond)
		require.True(t, take("a"))
	})
}
