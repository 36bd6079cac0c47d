package auth_test

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/reseal"
	"comet/store/seal"
	"comet/store/storetest"
)

func ids(keys []auth.ServiceKey) (out []string) {
	for _, k := range keys {
		out = append(out, k.ID)
	}
	return out
}

func TestServiceKeys(t *testing.T) {
	t.Parallel()
	keyRule(t, "replicas agree on the first one", func(t *testing.T, db *storetest.DB) {
		ring, err := seal.Parse(seal.NewKey())
		require.NoError(t, err)
		stores := []*store.Store{db.Store, replica(t, db)}
		found := make([]auth.ServiceKey, 8)
		var all sync.WaitGroup
		for i := range found {
			all.Go(func() {
				var err error
				if found[i], err = auth.NewServiceKeys(stores[i%2], ring, nil).Current(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, key := range found {
			require.Equal(t, found[0], key)
		}
		require.Regexp(t, `^[0-9a-f]{16}$`, found[0].ID)
		require.True(t, ed25519.Verify(found[0].Public, []byte("text"), ed25519.Sign(found[0].Private, []byte("text"))))
		seeds, err := store.Rows[[]byte](db.Reads(t.Context()), "SELECT seed FROM service_keys")
		require.NoError(t, err)
		require.Len(t, seeds, 1)
		require.Regexp(t, "^sealed:1:", string(seeds[0]), "it is encrypted")
		opened, err := ring.Open("service_keys.seed", seeds[0])
		require.NoError(t, err)
		require.Equal(t, found[0].Private.Seed(), opened)
	})
	keyRule(t, "rotation", func(t *testing.T, db *storetest.DB) {
		steady := time.Now()
		here, elsewhere := auth.NewServiceKeys(db.Store, nil, nil), auth.NewServiceKeys(replica(t, db), nil, &auth.KeysOptions{Clock: func() time.Time { return steady }})
		first, err := here.Current(t.Context())
		require.NoError(t, err)
		cached, err := elsewhere.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, cached)
		db.Clock.Advance(time.Minute)
		second, err := here.Rotate(t.Context(), models.Principal{Name: "ops"})
		require.NoError(t, err)
		require.Nil(t, second.Private)
		current, err := here.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, second.ID, current.ID, "at once")
		cached, err = elsewhere.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.ID, cached.ID)
		steady = steady.Add(time.Second)
		for _, one := range []*auth.ServiceKeys{here, elsewhere} {
			public, err := one.Public(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{second.ID, first.ID}, ids(public))
			require.Equal(t, new(db.Now()), public[1].RetiredAt)
			require.False(t, slices.ContainsFunc(public, func(k auth.ServiceKey) bool { return k.Private != nil }))
		}
		seeds, err := store.Rows[int](db.Reads(t.Context()), "SELECT length(seed) FROM service_keys WHERE retired_at IS NOT NULL")
		require.NoError(t, err)
		require.Equal(t, []int{0}, seeds, "the private key is erased")
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
		found, err := db.Events(t.Context()).Between(0, 1000, []models.EventType{events.KeyIssued}, 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.JSONEq(t, `{"agent_id":"","algorithm":"ed25519","fingerprint":"`+second.ID[:8]+`","key_id":"`+second.ID+`","required":false,"actor":"ops"}`, string(found[0].Data))

		db.Clock.Advance(30 * 24 * time.Hour)
		steady = steady.Add(time.Second)
		public, err := elsewhere.Public(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{second.ID}, ids(public), "after 30 days")
		db.Clock.Advance(time.Microsecond)
		third, err := elsewhere.Rotate(t.Context(), models.System())
		require.NoError(t, err)
		stored, err := store.Rows[string](db.Reads(t.Context()), "SELECT key_id FROM service_keys")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{third.ID, second.ID}, stored, "the first one is deleted")
	})
	keyRule(t, "concurrent rotations and signatures", func(t *testing.T, db *storetest.DB) {
		replicas := []*auth.ServiceKeys{auth.NewServiceKeys(db.Store, nil, nil), auth.NewServiceKeys(replica(t, db), nil, nil)}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i < 4 {
					if _, err := replicas[i%2].Rotate(t.Context(), models.System()); err != nil {
						t.Error(err)
					}
				}
				if key, err := replicas[i%2].Current(t.Context()); err != nil || key.Private == nil {
					t.Error(key, err)
				}
			})
		}
		all.Wait()
		n, err := store.Row[int](db.Reads(t.Context()), "SELECT count(*) FROM service_keys WHERE retired_at IS NULL")
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// TestSeedsAreEncryptedAgain: the rotation of the secret key includes the keys of comet.
func TestSeedsAreEncryptedAgain(t *testing.T) {
	t.Parallel()
	keyRule(t, "from plain text and with another key", func(t *testing.T, db *storetest.DB) {
		first, err := auth.NewServiceKeys(db.Store, nil, nil).Current(t.Context())
		require.NoError(t, err)
		old, next := seal.NewKey(), seal.NewKey()
		for _, lines := range []string{old, next + "\n" + old, next} {
			ring, err := seal.Parse(lines)
			require.NoError(t, err)
			opts := db.Options
			opts.Keys = ring
			s, err := store.Open(t.Context(), opts)
			require.NoError(t, err)
			_, err = reseal.Start(t.Context(), s, ring, func() error { return nil })
			require.NoError(t, err)
			key, err := auth.NewServiceKeys(s, ring, nil).Current(t.Context())
			require.NoError(t, err)
			require.Equal(t, first, key)
			seed, err := store.Row[[]byte](s.Reads(t.Context()), "SELECT seed FROM service_keys")
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(seed, ring.Prefix()))
			require.NoError(t, s.Close())
		}
		lost, err := seal.Parse(old)
		require.NoError(t, err)
		_, err = auth.NewServiceKeys(db.Store, lost, nil).Current(t.Context())
		require.ErrorContains(t, err, "service_keys.seed")
	})
}
